"""File names and schemas of the two tables and the raw arrays in a cell's artifact.

The runner writes the tables and the catalog reads them; both import the schemas from this module.
The catalog does not load the arrays; they stay in the cell's folder for other programs.
"""

from __future__ import annotations

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
    }
)
"""One row per scored request, with the fields of `lce_core.benchmarks.Sample`."""

TOKEN_NLL_FILE = "token_nll.parquet"
TOKEN_NLL = pa.schema({"position_bin": pa.int64(), "nll": pa.float64()})
"""One row per position bin: the bin's first position and its mean NLL in nats."""

ARRAYS_FILE = "arrays.safetensors"
"""`CellResult.arrays` by name. The file exists only if the benchmark returns arrays."""
