"""What a cell writes beside its record: two tables, by name, column and type, and raw arrays.

The runner writes the tables and the catalog reads them; both take the schemas from here. Arrays
stay in the cell's folder, for programs.
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
"""One row a scored request; the fields of `lce_core.benchmarks.Sample`."""

TOKEN_NLL_FILE = "token_nll.parquet"
TOKEN_NLL = pa.schema({"position_bin": pa.int64(), "nll": pa.float64()})
"""One row a bin of positions: its first position, and the mean NLL in nats."""

ARRAYS_FILE = "arrays.safetensors"
"""`CellResult.arrays` by name; only where a benchmark keeps any."""
