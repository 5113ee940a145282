"""The record of a broker's last start, in the broker's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ingest.lab.process import ProcessId
from ingest.runtime.errors import InvalidEnvironment


@dataclass(frozen=True)
class BrokerState:
    """The content of broker.json. With it, another process can find, query and stop the folder's broker."""

    process: ProcessId
    port: int

    @classmethod
    def read(cls, folder: Path) -> BrokerState | None:
        """The folder's last start, whether its broker still runs or not; None if there was none. Raises InvalidEnvironment BROKER_STATE."""
        try:
            stored = json.loads((folder / "broker.json").read_text(encoding="utf-8"))
            return cls(ProcessId(**stored["process"]), int(stored["port"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            found, remedy = f"{folder / 'broker.json'} cannot be read ({error}).", "delete it; it contains no topics."
            raise InvalidEnvironment("BROKER_STATE", found, expected="the JSON that a broker start writes.", remedy=remedy) from error

    def write(self, folder: Path) -> None:
        draft = folder / "broker.json.new"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(folder / "broker.json")
