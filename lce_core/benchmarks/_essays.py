"""Paul Graham's essays, the text in which the benchmarks needle and ruler hide sentences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lce_core.benchmarks._data import DataSet, Table, read_rows, read_text

ESSAYS = DataSet(
    "essays",
    ("*.txt", "*.json"),
    "github.com/gkamradt/LLMTest_NeedleInAHaystack (PaulGrahamEssays/*.txt), or RULER's"
    " PaulGrahamEssays.json",
    (Table(),),
)


def essays(folders: Mapping[str, Path]) -> str:
    """Return all essays as one text, in the order of their file names."""
    texts = []
    for file in ESSAYS.files(folders):
        if file.suffix == ".txt":
            texts.append(read_text(file))
        else:
            texts += [str(row["text"]) for row in read_rows(file, ("text",))]
    return "".join(texts)
