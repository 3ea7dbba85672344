"""Made-up questions in the format of the data set cais/mmlu, folder `all`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.data.subsets import state_rows

COUNTS = {"test": 6, "auxiliary_train": 40}


def write_mmlu(folder: Path) -> None:
    (folder / "all").mkdir()
    for split, count in COUNTS.items():
        rows = [
            {
                "question": f"Which {split}  boat has\nnumber {number}?",
                "subject": "boats",
                "choices": [f"boat {letter}{number}" for letter in "wxyz"],
                "answer": number % 4,
            }
            for number in range(count)
        ]
        pq.write_table(
            pa.Table.from_pylist(rows), folder / "all" / f"{split}-00000-of-00001.parquet"
        )
    state_rows(folder, COUNTS)
