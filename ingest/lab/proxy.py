"""A TCP proxy in front of Kafka brokers that loses, delays and holds requests and replies, for tests and for `ingest semantics`.

It parses the frames of Kafka's protocol, so a fault can target one kind of request: "the reply to a Produce is lost after the
broker wrote". Brokers send each other's addresses to clients. The proxy replaces them with its own, so a client that connects to
`bootstrap_servers` never bypasses it. Plaintext listeners only.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final

from kafka.protocol.admin import DescribeClusterResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from ingest.lab.broker.broker_config import HOST

_CONNECT_WITHIN_S: Final = 5.0
_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhi")  # api key, api version, correlation id (unchanged by KIP-482)


class Api(IntEnum):
    """The requests that faults can target, with their API keys in Kafka's protocol."""

    PRODUCE = 0
    FETCH = 1
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    SYNC_GROUP = 14
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CLUSTER = 60


_WITH_ADDRESSES: Final[dict[int, Any]] = {
    Api.METADATA: MetadataResponse,
    Api.FIND_COORDINATOR: FindCoordinatorResponse,
    Api.DESCRIBE_CLUSTER: DescribeClusterResponse,
}


class _Effect(Enum):
    CUT = "cut"
    DROP = "drop"
    HOLD = "hold"
    CUT_REQUEST = "cut request"
    KEEP_REQUEST = "keep request"


_OF_REQUESTS: Final = (_Effect.CUT_REQUEST, _Effect.KEEP_REQUEST)


@dataclass(eq=False)
class ProxyFault:
    """A fault that waits for its kind of request. `wait` returns once it has been injected; `release` lets a held reply through."""

    api: Api
    _effect: _Effect
    _times: int
    _skip: int
    _delay_s: float | None = None
    struck: int = 0
    kept: bytes = b""
    _injected: threading.Event = field(default_factory=threading.Event, repr=False)
    _released: threading.Event = field(default_factory=threading.Event, repr=False)

    def wait(self, timeout_s: float) -> None:
        """Wait until the fault has been injected once; raises TimeoutError."""
        if not self._injected.wait(timeout_s):
            raise TimeoutError(f"no {self.api.name} came through the proxy within {timeout_s} s")

    def release(self) -> None:
        """Let the held reply and all later ones through."""
        self._times = 0
        self._released.set()


