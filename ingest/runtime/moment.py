"""A time that a person typed: an ISO 8601 date or time, in UTC if it names no zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# A zone at the end of a time. Python takes +05:75 for +06:15.
_ZONE = re.compile(r":?\d\d(?:[.,]\d+)?[+-]\d\d:?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?$")


def parse_moment(text: str) -> datetime:
    """The time in UTC. Raises ValueError for text that is none, also for a zone with more than 59 minutes."""
    moment = datetime.fromisoformat(text)
    zone = _ZONE.search(text) if moment.tzinfo is not None else None
    if zone is not None and max(map(int, zone.groups("0"))) > 59:
        raise ValueError(f"{text!r} has a zone that does not exist")
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside of the calendar in UTC") from error
