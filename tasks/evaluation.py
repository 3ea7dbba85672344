"""Prefect task for cells: one loaded model at one length over its benchmarks."""

from __future__ import annotations

from tasks.units import unit_task

evaluate = unit_task("evaluate")
