"""A payment service to try effects on: a real HTTP server on 127.0.0.1 that can misbehave as real ones do.

    with PaymentService(file) as service:
        service.fault("close_after")        # the next charge is made, and the connection is closed without an answer

`POST /charges` with `amount_cents` and the header Idempotency-Key; `GET /charges?key=…` finds what was done under a key; `GET /charges`
lists all charges. Every charge is appended to a file, so that a new service remembers.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

HOST: Final = "127.0.0.1"
# Before: nothing is charged. After: the charge is made, and the answer is lost.
FAULTS: Final = (
    *("error_before", "close_before", "unavailable", "too_many", "unauthorized", "slow_before"),
    *("error_after", "close_after", "hang_after"),
    *("look_up_error",),
)
_SLOW_S: Final = 2.0


class PaymentService:
    """The service; `start` and `stop` it, or use it as a context manager.

    `honours_key`: a known key is answered with the first result, else charged again. `forgets`: the look-up has never seen any key.
    `declines_over_cents`: larger amounts are declined.
    """

    def __init__(self, file: Path, *, honours_key: bool = True) -> None:
        self._file, self._port = file, 0
        self.honours_key, self.forgets, self.declines_over_cents, self.slow_s = honours_key, False, 10**9, _SLOW_S
        self.requests: Counter[str] = Counter()  # charges and look-ups that were asked for, by method
        self.released = threading.Event()
        self._faults: list[str] = []
        self._lock = threading.Lock()
        self._results: list[dict[str, Any]] = []
        if file.exists():
            self._results = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        self._server: _Server | None = None

    def start(self) -> PaymentService:
        """Listen; on the same port as before, if it was started before."""
        service = self

        class Bound(_Handler):
            payment_service = service

        self.released.clear()
        self._server = _Server((HOST, self._port), Bound)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuse connections from now on, and cut those that are open. Charges stay."""
        if self._server is not None:
            self.released.set()
            self._server.shutdown()
            self._server.server_close()
            for each in tuple(self._server.connections):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._server = None

    def __enter__(self) -> PaymentService:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}/charges"

    def fault(self, name: str, times: int = 1) -> None:
        """The next `times` requests that the fault concerns suffer from it; it is one of FAULTS."""
        if name not in FAULTS:
            raise ValueError(f"{name!r} is none of {', '.join(FAULTS)}")
        with self._lock:
            self._faults += [name] * times

    @property
    def charges(self) -> list[dict[str, Any]]:
        """All charges made: id, key, amount_cents and the request's other fields."""
        with self._lock:
            return [each for each in self._results if each["status"] == "charged"]

    def requested(self, method: str, names: tuple[str, ...]) -> str | None:
        """Count a request; return the fault among these that it suffers from, if there is one."""
        with self._lock:
            self.requests[method] += 1
            found = next((each for each in self._faults if each in names), None)
            if found is not None:
                self._faults.remove(found)
            return found

    def charge(self, key: str, request: dict[str, Any]) -> dict[str, Any]:
        """Charge, or return the first result for a key that is honoured."""
        with self._lock:
            known = next((each for each in self._results if each["key"] == key), None)
            if known is not None and self.honours_key:
                return known
            status = "declined" if request["amount_cents"] > self.declines_over_cents else "charged"
            result = {**request, "id": f"ch_{len(self._results) + 1}", "key": key, "status": status}
            self._results.append(result)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            return result

    def found(self, key: str) -> dict[str, Any] | None:
        """The look-up: the first result for this key."""
        with self._lock:
            return None if self.forgets else next((each for each in self._results if each["key"] == key), None)


class _Server(ThreadingHTTPServer):
    """Knows its open connections: clients keep them, and closing the listener does not end them."""

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: clients that have given up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    payment_service: PaymentService
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        service = self.payment_service
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = service.requested("POST", FAULTS[:-1])
        match fault:
            case "error_before":
                return self._answer(500, {"error": "internal error"})
            case "close_before":
                return self._close()
            case "unavailable":
                return self._answer(503, {"error": "come back"}, {"Retry-After": "1"})
            case "too_many":
                return self._answer(429, {"error": "too many requests"}, {"Retry-After": "1"})
            case "unauthorized":
                return self._answer(401, {"error": "token expired"})
            case "slow_before":
                service.released.wait(service.slow_s)
        result = service.charge(self.headers["Idempotency-Key"], request)
        match fault:
            case "error_after":
                return self._answer(500, {"error": "internal error"})
            case "close_after":
                return self._close()
            case "hang_after":
                service.released.wait()
                return self._close()
        declined = result["status"] == "declined"
        self._answer(402 if declined else 200, {"error": "card declined"} if declined else result)

    def do_GET(self) -> None:
        service = self.payment_service
        key = parse_qs(urlsplit(self.path).query).get("key")
        if key is None:
            return self._answer(200, {"charges": service.charges})
        if service.requested("GET", FAULTS[-1:]):
            return self._answer(500, {"error": "internal error"})
        found = service.found(key[0])
        self._answer(404, {"error": "never seen"}) if found is None else self._answer(200, found)

    def _answer(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(HTTPStatus(status))
        for name, value in {**(headers or {}), "Content-Type": "application/json", "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _close(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests read the charges."""
