"""HttpApi: what each status and each failure of an HTTP call means."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ingest.delivery.effects import Accepted, Answer, Api, Declined, HttpApi, Later, Unknown
from ingest.delivery.effects.api import idempotency_key
from ingest.delivery.effects.http_call import OVERDUE_MAX
from ingest.lab.broker.ports import free_port
from ingest.runtime.errors import InvalidInput
from tests.polling import until
from tests.raw_server import again_and_again, served

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
                more = {"path": self.path, "client": str(self.client_address)}
                server.got.append({**{name.title(): value for name, value in self.headers.items()}, **more})
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


def calls_under_way() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "http-call"]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPS: dict[str, tuple[str, Callable[[socket.socket], object], type[Answer]]] = {
    "headers": ("http", again_and_again(HEAD, b"X-More: 1\r\n", 0.1), Unknown),
    "one header": ("http", again_and_again(HEAD + b"X: ", b"x", 0.1), Unknown),
    "continue": ("http", again_and_again(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.1), Unknown),
    "body": ("http", again_and_again(HEAD + b"Content-Length: 1000\r\n\r\n", b"x", 0.1), Unknown),
    "chunks": ("http", again_and_again(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.1), Unknown),
    "no TLS": ("https", lambda client: threading.Event().wait(5), Later),
    "request": ("http", lambda client: threading.Event().wait(5), Unknown),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_a_call_ends_at_its_time_out_however_often_the_server_sends_a_little(drip: str) -> None:
    scheme, answer, kind = DRIPS[drip]
    with served(answer) as place:
        api, began = HttpApi(f"{scheme}://{place}/", look_up_url=f"{scheme}://{place}/{{key}}", timeout_s=0.5), time.monotonic()
        sent = api.send(b"x" * (30_000_000 if drip == "request" else 1), "k")
        assert type(sent) is kind and isinstance(api.look_up("k"), Unknown)
        assert time.monotonic() - began < 4
        until(lambda: not calls_under_way(), "the connections are cut", 5)


def test_an_answer_without_end_is_read_up_to_its_limit() -> None:
    endless = again_and_again(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n", 0)
    with served(endless) as place:
        api, began = HttpApi(f"http://{place}/", look_up_url=f"http://{place}/{{key}}", timeout_s=20), time.monotonic()
        assert api.send(b"{}", "k") == Accepted(None), "it is done, whatever its name is"
        found = api.look_up("k")
        assert isinstance(found, Unknown) and "longer than 1,048,576 bytes" in found.why
        assert time.monotonic() - began < 10


def test_an_answer_as_long_as_the_limit_is_whole(server: Server) -> None:
    server.body = b'{"id": "ch_1"}'
    for limit, reference in ((len(server.body), "ch_1"), (len(server.body) - 1, None)):
        assert HttpApi(server.url, body_bytes_max=limit).send(b"{}", "k") == Accepted(reference)


def test_no_compressed_answer_is_asked_for_and_none_is_unpacked(server: Server) -> None:
    """100 MB of blanks are 100 kB when they are compressed."""
    server.headers, server.body = {"Content-Encoding": "gzip"}, gzip.compress(b'{"id": "ch_1"' + b" " * 100_000_000 + b"}", 6)
    api = HttpApi(server.url, look_up_url=server.url + "/{key}", headers=lambda: {"accept-encoding": "gzip"})
    tracemalloc.start()
    try:
        assert api.send(b"{}", "k") == Accepted(None)
        assert isinstance(api.look_up("k"), Unknown)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert [got["Accept-Encoding"] for got in server.got] == ["identity"] * 2


def test_nothing_is_sent_after_the_time_out(server: Server) -> None:
    """The token comes too late: the call has been given up, and somebody else may make it."""
    token = threading.Event()

    def headers() -> dict[str, str]:
        token.wait(10)
        return {}

    answer = HttpApi(server.url, timeout_s=0.2, headers=headers).send(b"{}", "k")
    assert isinstance(answer, Later) and "timed out after 0.2 s" in answer.why
    token.set()
    until(lambda: not calls_under_way(), "the call's thread has ended", 5)
    assert server.got == []


def test_headers_that_hang_take_a_bounded_number_of_threads_and_calls_go_on_when_they_return(server: Server) -> None:
    token, before = threading.Event(), len(calls_under_way())

    def headers() -> dict[str, str]:
        token.wait(60)
        return {}

    api = HttpApi(server.url, timeout_s=0.02, headers=headers)
    answers = [api.send(b"{}", "k") for _ in range(OVERDUE_MAX + 5)]
    assert len(calls_under_way()) - before == OVERDUE_MAX
    assert isinstance(answers[-1], Later) and "`headers` does not return" in answers[-1].why
    api.timeout_s = 10
    token.set()
    until(lambda: isinstance(api.send(b"{}", "k"), Accepted), "a call is answered", 20)


def test_calls_of_an_api_that_settles_unknown_ones_share_a_connection(server: Server) -> None:
    api = HttpApi(server.url, key_valid_s=60)
    for _ in range(3):
        assert isinstance(api.send(b"{}", "k"), Accepted)
    assert len({got["client"] for got in server.got}) == 1


def test_keys_of_different_effects_and_events_differ_and_fit_a_header() -> None:
    ids = ["a", "A", "a:b", "a%3Ab", "é", "e\u0301", "*" + "0" * 64, "x" * 255, "x" * 254, "日" * 255]
    keys = [idempotency_key(effect, event_id) for effect in ("charge", "refund") for event_id in ids]
    assert len({*keys}) == len(keys) and all(key.isascii() and len(key) <= 255 and key.isprintable() for key in keys)
    assert keys[0] == "charge:a"


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://a/"},
        {"url": "a"},
        {"look_up_url": "http://a/"},
        {"timeout_s": 0},
        {"settle_s": -1},
        {"key_valid_s": -1},
        {"body_bytes_max": 0},
    ],
    ids=str,
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="EFFECT_OPTION"):
        HttpApi(**{"url": "http://a/", **wrong})


def test_http_api_is_an_api() -> None:
    assert isinstance(HttpApi("http://127.0.0.1/"), Api) and not isinstance(json, Api)
