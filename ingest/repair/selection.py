"""A selection of quarantined records, as an SQL condition that both engines understand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ingest.contract.parts import TOPIC_NAME
from ingest.delta.delta_sql import quoted, unescaped
from ingest.runtime.errors import InvalidInput
from ingest.runtime.moment import parse_moment

STATES = ("open", "replayed", "dropped")
AT = re.compile(rf"(?:({TOPIC_NAME})/)?(\d{{1,9}}):(\d{{1,18}})(?:-(\d{{1,18}}))?")


@dataclass(frozen=True)
class Selection:
    """Records with one of these states and, if given, one of these reason codes, positions and times.

    A position is a topic (empty: any of the table), a partition, and the first and last offset.
    `since` and `until` limit the record's Kafka timestamp, from `since` on and before `until`.
    """

    states: tuple[str, ...] = ("open",)
    reasons: tuple[str, ...] = ()
    without_reasons: tuple[str, ...] = ()
    positions: tuple[tuple[str, int, int, int], ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    @property
    def condition(self) -> str:
        """The condition over the quarantine's columns. Its text has the escaped braces of `delta_sql`."""
        parts = [f"state IN ({_list(self.states)})"]
        if self.reasons:
            parts.append(f"reason_code IN ({_list(self.reasons)})")
        if self.without_reasons:
            parts.append(f"reason_code NOT IN ({_list(self.without_reasons)})")
        if self.positions:
            inside = (
                f"({f'topic = {quoted(topic)} AND ' if topic else ''}`partition` = {p} AND `offset` >= {first} AND `offset` <= {last})"
                for topic, p, first, last in self.positions
            )
            parts.append(f"({' OR '.join(inside)})")
        parts += [f"kafka_timestamp >= {_time(self.since)}"] if self.since is not None else []
        parts += [f"kafka_timestamp < {_time(self.until)}"] if self.until is not None else []
        return " AND ".join(parts)

    @property
    def for_spark(self) -> str:
        """The condition without the escapes of `delta_sql`, for Spark's own expressions."""
        return unescaped(self.condition)


def parse_selection(
    states: Sequence[str], reasons: Sequence[str], positions: Sequence[str], since: str | None, until: str | None
) -> Selection:
    """Parse the options of `ingest quarantine`. Positions are `0:12`, `0:12-20` or `topic/0:12`, times ISO 8601 (UTC without a zone).

    Raises InvalidInput SELECTION_INVALID.
    """
    for state in states:
        if state not in STATES:
            raise _invalid("--state", state, f"one of {', '.join(STATES)}")
    for reason in reasons:  # the engines differ in what they escape, so no other character may reach them
        if re.fullmatch("[a-z_]+", reason) is None:
            raise _invalid("--reason", reason, "a reason code, such as malformed_json")
    return Selection(
        tuple(states), tuple(reasons), (), tuple(map(_position, positions)), _moment("--since", since), _moment("--until", until)
    )


def _position(text: str) -> tuple[str, int, int, int]:
    found = AT.fullmatch(text)
    if found is None or int(found[4] or found[3]) < int(found[3]):
        expected = "a partition and an offset as 0:1200, or a range of offsets as 0:1200-1300; of one topic among several as orders/0:1200"
        raise _invalid("--at", text, expected)
    return found[1] or "", int(found[2]), int(found[3]), int(found[4] or found[3])


def _moment(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError:
        raise _invalid(option, text, "a time as 2026-11-21 or 2026-11-21T08:00Z") from None


def _invalid(option: str, text: str, expected: str) -> InvalidInput:
    return InvalidInput("SELECTION_INVALID", f"{option} {text!r}.", expected=f"{expected}.", remedy=f"correct {option}.")


def _list(values: Sequence[str]) -> str:
    return ", ".join(map(quoted, values))


def _time(moment: datetime) -> str:
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}'"