class Proxy:
    """Proxies the brokers at `upstream` (`host:port,…`); clients connect to `bootstrap_servers`. A context manager."""

    def __init__(self, upstream: str) -> None:
        self._upstream = [_address(server) for server in upstream.split(",")]
        self._lock = threading.Lock()
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._faults: list[ProxyFault] = []
        self._closed = self._refusing = False

    def __enter__(self) -> Proxy:
        for address in self._upstream:
            self._port_for(address)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for fault in self._faults:
                fault.release()
            open_now = [*self._listeners.values(), *self._sockets]
        for each in open_now:
            _shut(each)
        for thread in self._threads:
            thread.join(_CONNECT_WITHIN_S)

    @property
    def bootstrap_servers(self) -> str:
        """The proxy's own addresses, for clients."""
        return ",".join(f"{HOST}:{self._port_for(address)}" for address in self._upstream)

    def cut_reply(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The broker handles the request, but the connection breaks before the client gets the reply."""
        return self._aim(ProxyFault(api, _Effect.CUT, times, skip))

    def drop_reply(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The client never gets the reply. The connection stays open, so the client waits for its own timeout."""
        return self._aim(ProxyFault(api, _Effect.DROP, times, skip))

    def hold_reply(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """Hold the reply, and all later ones on the same connection, until `release`."""
        return self._aim(ProxyFault(api, _Effect.HOLD, times, skip))

    def delay_reply(self, api: Api, delay_s: float, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """Delay the reply, and all later ones on the same connection, by `delay_s` seconds."""
        return self._aim(ProxyFault(api, _Effect.HOLD, times, skip, delay_s))

    def cut_request(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The connection breaks before the request reaches the broker."""
        return self._aim(ProxyFault(api, _Effect.CUT_REQUEST, times, skip))

    def keep_request(self, api: Api, *, skip: int = 0) -> ProxyFault:
        """Keep the request back until `deliver`. The connection stays open, so the client waits for its own timeout."""
        return self._aim(ProxyFault(api, _Effect.KEEP_REQUEST, 1, skip))

    def deliver(self, fault: ProxyFault) -> None:
        """Send a kept request to the first broker over a new connection; returns when the broker has answered."""
        fault.wait(_CONNECT_WITHIN_S)
        with socket.create_connection(self._upstream[0], _CONNECT_WITHIN_S) as broker:
            broker.sendall(_SIZE.pack(len(fault.kept)) + fault.kept)
            (size,) = _SIZE.unpack(_exactly(broker, _SIZE.size))
            _exactly(broker, size)

    def refuse(self) -> None:
        """Simulate a dead broker: break all connections and close new ones at once, until `restore`."""
        with self._lock:
            self._refusing = True
            open_now = list(self._sockets)
        for each in open_now:
            _shut(each)

    def restore(self) -> None:
        """Undo `refuse`."""
        self._refusing = False

    def _aim(self, fault: ProxyFault) -> ProxyFault:
        with self._lock:
            self._faults.append(fault)
        return fault

    def _triggered(self, api: int, *, request: bool) -> ProxyFault | None:
        with self._lock:
            for fault in self._faults:
                if fault.api == api and fault._times > 0 and (fault._effect in _OF_REQUESTS) == request:
                    if fault._skip > 0:
                        fault._skip -= 1
                        continue
                    fault._times -= 1
                    fault.struck += 1
                    fault._injected.set()
                    return fault
        return None

    def _port_for(self, address: tuple[str, int]) -> int:
        """The proxy's port for the broker at `address`; opened on first use."""
        with self._lock:
            listener = self._listeners.get(address)
            if listener is None:
                listener = self._listeners[address] = socket.create_server((HOST, 0))
                self._start(self._accept, listener, address)
            return int(listener.getsockname()[1])

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="kafka-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, address: tuple[str, int]) -> None:
        while not self._closed:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self._refusing:
                _shut(client)
                continue
            try:
                broker = socket.create_connection(address, _CONNECT_WITHIN_S)
            except OSError:
                _shut(client)
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            asked: dict[int, tuple[int, int]] = {}
            self._start(self._pump, client, broker, lambda frame, asked=asked: self._request(frame, asked))
            self._start(self._pump, broker, client, lambda frame, asked=asked: self._reply(frame, asked))

    def _pump(self, source: socket.socket, sink: socket.socket, passed: Callable[[bytes], bytes | None]) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(_exactly(source, _SIZE.size))
                frame = passed(_exactly(source, size))
                if frame is not None:
                    sink.sendall(_SIZE.pack(len(frame)) + frame)
        except OSError:  # the connection ended, by itself or by a fault
            pass
        finally:
            for each in (source, sink):
                _shut(each)
            with self._lock:
                self._sockets -= {source, sink}

    def _request(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes | None:
        api, version, correlation = _REQUEST.unpack_from(frame)
        fault = self._triggered(api, request=True)
        if fault is not None:
            if fault._effect is _Effect.CUT_REQUEST:
                raise ConnectionAbortedError
            fault.kept = frame
            return None
        asked[correlation] = (api, version)
        return frame

    def _reply(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes | None:
        api, version = asked.pop(_SIZE.unpack_from(frame)[0])
        fault = self._triggered(api, request=False)
        if fault is not None:
            if fault._effect is _Effect.CUT:
                raise ConnectionAbortedError
            if fault._effect is _Effect.DROP:
                return None
            fault._released.wait(fault._delay_s)
        return frame if api not in _WITH_ADDRESSES else self._with_own_addresses(_WITH_ADDRESSES[api], version, frame)

    def _with_own_addresses(self, kind: Any, version: int, frame: bytes) -> bytes:
        reply = kind.decode(frame, version=version, header=True)
        nodes = list(getattr(reply, "brokers", None) or getattr(reply, "coordinators", None) or [reply])
        for node in nodes:
            if node.host:  # empty if no coordinator was found
                node.host, node.port = HOST, self._port_for((node.host, node.port))
        return bytes(reply.encode(header=True))


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    return host, int(port)


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionResetError
        parts += part
    return bytes(parts)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
