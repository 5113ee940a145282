"""A time that a person typed: an ISO 8601 date or time, in UTC if it names no zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Python takes +05:75 for +06:15.
_ZONE_MINUTES = re.compile(r"[T ].*[+-]\d\d:?([6-9]\d)")


def parse_moment(text: str) -> datetime:
    """The time in UTC. Raises ValueError for text that is none, also for a zone with more than 59 minutes."""
    if _ZONE_MINUTES.search(text):
        raise ValueError(f"{text!r} has a zone that does not exist")
    moment = datetime.fromisoformat(text)
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside of the calendar in UTC") from error
