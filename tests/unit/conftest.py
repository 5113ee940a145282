"""A lake that `ingest verify` is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.proof_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Empty tables."""
    return Lake(tmp_path)
