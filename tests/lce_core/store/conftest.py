"""The fixtures of the tests of studies serve the tests of stores as well."""

from tests.lce_core.study.conftest import store, text

__all__ = ["store", "text"]
