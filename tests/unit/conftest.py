"""A lake for tests of `ingest verify`, and a run for tests of the oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.lab.oracle_scene import Scene, good_scene
from tests.unit.verify.proof_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Empty tables."""
    return Lake(tmp_path)


@pytest.fixture
def good() -> Scene:
    """A run without a fault."""
    return good_scene()
