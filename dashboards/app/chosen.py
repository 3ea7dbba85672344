"""What all pages are about: a study and one of its base models, chosen at the side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboards.app.asking import Catalog
from dashboards.contents import Row, select
from dashboards.families import Variant


@dataclass(frozen=True)
class Chosen:
    """A study on a base model."""

    catalog: Catalog
    study: str
    base_model: str
    facts: Row
    """Its row of the view `studies`."""

    def rows(self, name: str, **more: str | int | bool) -> list[Row]:
        """The answer to a query that takes the study, and its rows of the base model."""
        found = self.catalog.rows(name, study=self.study, **more)
        return [row for row in found if row.get("base_model", self.base_model) == self.base_model]

    def variants(self) -> list[Variant]:
        """Its rows, in the study's order."""
        return list(dict.fromkeys(Variant.of(row) for row in self.rows("overview")))


def choose(catalog: Catalog) -> Chosen | None:
    """Draws the pickers; None where the catalog holds no study."""
    known = catalog.rows("all_studies")
    if not known:
        return None
    study = picked("study", [row["study"] for row in known], "Study")
    bases = [row["base_model"] for row in select(known, study=study)]
    base = picked("base_model", bases, "Base model") if len(bases) > 1 else bases[0]
    return Chosen(catalog, study, base, select(known, study=study, base_model=base)[0])


def picked(key: str, options: Sequence[str], label: str) -> str:
    """One of several, which the address of the page says and every page remembers."""
    options = list(dict.fromkeys(options))
    remembered = st.session_state.get(f"last_{key}")
    index = options.index(remembered) if remembered in options else 0
    asked = st.selectbox(label, options, index=index, key=key, bind="query-params")
    st.session_state[f"last_{key}"] = asked
    return str(asked)
