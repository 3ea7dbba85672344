"""File names and Parquet schemas of a cell's artifact (the result of one benchmark evaluation)."""

import pyarrow as pa

SAMPLES_FILE = "samples.parquet"
SAMPLES = pa.schema(
    {
        "sample": pa.int64(),
        "num_prompt_tokens": pa.int64(),
        "depth": pa.float64(),
        "prediction": pa.string(),
        "reference": pa.string(),
        "score": pa.float64(),
        "cluster": pa.string(),
        "margin": pa.float64(),
        "prompt_end": pa.string(),
        "nll": pa.float64(),
        "nll_beyond": pa.float64(),
    }
)
"""One row per scored prompt (`lce_core.benchmarks.Sample`)."""
METRICS_IN_NATS = ("margin", "nll", "nll_beyond")
"""Columns of samples that are also metrics; in nats, whatever the benchmark's unit."""
CONTROLLED_SAMPLES = pa.unify_schemas(
    [SAMPLES, pa.schema({"no_context": pa.float64(), "local_context": pa.float64()})]
)
"""Schema of the same file if the cell has controls."""

TOKEN_NLL_FILE = "token_nll.parquet"
TOKEN_NLL = pa.schema({"position_bin": pa.int64(), "nll": pa.float64()})
"""One row per bin of token positions: its first position, and mean NLL in nats per token."""

ARRAYS_FILE = "arrays.safetensors"
"""Arrays of `CellResult.arrays`, if any."""
