"""Requests for maintenance to the process that holds a table's lock: `ingest run`, whose JVM alone may commit on a local disk.

A request is a file beside the table's lock. The run removes it when it begins and writes an answer when it is done. A request that expires
before that is never carried out. Every file is replaced atomically and belongs to one request, so that several commands may wait.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.repair.maintenance import Maintained, Settings, Tended
from ingest.runtime.canonical_json import read_json
from ingest.runtime.files import LocalFiles
from ingest.runtime.places import Places

REQUEST, ANSWER = ".request.json", ".answer.json"
# An answer that nobody has read by then: the command was killed.
ANSWERS_KEPT_S = 3600.0


@dataclass(frozen=True)
class Request:
    """A request: its file's stem, its settings and the time (seconds since 1970) after which nobody waits for it."""

    id: str
    settings: Settings
    expires: float


def _folder(places: Places) -> Path:
    return Path(places.root) / "maintain"


def _file(places: Places, id: str, ending: str) -> Path:
    return _folder(places) / f"{id}{ending}"


def send(places: Places, settings: Settings, wait_s: float) -> Request:
    """Write a request."""
    request = Request(uuid.uuid4().hex, settings, time.time() + wait_s)
    text = json.dumps({"settings": asdict(settings), "expires": request.expires})
    LocalFiles().write(str(_file(places, request.id, REQUEST)), text.encode())
    return request


def withdraw(places: Places, request: Request) -> bool:
    """Remove a request that nobody has begun; False if a process has begun it."""
    try:
        _file(places, request.id, REQUEST).unlink()
        return True
    except FileNotFoundError:
        return False


def waiting(places: Places) -> bool:
    """Whether there is a request. Cheap: a run calls it ten times a second."""
    return any(name.endswith(REQUEST) for name in LocalFiles().names(str(_folder(places))))


def take(places: Places) -> Request | None:
    """Take a request out of the folder; None if there is none. Removes expired requests, and answers that nobody reads."""
    for name in LocalFiles().names(str(_folder(places))):
        path = _folder(places) / name
        try:
            if name.endswith(ANSWER) and path.stat().st_mtime < time.time() - ANSWERS_KEPT_S:
                path.unlink()
            if not name.endswith(REQUEST):
                continue
            found = read_json(path.read_bytes())
            path.unlink()
            request = Request(name.removesuffix(REQUEST), Settings(**found["settings"]), float(found["expires"]))
        except FileNotFoundError:
            continue  # its command has withdrawn it
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)  # no request of this version
            continue
        if request.expires > time.time():
            return request
    return None


def answer(places: Places, request: Request, done: Maintained | str) -> None:
    """Answer a request with the result, or with the error's text."""
    document = {"failed": done} if isinstance(done, str) else asdict(done)
    LocalFiles().write(str(_file(places, request.id, ANSWER)), json.dumps(document).encode())


def answered(places: Places, request: Request) -> Maintained | str | None:
    """The answer, whose file is removed; None as long as there is none."""
    path = _file(places, request.id, ANSWER)
    if (data := LocalFiles().read(str(path))) is None:
        return None
    path.unlink(missing_ok=True)
    found: dict[str, Any] = read_json(data)
    if "failed" in found:
        return str(found["failed"])
    return Maintained(**{**found, "tables": [Tended(**each) for each in found["tables"]]})
