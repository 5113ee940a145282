"""Where events go: a file with one event per line, or an OpenLineage server over HTTP."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import requests
from openlineage.client.event_v2 import RunEvent
from openlineage.client.serde import Serde
from openlineage.client.transport.http import HttpConfig, HttpTransport
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from ingest.runtime.errors import InvalidEnvironment, InvalidInput

# For one attempt as a whole. requests' own time-out is that of one read, which a server outlasts that sends a byte now and then.
ANSWER_WITHIN_S = 10.0
# Between the three attempts. After that the next call of the command tries again.
PAUSES_S = (0.3, 0.6)
SHORT_BYTES = 64 * 1024
AGAIN = (429, 500, 502, 503, 504)
# A server that answers so takes no event: no login, or too many requests. Any other 4xx is about the one event.
ANY_EVENT = (401, 403, 429)


class Destination(Protocol):
    """Takes events in order. `name` contains no secret. `is_new`: it has no event yet, whatever was sent to one of this name before."""

    name: str
    is_new: bool

    def send(self, event: RunEvent) -> None:
        """Take one event. Raises InvalidEnvironment LINEAGE_NOT_SENT, or LINEAGE_REFUSED for this event only, and OSError."""

    def keep(self) -> None:
        """Make sure that everything taken so far outlives a crash. Raises OSError."""

    def close(self) -> None:
        """Release file or connection."""


class EventFile:
    """Appends to a file. A line that a crash cut off is completed by a line break, so that later lines can be read."""

    def __init__(self, path: Path) -> None:
        self.name = f"file:{path.resolve()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.is_new = not path.exists()
        self._file = path.open("ab+")
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def send(self, event: RunEvent) -> None:
        self._file.write(Serde.to_json(event).encode() + b"\n")

    def keep(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _Session(requests.Session):
    """Follows no redirect, and reads the head of an answer, which says all that we need. A short body is read, to keep the connection."""

    def request(self, *what: Any, **more: Any) -> requests.Response:
        answer = super().request(*what, **{**more, "stream": True, "allow_redirects": False})
        with suppress(HTTPError):
            answer.raw.read(SHORT_BYTES, decode_content=False)
        return answer


class LineageServer:
    """Posts to `api/v1/lineage` of a server, or to the path of the URL if it has one."""

    is_new = False

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            expected = "an address such as https://lineage.example:5000 (OpenLineage's /api/v1/lineage is added)."
            raise InvalidInput("LINEAGE_URL_INVALID", f"--url {self._shown(url)}.", expected=expected, remedy="correct --url.")
        self.name = self._shown(url)
        # The client's own retries would read the whole answer before each of them.
        settings: dict[str, Any] = {"url": url, "timeout": ANSWER_WITHIN_S, "session": _Session(), "adapter": HTTPAdapter()}
        if parts.path.strip("/"):
            settings["endpoint"] = parts.path
        if api_key is not None:
            settings["auth"] = {"type": "api_key", "apiKey": api_key}
        self._transport = HttpTransport(HttpConfig.from_dict(settings))

    def send(self, event: RunEvent) -> None:
        for pause_s in (*PAUSES_S, None):
            outcome = self._posted(event)
            if pause_s is None or not (outcome in AGAIN or isinstance(outcome, requests.ConnectionError)):
                break
            time.sleep(pause_s)
        match outcome:
            case None:
                raise self._not_sent(f"did not answer within {ANSWER_WITHIN_S:g} s")
            case int() if 300 <= outcome < 400:  # a client repeats a POST as GET after most redirects, so the event would be lost
                raise self._not_sent(f"answered {outcome}, a redirect")
            case int() if outcome in ANY_EVENT or outcome >= 500:
                raise self._not_sent(f"answered {outcome}")
            case int() if outcome >= 400:
                raise self._refused(outcome, event)
            case Exception():
                raise self._not_sent(f"did not answer ({type(outcome).__name__})") from outcome

    def _posted(self, event: RunEvent) -> int | Exception | None:
        """The status of the answer, the client's error, or None if neither came in time."""
        outcome: list[int | Exception] = []

        def post() -> None:
            try:
                outcome.append(self._transport.emit(event).status_code)
            except requests.HTTPError as error:
                outcome.append(error.response.status_code if error.response is not None else 500)
            except Exception as error:  # also what is no client error: nobody would see it in this thread
                outcome.append(error)

        thread = threading.Thread(target=post, name="lineage", daemon=True)  # a name server or a server that drips cannot be interrupted
        thread.start()
        thread.join(ANSWER_WITHIN_S)
        return outcome[0] if outcome else None

    def keep(self) -> None:
        """The server has answered: it keeps the events."""

    def close(self) -> None:
        self._transport.close()

    def _not_sent(self, what: str) -> InvalidEnvironment:
        return InvalidEnvironment(
            "LINEAGE_NOT_SENT",
            f"{self.name} {what}.",
            expected="2xx for each event.",
            remedy="check URL, key and server, then run the command again: it goes on with the event that was not taken.",
        )

    def _refused(self, status: int, event: RunEvent) -> InvalidEnvironment:
        return InvalidEnvironment(
            "LINEAGE_REFUSED",
            f"{self.name} answered {status} to the event of {event.job.name}, run id {event.run.runId}.",
            expected="2xx for each event.",
            remedy="look into the server's log for this run id. The table's later events wait for it; those of other tables do not.",
        )

    @staticmethod
    def _shown(url: str) -> str:
        """The address without user, password and query."""
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
