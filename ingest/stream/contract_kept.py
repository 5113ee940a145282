"""The contract in force, kept beside the checkpoint: the one that the last batch was begun with (I9)."""

from __future__ import annotations

from ingest.contract import Contract
from ingest.files import Files
from ingest.places import Places

CONTRACT_FILE = "contract.json"


def stored_contract(files: Files, places: Places) -> Contract | None:
    """The contract that the last batch was begun with; None where nothing was ever begun. Raises InvalidInput CONTRACT_DAMAGED."""
    path = f"{places.state}/{CONTRACT_FILE}"
    data = files.read(path)
    return Contract.from_json(data.decode(errors="replace"), path) if data is not None else None
