"""The four candidates of the comparison and their delivery modes."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ingest.delivery.kafka.mode import AtLeastOnce, AtMostOnce, ExactlyOnce

Name: TypeAlias = Literal["at_most_once", "at_least_once", "idempotent", "exactly_once"]

NAMES: Final[tuple[Name, ...]] = ("at_most_once", "at_least_once", "idempotent", "exactly_once")
# A bounced broker is down for some seconds. That alone must not abort a transaction.
TRANSACTION_TIMEOUT_MS: Final = 60_000


def named(name: str) -> str:
    """The display name of a candidate or a fault."""
    return name.replace("_", " ")


def plain(name: str) -> AtMostOnce | AtLeastOnce:
    """The mode of a candidate without transactions. `at_least_once` only retries, as clients did before idempotence."""
    return AtMostOnce() if name == "at_most_once" else AtLeastOnce(idempotent=name == "idempotent")


def transactional(transactional_id: str) -> ExactlyOnce:
    """The mode of `exactly_once`."""
    return ExactlyOnce(transactional_id, TRANSACTION_TIMEOUT_MS)
