"""Prefect task for training runs: bases from scratch and methods fine-tuned."""

from __future__ import annotations

from tasks.units import unit_task

train = unit_task("train")
