"""The four candidates that are compared, and how each of them writes."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ingest.kafka.delivery.mode import AtLeastOnce, AtMostOnce, ExactlyOnce

Name: TypeAlias = Literal["at_most_once", "at_least_once", "idempotent", "exactly_once"]

NAMES: Final[tuple[Name, ...]] = ("at_most_once", "at_least_once", "idempotent", "exactly_once")
# A broker that is bounced is away for some seconds: nothing shall be aborted because of that alone.
TRANSACTION_TIMEOUT_MS: Final = 60_000


def named(name: str) -> str:
    """A candidate or a fault as people say it."""
    return name.replace("_", " ")


def plain(name: str) -> AtMostOnce | AtLeastOnce:
    """The mode of a candidate that has no transactions. `at_least_once` is what it was before idempotence: retries and nothing else."""
    return AtMostOnce() if name == "at_most_once" else AtLeastOnce(idempotent=name == "idempotent")


def transactional(transactional_id: str) -> ExactlyOnce:
    """The mode of `exactly_once`."""
    return ExactlyOnce(transactional_id, TRANSACTION_TIMEOUT_MS)
