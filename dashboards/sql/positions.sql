FROM nll_by_position n
WHERE study = $study AND eval_length = (
    SELECT max(eval_length) FROM nll_by_position m
    WHERE m.study = n.study AND m.base_model = n.base_model
        AND m.benchmark = n.benchmark AND m.task = n.task
)
