"""What a broker's folder remembers of its last start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ingest.lab.process import ProcessId
from ingest.runtime.errors import InvalidEnvironment


@dataclass(frozen=True)
class BrokerState:
    """What broker.json keeps, so that another process finds, asks and stops the broker of a folder."""

    process: ProcessId
    port: int

    @classmethod
    def read(cls, folder: Path) -> BrokerState | None:
        """The last start in this folder, running or not; None where none was."""
        try:
            stored = json.loads((folder / "broker.json").read_text(encoding="utf-8"))
            return cls(ProcessId(**stored["process"]), int(stored["port"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            found, remedy = f"{folder / 'broker.json'} is torn ({error}).", "delete it; no topic is in it."
            raise InvalidEnvironment("BROKER_STATE", found, expected="what a start wrote.", remedy=remedy) from error

    def write(self, folder: Path) -> None:
        draft = folder / "broker.json.new"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(folder / "broker.json")
