"""docs/tutorial/delivery.md runs from top to bottom in one session and prints the output that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.lab.broker.embedded_broker import Broker
from tests.guide import run_guide, typed_line_by_line

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "delivery.md"


def test_every_example_on_the_page_runs_and_prints_the_output_shown(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEST_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.chdir(PAGE.parents[2])
    assert run_guide(PAGE) >= 12


@pytest.mark.unit
def test_every_example_can_be_typed_into_the_python_prompt_line_by_line() -> None:
    typed_line_by_line(PAGE)
