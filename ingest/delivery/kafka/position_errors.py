"""The errors of a consumer group's positions. Each names the call that goes on from a chosen place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.kafka.kafka_options import KafkaOptions
from ingest.runtime.errors import InvalidEnvironment, InvalidInput, Refused, RunStopped

Limits = Mapping[int, tuple[int, int]]


def missing(group: str, topic: str, servers: str, within: Limits, *, begun: bool) -> RunStopped:
    """Partitions without a committed offset. `within` are their first offsets and ends; `begun`: the group has offsets in other ones."""
    if begun:
        found = f"the group {group} has positions in {topic}, but none in {_places(within)}: its offset expired or was deleted, or the "
        found += "partition is new and its first records were deleted before the group had read them."
        expected = "an offset in every partition, or a new partition that still has its first record."
        remedy = f"stop the group and name the next offset: `{_call(group, topic, servers, _firsts(within))}` reads all that is left."
        return RunStopped("GROUP_POSITION_MISSING", found, expected=expected, remedy=remedy)
    return RunStopped(
        "GROUP_POSITION_MISSING",
        f"the group {group} has no position in {topic}: it never began there, or its offsets expired (offsets.retention.minutes) or were "
        f"deleted, with the topic or without it. The topic has {_places(within)}.",
        expected="a group that has begun, and whose offsets Kafka still has.",
        remedy=f"begin a new group: `{_call(group, topic, servers)}`, or with at='latest'. If it has worked before, find out from its "
        f"results how far, and name the next offsets: `{_call(group, topic, servers, _firsts(within))}` does all again that is left.",
    )


def expired(group: str, topic: str, servers: str, gaps: Limits) -> RunStopped:
    """Retention or DeleteRecords removed records before the group had read them. `gaps`: the next offset and the first one left."""
    count = sum(first - offset for offset, first in gaps.values())
    ranges = ", ".join(f"{offset} to {first - 1} of {topic}[{number}]" for number, (offset, first) in sorted(gaps.items()))
    to = {number: first for number, (_, first) in sorted(gaps.items())}
    return RunStopped(
        "GROUP_RECORDS_EXPIRED",
        f"the offsets {ranges} ({count:,} in all) were deleted before the group {group} had read them.",
        expected="a topic that keeps its records until the group has read them.",
        remedy=f"restore them from another copy, or stop the group and pass over them: `{_call(group, topic, servers, to)}`. Then raise "
        "the topic's retention.ms.",
    )


def lost(group: str, topic: str, servers: str, number: int, why: str, to: int) -> RunStopped:
    """The log is shorter than what the group has read of it. `to`: the first offset that the group has not read."""
    return RunStopped(
        "GROUP_RECORDS_LOST",
        f"{topic}[{number}] has lost records that the group {group} has read: {why}.",
        expected="a log that keeps what was read (unclean.leader.election.enable=false), and offsets that no other program moves.",
        remedy=f"stop the group and name the next offset: `{_call(group, topic, servers, {number: to})}` reads what was written since.",
    )


def recreated(group: str, topic: str, servers: str, limits: Limits, was: str, now: str) -> RunStopped:
    """The topic of this name is not the one that the offsets belong to."""
    return RunStopped(
        "GROUP_TOPIC_RECREATED",
        f"the offsets of the group {group} belong to another topic {topic}: its id was {was} and is now {now}.",
        expected="the topic that the group has read so far: offsets of one topic mean nothing in another.",
        remedy="connect to the right cluster. If the topic was recreated, stop the group and read it from its beginning: "
        f"`{_call(group, topic, servers, _firsts(limits))}`.",
    )


def begun(group: str, topic: str, servers: str, have: Mapping[int, int]) -> Refused:
    """A group begins once."""
    return Refused(
        "GROUP_BEGUN",
        f"the group {group} has begun in {topic}: its next offsets are {dict(sorted(have.items()))}.",
        expected="a group without offsets in the topic.",
        remedy="start its members: they read on from there. To read from elsewhere, stop the group and name the offsets: "
        f"`{_call(group, topic, servers, dict(sorted(have.items())))}`.",
    )


def active(group: str) -> Refused:
    """Kafka accepts offsets from outside only while a group has no members."""
    return Refused(
        "GROUP_ACTIVE",
        f"the group {group} has members, so Kafka refuses to move it.",
        expected="a group without members.",
        remedy="stop its members and call it again. A static member (`instance`) counts until its session times out (45 s by default).",
    )


def checked_offsets(topic: str, at: Any, limits: Limits, have: Mapping[int, int]) -> dict[int, int]:
    """`at` of begin_group as next offsets by partition. Raises InvalidInput GROUP_OFFSETS."""
    if not isinstance(at, Mapping) or not at:
        raise _wrong(f"at is {at!r}", "'earliest', 'latest', or next offsets by partition, such as {0: 1_200}")
    for number, offset in at.items():
        if number not in limits:
            raise _wrong(f"at names partition {number!r} of {topic}", f"one of its partitions: {_places(limits)}")
        first, end = limits[number]
        if not isinstance(offset, int) or not first <= offset <= end:
            raise _wrong(f"the next offset {offset!r} of {topic}[{number}]", f"{first} (its first record) to {end} (its end)")
    if left := {number: limits[number] for number in limits.keys() - have.keys() - at.keys()}:
        raise _wrong("the group would have no position in some partitions", f"an offset for each of {_places(left)}, too")
    return dict(at)


def group_forbidden(kafka: KafkaOptions, group: str) -> InvalidEnvironment:
    """The user may not read the group's offsets."""
    return InvalidEnvironment(
        "KAFKA_FORBIDDEN",
        f"the Kafka brokers {kafka.bootstrap_servers} do not let this client read or commit the offsets of the group {group!r}.",
        expected="the rights Describe and Read on the group.",
        remedy=f"kafka-acls --add --allow-principal User:… --operation Read --group {group}",
    )


def _wrong(found: str, expected: str) -> InvalidInput:
    return InvalidInput("GROUP_OFFSETS", f"{found}.", expected=f"{expected}.", remedy="correct at; nothing was committed.")


def _places(limits: Limits) -> str:
    return ", ".join(f"partition {number} ({first} to {end})" for number, (first, end) in sorted(limits.items()))


def _firsts(limits: Limits) -> dict[int, int]:
    return {number: first for number, (first, _) in sorted(limits.items())}


def _call(group: str, topic: str, servers: str, at: Mapping[int, int] | None = None) -> str:
    return f"begin_group({group!r}, {topic!r}, {servers!r}{'' if at is None else f', at={dict(at)}'})"
