"""JSON that others wrote is read in one way, which raises nothing but ValueError."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

import ingest
from ingest.runtime.canonical_json import read_json

pytestmark = pytest.mark.unit

# Texts that the same process or one of ours has just written, and the lab's own.
OWN = {
    *("runtime/canonical_json.py", "runtime/crash_points.py"),
    *("cli/check.py", "quality/validation_result.py", "decode/headers.py", "batch/staged_parts.py"),
}


def test_json_is_read_with_its_numbers_as_they_stand() -> None:
    assert read_json(b'{"a": [1, 0.10]}', parse_float=Decimal) == {"a": [1, Decimal("0.10")]}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 100_000, "9" * 5_000, b"\xff"])
def test_what_cannot_be_read_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        read_json(text)


def test_no_module_reads_what_others_wrote_in_another_way() -> None:
    package = Path(ingest.__file__).parent
    files = {file.relative_to(package).as_posix() for file in package.rglob("*.py") if "json.loads(" in file.read_text(encoding="utf-8")}
    assert {name for name in files if not name.startswith("lab/")} == OWN
