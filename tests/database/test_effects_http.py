"""HttpApi: what each status and each failure of an HTTP call means."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ingest.delivery.effects import Accepted, Answer, Api, Declined, HttpApi, Later, Unknown
from ingest.delivery.effects.api import idempotency_key
from ingest.lab.broker.ports import free_port
from ingest.runtime.errors import InvalidInput

pytestmark = pytest.mark.unit


class Server:
    """Answers every request with `status`, `headers` and `body`, and remembers its headers."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 200, dict[str, str](), b"{}"
        self.got: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _respond(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.got.append({**{name.title(): value for name, value in self.headers.items()}, "path": self.path})
                self.send_response(server.status)
                for name, value in {"Content-Length": str(len(server.body)), **server.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(server.body)

            do_POST = do_GET = _respond  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/charges"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        *((status, {}, Accepted) for status in (200, 201, 202)),
        *((status, {}, Declined) for status in (400, 402, 404, 410, 422)),
        *((status, {}, Later) for status in (401, 403, 407, 429)),
        (503, {"Retry-After": "2"}, Later),
        *((status, {}, Unknown) for status in (301, 307, 408, 409, 425, 500, 502, 503, 504)),
        (500, {"Retry-After": "2"}, Unknown),
    ],
)
def test_a_status_means(server: Server, status: int, headers: dict[str, str], kind: type[Answer]) -> None:
    server.status, server.headers, server.body = status, {**headers, "Location": server.url}, b'{"id": "ch_1"}'
    answer = HttpApi(server.url, look_up_url=f"{server.url}/{{key}}").send(b"{}", "k")
    assert type(answer) is kind and len(server.got) == 1, "no retry and no redirect"
    if isinstance(answer, Accepted):
        assert answer.reference == "ch_1"
    else:
        assert str(status) in (answer.reason if isinstance(answer, Declined) else answer.why)
    if isinstance(answer, Later):
        assert answer.after_s == (2 if headers else 0)


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"id": null}', b"\xff"])
def test_an_accepted_call_without_a_readable_reference_is_accepted(server: Server, body: bytes) -> None:
    server.body = body
    assert HttpApi(server.url).send(b"{}", "k") == Accepted(None)


def test_an_answer_that_breaks_off_is_unknown(server: Server) -> None:
    server.headers = {"Content-Length": "1000"}
    assert isinstance(HttpApi(server.url, look_up_url=server.url + "/{key}", timeout_s=0.5).send(b"{}", "k"), Unknown)


def test_a_connection_that_cannot_be_opened_has_certainly_done_nothing() -> None:
    assert isinstance(HttpApi(f"http://127.0.0.1:{free_port()}/").send(b"{}", "k"), Later)
    assert isinstance(HttpApi("http://no-such-host.invalid/").send(b"{}", "k"), Later)


def test_a_server_that_takes_the_request_and_says_nothing_is_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = HttpApi(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_s=0.3).send(b"{}", "k")
    assert isinstance(answer, Unknown) and "timed out" in answer.why


@pytest.mark.parametrize(("status", "answer"), [(200, Accepted("ch_1")), (404, None), (401, Unknown), (429, Unknown), (500, Unknown)])
def test_only_404_means_that_a_look_up_has_never_seen_the_key(server: Server, status: int, answer: object) -> None:
    server.status, server.body = status, b'{"id": "ch_1"}'
    found = HttpApi(server.url, look_up_url=server.url + "?key={key}").look_up(idempotency_key("charge", "a/b&c"))
    assert (isinstance(found, Unknown) if answer is Unknown else found == answer) and server.got[0][
        "path"
    ] == "/charges?key=charge%3Aa%252Fb%2526c"


def test_headers_are_made_for_each_request_and_their_failure_tells_no_secret(server: Server) -> None:
    tokens = iter(["one", "two"])

    def headers() -> dict[str, str]:
        try:
            return {"Authorization": f"Bearer {next(tokens)}", "idempotency-key": "mine"}
        except StopIteration:
            raise RuntimeError("the secret is s3cret-word") from None

    api = HttpApi(server.url, look_up_url=server.url + "/{key}", headers=headers)
    api.send(b"{}", "k"), api.look_up("k")
    assert [got["Authorization"] for got in server.got] == ["Bearer one", "Bearer two"] and server.got[0]["Idempotency-Key"] == "k"
    for answer in (api.send(b"{}", "k"), api.look_up("k")):
        assert isinstance(answer, Later | Unknown) and "RuntimeError" in answer.why and "s3cret-word" not in answer.why
    assert len(server.got) == 2


def test_an_api_without_look_up_and_keys_gets_a_new_connection_for_each_call(server: Server) -> None:
    for key_valid_s in (0.0, 1.0):
        HttpApi(server.url, key_valid_s=key_valid_s).send(b"{}", "k")
    assert [got.get("Connection") for got in server.got] == ["close", None]


def test_keys_of_different_effects_and_events_differ_and_fit_a_header() -> None:
    ids = ["a", "A", "a:b", "a%3Ab", "é", "e\u0301", "*" + "0" * 64, "x" * 255, "x" * 254, "日" * 255]
    keys = [idempotency_key(effect, event_id) for effect in ("charge", "refund") for event_id in ids]
    assert len({*keys}) == len(keys) and all(key.isascii() and len(key) <= 255 and key.isprintable() for key in keys)
    assert keys[0] == "charge:a"


@pytest.mark.parametrize(
    "wrong",
    [{"url": "ftp://a/"}, {"url": "a"}, {"look_up_url": "http://a/"}, {"timeout_s": 0}, {"settle_s": -1}, {"key_valid_s": -1}],
    ids=str,
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="EFFECT_OPTION"):
        HttpApi(**{"url": "http://a/", **wrong})


def test_http_api_is_an_api() -> None:
    assert isinstance(HttpApi("http://127.0.0.1/"), Api) and not isinstance(json, Api)
