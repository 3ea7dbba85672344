"""The study and base model that all pages show, chosen in the sidebar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from dashboards.app.catalog import Catalog
from dashboards.contents import Row, select
from dashboards.families import Variant


@dataclass(frozen=True)
class Chosen:
    """The study and base model that the viewer selected; queries return only rows of these."""

    catalog: Catalog
    study: str
    base_model: str
    facts: Row
    """The study's row of the view `studies` for this base model."""

    def rows(self, name: str, **more: str | int | bool) -> list[Row]:
        """Run the query `name` for the study; return the rows of the base model.

        If the query has no column `base_model`, return all rows.
        """
        found = self.catalog.rows(name, study=self.study, **more)
        return [row for row in found if row.get("base_model", self.base_model) == self.base_model]

    def variants(self) -> list[Variant]:
        """Return all variants (method, frozen or tuned) in the study's order."""
        return list(dict.fromkeys(Variant.of(row) for row in self.rows("overview")))


def choose(catalog: Catalog) -> Chosen | None:
    """Draw the pickers of study and base model; return the choice, or None if no study exists."""
    known = catalog.rows("all_studies")
    if not known:
        return None
    study = picked("study", [row["study"] for row in known], "Study")
    bases = [row["base_model"] for row in select(known, study=study)]
    base = picked("base_model", bases, "Base model") if len(bases) > 1 else bases[0]
    return Chosen(catalog, study, base, select(known, study=study, base_model=base)[0])


def picked(key: str, options: Sequence[str], label: str) -> str:
    """Draw a picker and return its value. URL and session keep the value for the other pages."""
    options = list(dict.fromkeys(options))
    remembered = st.session_state.get(f"last_{key}")
    index = options.index(remembered) if remembered in options else 0
    picked = st.selectbox(label, options, index=index, key=key, bind="query-params")
    st.session_state[f"last_{key}"] = picked
    return str(picked)
