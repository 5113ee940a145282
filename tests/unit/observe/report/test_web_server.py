"""The web server: it answers GET and HEAD of this machine's own addresses, and reads nothing but the summaries and the Data Docs."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ingest.observe import local_server
from ingest.observe.report import web_server
from ingest.observe.report.web_server import Answers, Server
from ingest.runtime.errors import InvalidEnvironment

pytestmark = pytest.mark.unit


class Lake:
    """What the server shows, and how often it was read."""

    def __init__(self, docs: Path) -> None:
        self.looks = self.pages = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.answers = Answers(self.look, self.page, json.dumps, {"/docs/shop/orders": docs})

    def look(self) -> int:
        if self.error is not None:
            raise self.error
        self.looks += 1
        self.gate.wait(30)
        return self.looks

    def page(self, found: int, nonce: str) -> str:
        self.pages += 1
        return f"<p>{found} {nonce}</p>"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.html").write_text("<h1>Data Docs</h1>")
    (tmp_path / "secret").write_text("secret")
    (docs / "link").symlink_to(tmp_path / "secret")
    return Lake(docs)


@pytest.fixture
def server(lake: Lake) -> Iterator[Server]:
    with Server("127.0.0.1", 0, lake.answers) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def asked(server: Server, method: str, path: str, host: str | None = None, body: str | None = None) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, body, {"Host": host or f"127.0.0.1:{server.server_port}"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def test_page_and_summary_are_answered_and_no_other_address(server: Server) -> None:
    response, text = asked(server, "GET", "/")
    assert (response.status, response.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    policy = response.getheader("Content-Security-Policy") or ""
    nonce = text.split()[1].removesuffix("</p>")
    assert len(nonce) > 20 and f"script-src 'nonce-{nonce}'" in policy and "default-src 'none'" in policy
    assert asked(server, "GET", "/")[1] != text, "another nonce each time"
    response, text = asked(server, "GET", "/summary.json?x=1")
    assert (response.status, json.loads(text), response.getheader("Content-Type")) == (200, 1, "application/json; charset=utf-8")
    assert asked(server, "GET", "/other")[0].status == 404


def test_a_browser_that_looks_for_an_icon_gets_no_error(server: Server) -> None:
    response, text = asked(server, "GET", "/favicon.ico")
    assert (response.status, text) == (204, "")


def test_head_has_no_body(server: Server) -> None:
    response, text = asked(server, "HEAD", "/")
    assert (response.status, text) == (200, "") and int(response.getheader("Content-Length") or 0) > 10


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_every_other_method_is_refused(server: Server, lake: Lake, method: str) -> None:
    response, _ = asked(server, method, "/", body="x" * 100)
    assert (response.status, response.getheader("Allow"), lake.looks) == (405, "GET, HEAD", 0)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "[", "", "999.1.1.1"]
)
def test_a_host_of_another_site_is_refused(server: Server, lake: Lake, host: str) -> None:
    """DNS rebinding: the browser asks this machine in the name of the other site."""
    assert not server.knows(host)
    if host:
        response, text = asked(server, "GET", "/summary.json", host)
        assert (response.status, lake.looks) == (421, 0) and "1" not in text


def test_a_request_without_a_host_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.0 421 ")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8080", "192.0.2.7:80", socket.gethostname()])
def test_an_address_and_the_machine_s_own_names_are_accepted(server: Server, host: str) -> None:
    assert server.knows(host)


def test_several_requests_at_once_read_the_lake_once(server: Server, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = [threading.Thread(target=asked, args=(server, "GET", "/summary.json")) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert lake.looks == 1
    monkeypatch.setattr(web_server, "FRESH_S", -1)
    asked(server, "GET", "/")
    assert lake.looks == 2


def test_a_page_is_drawn_once_for_all_who_ask_within_some_seconds(server: Server, lake: Lake) -> None:
    texts = {asked(server, "GET", path)[1] for path in ("/", "/", "/summary.json", "/")}
    assert len(texts) == 4 and (lake.looks, lake.pages) == (1, 1)


def raw(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=20)


def received(connection: socket.socket) -> bytes:
    """Everything up to the end; a connection that is cut off ends too."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


