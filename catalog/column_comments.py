"""SQL comments of the columns that mean the same in every view.

The SQL files contain only the comments of columns that a single view has, or whose meaning in a
view differs.
"""

from __future__ import annotations

import duckdb

from catalog.quoting import quoted

SHARED = {
    "study": "Name of the study.",
    "base_model": "Registered name of the base model.",
    "method": "Label of the context-extension method in the study; none stands for the base model"
    " without any method.",
    "frozen": "True if the method is applied without fine-tuning, false if the model was"
    " fine-tuned with it.",
    "variant": "Method and whether it was fine-tuned, as --select and study files write it: yarn or"
    " yarn-tuned.",
    "other_variant": "Variant with which the first one is compared.",
    "exact_attention": "True if every token attends to all earlier tokens, false if attention is"
    " approximate.",
    "seed": "Random seed of the training run and of the prompts.",
    "train_length": "Sequence length, in tokens, with which the evaluated weights were last"
    " trained; NULL if unknown.",
    "benchmark": "Registered name of the benchmark.",
    "kind": "Ability that the benchmark measures: text (loss on running text), retrieval,"
    " reasoning, understanding (of documents) or learning (from examples in the prompt).",
    "profile": "Variant of the benchmark: faithful (as in the papers' scripts), clean (without"
    " their known flaws), fast (clean with fewer samples) or tiny (for toy models).",
    "task": "Name of the task within the benchmark.",
    "eval_length": "Context length of the evaluation in tokens, including generated tokens.",
    "cell": "Id of the cell: the first 12 hex digits of its fingerprint.",
    "prompt_tokens_mean": "Mean length, in tokens, of the cell's prompts without their answers, or"
    " of its text windows; NULL if the cell is not done.",
    "prompt_tokens_min": "Length, in tokens, of the cell's shortest prompt or text window; NULL if"
    " the cell is not done.",
    "prompt_tokens_max": "Length, in tokens, of the cell's longest prompt or text window; NULL if"
    " the cell is not done.",
    "data": "Names of the data sets that the cell reads, separated by commas; (subset) marks"
    " intentionally incomplete files. Empty if it reads none; NULL if the cell is not done.",
    "paper_method": "Name of the method or model in the paper.",
    "position_bin": "First token position of the bin, counted from 0.",
    "higher_is_better": "True if a higher value is better, false if a lower value is better.",
    "num_seeds": "Number of seeds that are done.",
    "task_set": "Id of the set of planned tasks, profiles and seeds behind the mean, as in"
    " task_sets.",
    "unit": "Unit of the value: accuracy (0 to 1), perplexity or nats.",
    "paper": "Paper: lceg (arXiv:2409.12181), yarn (arXiv:2309.00071), harpe (arXiv:2412.07171) or"
    " rope_base (arXiv:2405.14591).",
    "sample": "Number of the prompt or text window within the cell. Cells that differ only in"
    " the method have the same prompt under the same number.",
    "num_prompt_tokens": "Length of the prompt or text window in tokens.",
    "prediction": "Text that the model generated; NULL if the benchmark only scores given text.",
    "reference": "Right answer; NULL if the benchmark only scores given text.",
    "score": "Score of this prompt or text window, in the benchmark's unit.",
    "cluster": "Name of the group of dependent samples, such as their document, that the"
    " bootstrap resamples together; NULL if the sample is independent.",
    "margin": "Log-probability of the right answer minus the mean log-probability of wrong"
    " answers, in nats; NULL if the benchmark does not compare them.",
    "nll": "Mean negative log-likelihood in nats of the tokens of the text that the prompt asks"
    " about; NULL if the benchmark does not compute it.",
    "nll_beyond": "The same for the text's tokens at or after a position that the benchmark's"
    " parameter names, such as the trained context; NULL without this parameter.",
    "no_context": "Score of the same prompts without their context, in cells their mean; NULL"
    " unless the benchmark has `controls: true`.",
    "local_context": "Score of the same prompts with only the neighbourhood of the answer as"
    " context, such as the sentence that states it, in cells their mean; NULL unless the benchmark"
    " has `controls: true` and its prompts have such a neighbourhood.",
    "prompt_end": "Last 200 characters of the prompt; NULL without a prompt. `lce prompt` prints"
    " the whole prompt.",
    "depth": "Position of the needle, in per cent of the context: 0 is the start, 100 the end.",
}
"""Comment by column name."""


def comment_shared_columns(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the comments of `SHARED` to all columns of views that have no comment yet.

    This includes views that readers do not use (schemas `store` and `papers`).
    """
    columns = connection.execute(
        "SELECT schema_name, table_name, column_name FROM duckdb_columns() c"
        " SEMI JOIN duckdb_views() v"
        " ON v.database_oid = c.database_oid AND v.view_oid = c.table_oid"
        " WHERE database_name = current_database() AND NOT internal AND comment IS NULL"
    ).fetchall()
    for schema, view, column in columns:
        if text := SHARED.get(column):
            connection.execute(f"COMMENT ON COLUMN {schema}.{view}.{column} IS {quoted(text)}")
