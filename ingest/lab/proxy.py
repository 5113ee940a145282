"""A TCP proxy before a Kafka broker that loses, delays and holds replies, for tests and for `ingest semantics`.

It reads the frames of Kafka's protocol, so that a fault can be aimed at one kind of request: "the reply to a Produce is lost after
the broker wrote". Brokers tell clients each other's addresses; the proxy puts its own in their place, so that a client that was
given `bootstrap_servers` never goes past it. Plaintext listeners only.
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
_REQUEST: Final = struct.Struct(">hhi")  # api key, api version, correlation id (KIP-482 left these in place)


class Api(IntEnum):
    """The kinds of request that faults are aimed at, by their number in Kafka's protocol."""

    PRODUCE = 0
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


class _What(Enum):
    CUT = "cut"
    DROP = "drop"
    HOLD = "hold"
    CUT_REQUEST = "cut request"
    KEEP_REQUEST = "keep request"


_OF_REQUESTS: Final = (_What.CUT_REQUEST, _What.KEEP_REQUEST)


@dataclass(eq=False)
class ProxyFault:
    """A fault that waits for its kind of request. `wait` until it has struck; a held reply goes on with `release`."""

    api: Api
    _what: _What
    _times: int
    _skip: int
    _delay_s: float | None = None
    struck: int = 0
    kept: bytes = b""
    _once: threading.Event = field(default_factory=threading.Event, repr=False)
    _released: threading.Event = field(default_factory=threading.Event, repr=False)

    def wait(self, timeout_s: float) -> None:
        """Until it has struck once; raises TimeoutError."""
        if not self._once.wait(timeout_s):
            raise TimeoutError(f"no {self.api.name} came through the proxy within {timeout_s} s")

    def release(self) -> None:
        """Let held and all later replies through."""
        self._times = 0
        self._released.set()


class Proxy:
    """Stands before the brokers at `upstream` (`host:port,…`); clients get its `bootstrap_servers`. A context manager."""

    def __init__(self, upstream: str) -> None:
        self._upstream = [_address(server) for server in upstream.split(",")]
        self._lock = threading.Lock()
        self._doors: dict[tuple[str, int], socket.socket] = {}
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._faults: list[ProxyFault] = []
        self._closed = self._refusing = False

    def __enter__(self) -> Proxy:
        for address in self._upstream:
            self._door(address)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for fault in self._faults:
                fault.release()
            open_now = [*self._doors.values(), *self._sockets]
        for each in open_now:
            _shut(each)
        for thread in self._threads:
            thread.join(_CONNECT_WITHIN_S)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        return ",".join(f"{HOST}:{self._door(address)}" for address in self._upstream)

    def cut_reply(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The broker has done what it was asked, and the connection breaks before its reply is through."""
        return self._aim(ProxyFault(api, _What.CUT, times, skip))

    def drop_reply(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The reply never comes; the connection stays, so the client waits out its own timeout."""
        return self._aim(ProxyFault(api, _What.DROP, times, skip))

    def hold_reply(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The reply waits until `release`; what comes after it on the same connection waits too."""
        return self._aim(ProxyFault(api, _What.HOLD, times, skip))

    def delay_reply(self, api: Api, delay_s: float, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The reply comes `delay_s` late, with all that follows it on the same connection."""
        return self._aim(ProxyFault(api, _What.HOLD, times, skip, delay_s))

    def cut_request(self, api: Api, *, times: int = 1, skip: int = 0) -> ProxyFault:
        """The connection breaks before the request reaches the broker."""
        return self._aim(ProxyFault(api, _What.CUT_REQUEST, times, skip))

    def keep_request(self, api: Api, *, skip: int = 0) -> ProxyFault:
        """The request gets stuck on its way, until `deliver`; the connection stays, so the client waits out its own timeout."""
        return self._aim(ProxyFault(api, _What.KEEP_REQUEST, 1, skip))

    def deliver(self, fault: ProxyFault) -> None:
        """A kept request reaches the first broker after all, by a way of its own; returns when that has answered."""
        fault.wait(_CONNECT_WITHIN_S)
        with socket.create_connection(self._upstream[0], _CONNECT_WITHIN_S) as broker:
            broker.sendall(_SIZE.pack(len(fault.kept)) + fault.kept)
            (size,) = _SIZE.unpack(_exactly(broker, _SIZE.size))
            _exactly(broker, size)

    def refuse(self) -> None:
        """The broker is gone: all connections break, new ones are closed at once, until `restore`."""
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

    def _struck(self, api: int, *, request: bool) -> ProxyFault | None:
        with self._lock:
            for fault in self._faults:
                if fault.api == api and fault._times > 0 and (fault._what in _OF_REQUESTS) == request:
                    if fault._skip > 0:
                        fault._skip -= 1
                        continue
                    fault._times -= 1
                    fault.struck += 1
                    fault._once.set()
                    return fault
        return None

    def _door(self, address: tuple[str, int]) -> int:
        """The port behind which the broker at `address` is; opened when first asked for."""
        with self._lock:
            door = self._doors.get(address)
            if door is None:
                door = self._doors[address] = socket.create_server((HOST, 0))
                self._start(self._accept, door, address)
            return int(door.getsockname()[1])

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="kafka-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, door: socket.socket, address: tuple[str, int]) -> None:
        while not self._closed:
            try:
                client, _ = door.accept()
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
        fault = self._struck(api, request=True)
        if fault is not None:
            if fault._what is _What.CUT_REQUEST:
                raise ConnectionAbortedError
            fault.kept = frame
            return None
        asked[correlation] = (api, version)
        return frame

    def _reply(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes | None:
        api, version = asked.pop(_SIZE.unpack_from(frame)[0])
        fault = self._struck(api, request=False)
        if fault is not None:
            if fault._what is _What.CUT:
                raise ConnectionAbortedError
            if fault._what is _What.DROP:
                return None
            fault._released.wait(fault._delay_s)
        return frame if api not in _WITH_ADDRESSES else self._readdressed(_WITH_ADDRESSES[api], version, frame)

    def _readdressed(self, kind: Any, version: int, frame: bytes) -> bytes:
        reply = kind.decode(frame, version=version, header=True)
        places = list(getattr(reply, "brokers", None) or getattr(reply, "coordinators", None) or [reply])
        for place in places:
            if place.host:  # empty where no coordinator was found
                place.host, place.port = HOST, self._door((place.host, place.port))
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