def test_more_requests_than_threads_are_told_to_come_back(server: Server, lake: Lake) -> None:
    lake.gate.clear()
    with ExitStack() as stack:
        waiting = [stack.enter_context(raw(server)) for _ in range(local_server.THREADS_MAX)]
        for each in waiting:
            each.sendall(b"GET /summary.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(
            lambda: (
                sum(thread.name.startswith("Thread-") and "process_request" in thread.name for thread in threading.enumerate())
                >= len(waiting)
            )
        )
        with raw(server) as one_more:
            assert received(one_more).startswith(b"HTTP/1.0 503 ")
        lake.gate.set()
        assert all(received(each).startswith(b"HTTP/1.0 200 ") for each in waiting)
    until(lambda: asked(server, "GET", "/")[0].status == 200)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_sends_its_request_byte_by_byte_holds_no_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "HEAD_WITHIN_S", 0.3)
    began = time.monotonic()
    with raw(server) as slow, suppress(ConnectionError):
        while time.monotonic() < began + 20:
            slow.sendall(b"G")
            slow.settimeout(0.05)
            with suppress(TimeoutError):
                assert slow.recv(1) == b""
                break
    assert time.monotonic() < began + 10


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (f"GET /docs/shop/orders/{'x' * 5_000} HTTP/1.1", 404),
        (f"GET /docs/shop/orders/{'x/' * 5_000} HTTP/1.1", 404),
        (f"GET /{'x' * 40_000} HTTP/1.1", 431),
        (f"GET / HTTP/1.1\r\nCookie: {'x' * 40_000}", 431),
        ("GET http://[ HTTP/1.1", 400),
        ("GET / HTTP/9.9", 505),
        ("nonsense", 400),
    ],
)
def test_a_strange_request_is_refused_and_prints_nothing(
    server: Server, capsys: pytest.CaptureFixture[str], request_line: str, status: int
) -> None:
    with raw(server) as connection:
        connection.sendall(f"{request_line}\r\nHost: localhost\r\n\r\n".encode())
        answer = received(connection)
    assert str(status).encode() in answer[:500] or (
        status == 431 and not answer
    )  # a connection may be cut off while the client still sends
    assert capsys.readouterr() == ("", "")


def test_a_failure_is_printed_and_the_next_request_tries_again(server: Server, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.error = RuntimeError("secret path")
    response, text = asked(server, "GET", "/")
    assert response.status == 500 and "secret" not in text
    assert "RuntimeError: secret path" in capsys.readouterr().err
    lake.error = None
    assert asked(server, "GET", "/")[0].status == 200


def test_only_files_of_the_data_docs_are_served(server: Server) -> None:
    response, text = asked(server, "GET", "/docs/shop/orders/index.html")
    assert (response.status, text) == (200, "<h1>Data Docs</h1>")
    assert "connect-src 'none'" in (response.getheader("Content-Security-Policy") or "")
    paths = ["../secret", "%2e%2e/secret", "..%2fsecret", "link", "", "/etc/passwd", "%00", "missing.html"]
    assert {asked(server, "GET", f"/docs/shop/orders/{path}")[0].status for path in paths} == {404}
    assert asked(server, "GET", "/docs/shop/other/index.html")[0].status == 404


def test_every_answer_forbids_caching_guessing_and_foreign_pages(server: Server) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/summary.json"),
        ("GET", "/nothing"),
        ("POST", "/"),
        ("GET", "/docs/shop/orders/index.html"),
    ):
        response, _ = asked(server, method, path)
        assert response.getheader("Cache-Control") == "no-store" and response.getheader("X-Content-Type-Options") == "nosniff"
        assert response.getheader("Cross-Origin-Resource-Policy") == "same-origin" and response.getheader("Content-Security-Policy")
        assert "Python" not in (response.getheader("Server") or "")


def test_a_port_in_use_is_an_error_with_a_remedy(server: Server, lake: Lake) -> None:
    with pytest.raises(InvalidEnvironment) as raised:
        Server("127.0.0.1", server.server_port, lake.answers)
    assert (raised.value.code, raised.value.exit_code) == ("UI_PORT", 4) and "--port 0" in raised.value.remedy


def test_the_default_address_is_loopback_and_the_url_is_the_page_s(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1" and server.url == f"http://127.0.0.1:{server.server_port}/"
