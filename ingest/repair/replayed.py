"""The outcome of a replay of quarantined records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BY = "ingest quarantine replay"


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay: records `selected`, rows `inserted`, `duplicate` records whose event id the target contains.

    `refused` counts by reason code the records that the contract still refuses; they stay as they are. `elsewhere` are selected records of
    topics that the contract does not read now, such as an earlier one of the same name. `epoch` is None for a dry run, where `inserted`
    includes duplicates.
    """

    selected: int
    inserted: int
    duplicate: int
    refused: Mapping[str, int]
    elsewhere: int
    epoch: int | None = None
    healed: tuple[str, ...] = ()
