"""Prefect task for data steps: packed training rows and held-out text."""

from __future__ import annotations

from tasks.units import unit_task

sample = unit_task("sample")
