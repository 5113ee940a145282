"""Times that a person types."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ingest.runtime.moment import parse_moment

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T08:00Z", datetime(2026, 11, 21, 8, tzinfo=UTC)),
        ("2026-11-21 08:00:01.5+05:45", datetime(2026, 11, 21, 2, 15, 1, 500_000, tzinfo=UTC)),
        ("2026-11-21T08:00-0330", datetime(2026, 11, 21, 11, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_in_utc_unless_it_names_a_zone(text: str, moment: datetime) -> None:
    assert parse_moment(text) == moment and parse_moment(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-11-21T08:00+05:75",
        "2026-11-21T08:00-0560",
        "2026-11-21t08:00+05:75",
        "2026-11-21T08:00:00.5+05:30:75",
        "0001-01-01T00:00+18:00",
    ],
)
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text)
