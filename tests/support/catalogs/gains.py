"""What methods gain on the base model at the same positions, by SQL alone."""

GAINS = """
SELECT n.benchmark, n.task, n.eval_length, n.method, n.frozen,
    (n.position_bin >= 128)::INTEGER + (n.position_bin >= 256)::INTEGER
        + (n.position_bin >= 512)::INTEGER AS band,
    avg(n.nll - b.nll) AS gain
FROM nll_by_position n
JOIN nll_by_position b USING (study, base_model, benchmark, task, eval_length, position_bin)
WHERE b.method = 'none' AND b.frozen AND (n.method != 'none' OR NOT n.frozen)
    AND n.nll IS NOT NULL AND b.nll IS NOT NULL
GROUP BY ALL"""
"""Of a study whose base model was trained on 128 tokens; `band` counts the doublings from there."""
BANDS = ("to 128", "128 to 256", "256 to 512", "512 to 1,024")
