-- Figures as the papers print them.
SELECT paper, place, paper_model, paper_method, method, frozen, paper_benchmark, task, eval_length,
    printed, unit, errata, note
FROM paper_scores
