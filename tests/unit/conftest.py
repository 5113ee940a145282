"""A lake that `ingest verify` is asked about, and a run that the oracle judges."""

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
