"""Reads a topic and makes one call to an external API per event. A record is acknowledged only after its call is settled.

with EffectConsumer(charge, "orders", "billing", "127.0.0.1:9092", event_id=order_id, request_of=charge_request) as consumer:
    consumer.run(stop=stopping.is_set)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kafka import TopicPartition
from kafka.errors import KafkaError

from ingest.delivery.effects.calls import Effects, Performed
from ingest.delivery.effects.effect_errors import option_wrong
from ingest.delivery.effects.effect_row import Position, State
from ingest.delivery.effects.effect_store import repeated
from ingest.delivery.kafka import AtLeastOnce, PoisonRecord
from ingest.delivery.kafka.buffer import Buffer
from ingest.delivery.kafka.member import Member, Rebalance
from ingest.delivery.sink.dead_letters import bury
from ingest.delivery.sink.record_id import checked
from ingest.kafka.connection import as_options
from ingest.kafka.kafka_options import KafkaOptions
from ingest.kafka.topic import describe

# Polls while calls are under way, so that a slow API does not remove this member from its group.
_KEEP_ALIVE_S: Final = 1.0
_COMMIT_WITHIN_S: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Effected:
    """Counts of a run, in records: new calls by their state, duplicates (settled before), dead letters, and records without a call."""

    success: int = 0
    failed: int = 0
    held: int = 0
    duplicates: int = 0
    dead: int = 0
    no_call: int = 0


@dataclass(frozen=True, slots=True)
class _Call:
    position: Position
    event_id: str
    request: bytes


Result: TypeAlias = Performed | str


class EffectConsumer(AbstractContextManager["EffectConsumer"]):
    """A member of the group `group_id`, which has begun (`begin_group`). A context manager; `run` in one thread.

    `event_id` gives a record's event id, `request_of` the bytes to send. Records for which `needed` returns False need no call.

    The calls of records with the same key are made in their order, those of other keys in up to `workers` threads (the engine needs as
    many connections). It takes up to `records` records, and takes more and commits their offsets when all of them are settled. A record
    without a usable event id or request goes to the table oncelake_dead_letter; without `dead_letter`, PoisonRecord ends the run.
    `instance` makes it a static member. `options` are kafka-python's.

    Raises InvalidInput EFFECT_OPTION, GuaranteeBroken, and the errors of Consumer and of ingest.kafka.topic.describe.
    """

    def __init__(
        self,
        effects: Effects,
        topics: str | Iterable[str],
        group_id: str,
        kafka: KafkaOptions | str,
        *,
        event_id: Callable[[Any], str | None],
        request_of: Callable[[Any], bytes],
        needed: Callable[[Any], bool] = lambda record: True,
        dead_letter: bool = True,
        workers: int = 8,
        records: int = 200,
        rebalance: Rebalance = "cooperative",
        instance: str | None = None,
        **options: Any,
    ) -> None:
        if workers < 1 or records < 1:
            raise option_wrong(f"{workers=}, {records=}.", "at least 1 of each.")
        connection, names = as_options(kafka), [topics] if isinstance(topics, str) else list(topics)
        made = AtLeastOnce().consumer_options(group_id, **options) | ({"group_instance_id": instance} if instance else {})
        self._effects, self._event_id, self._request_of, self._needed = effects, event_id, request_of, needed
        self._dead_letter, self._workers, self._records = dead_letter, workers, records
        self._results: dict[Position, Result] = {}
        self._lost: set[TopicPartition] = set()
        self._pending: dict[TopicPartition, int] = {}
        self.counts = Effected()
        self._topic_ids = {name: describe(connection, name).id for name in names}
        self._member = Member(connection, names, made, buffer=Buffer(), rebalance=rebalance, dropped=self._drop)

    def __exit__(self, *_: object) -> None:
        self._member.close()

    def run(self, *, stop: Callable[[], bool] = lambda: False, idle_s: float = float("inf")) -> Effected:
        """Run until `stop`, which is called from several threads, returns True, or until no record arrives for `idle_s`.

        On `stop`, calls under way end and are recorded; records that are not settled then are read again by the next run. Raises
        PoisonRecord and InvalidEnvironment DATABASE_UNREACHABLE; whatever was not recorded is settled by a later run. Raises RunStopped
        GROUP_POSITION_MISSING, GROUP_RECORDS_EXPIRED, GROUP_RECORDS_LOST or GROUP_TOPIC_RECREATED if the group cannot read on.
        """
        last_record_at = time.monotonic()
        with ThreadPoolExecutor(self._workers, thread_name_prefix=self._effects.name) as pool:
            try:
                while not stop() and time.monotonic() - last_record_at < idle_s:
                    if records := self._member.gather(self._records, 0.0, stop):
                        self._effects.on_step("gathered")
                        self._batch(pool, records, stop)
                        last_record_at = time.monotonic()
                    elif self._pending:
                        self._commit()
                    if self._member.waits:
                        last_record_at = time.monotonic()
            except BaseException:
                self._member.forget()  # else a second run would skip the records that this one has taken
                raise
            finally:
                self._commit()
        return self.counts

    def _batch(self, pool: ThreadPoolExecutor, records: list[Any], stop: Callable[[], bool]) -> None:
        """Steps: 1 make the calls' requests; 2 make the calls, by key; 3 commit the offsets up to the first record that is not settled."""
        self._lost.clear()
        self._results.clear()
        queues, poison = self._queues(records)
        ending = threading.Event()
        futures = [pool.submit(self._in_order, queue, lambda: stop() or ending.is_set()) for queue in queues]
        try:
            self._keep_alive(futures, ending)
        finally:
            ending.set()
            wait(futures)
            self._count()
            if not self._acknowledge(records):
                self._member.forget()
        if (error := next((error for each in futures if (error := each.exception())), poison)) is not None:
            raise error

    def _queues(self, records: list[Any]) -> tuple[Iterable[list[_Call]], PoisonRecord | None]:
        """The calls by key. A poison record, and all behind it in its partition, are left out if there is no dead letter."""
        queues: dict[Any, list[_Call]] = {}
        poison: PoisonRecord | None = None
        ended: set[TopicPartition] = set()
        for record in records:
            place, position = TopicPartition(record.topic, record.partition), Position(record.topic, record.partition, record.offset)
            event_id = None
            if place in ended:
                continue
            try:
                if not self._needed(record):
                    self._results[position] = "no_call"
                    continue
                event_id = self._event_id(record)
                call = _Call(position, checked(event_id), self._request_of(record))
                if not isinstance(call.request, bytes):
                    raise TypeError(f"request_of returned {type(call.request).__name__}; expected bytes")
            except Exception as error:
                if self._dead_letter:
                    self._bury(record, event_id, error)
                    self._results[position] = "dead"
                    continue
                poison = poison or PoisonRecord(*position, error, 1)
                ended.add(place)
                continue
            queues.setdefault((place, position.offset if record.key is None else record.key), []).append(call)
        return queues.values(), poison

    def _in_order(self, queue: list[_Call], stop: Callable[[], bool]) -> None:
        for call in queue:
            if stop() or TopicPartition(*call.position[:2]) in self._lost:
                return
            done = self._effects.perform(call.event_id, call.request, call.position, stop=stop)
            if done.state not in (State.SUCCESS, State.FAILED, State.HELD):
                return
            self._results[call.position] = done

    def _keep_alive(self, futures: Iterable[Future[None]], ending: threading.Event) -> None:
        under_way = set(futures)
        while under_way:
            done, under_way = wait(under_way, _KEEP_ALIVE_S, FIRST_EXCEPTION)
            if any(each.exception() for each in done):
                ending.set()
            if under_way and time.monotonic() - self._member.polled_at > _KEEP_ALIVE_S:
                self._member.poll(0)

    def _count(self) -> None:
        for result in self._results.values():
            name = result if isinstance(result, str) else "duplicates" if result.again else result.state.lower()
            setattr(self.counts, name, getattr(self.counts, name) + 1)

    def _acknowledge(self, records: list[Any]) -> bool:
        """Commit each partition's offset up to its first record that is not settled; True if all are settled."""
        stuck: set[TopicPartition] = set()
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            if Position(record.topic, record.partition, record.offset) not in self._results:
                stuck.add(place)
            if place not in stuck and place not in self._lost:
                self._pending[place] = record.offset + 1
        self._commit()
        return not stuck - self._lost

    def _commit(self) -> None:
        """Commit what is pending. It is refused during a rebalance, so try again until it succeeds or the partitions are gone."""
        deadline = time.monotonic() + _COMMIT_WITHIN_S
        while self._pending:
            try:
                self._member.commit(self._pending)
                self._pending.clear()
                self._effects.on_step("acknowledged")
            except KafkaError as error:
                _log.info("offsets were not committed: %r", error)
                if time.monotonic() > deadline:
                    return
                self._member.poll(0.1)

    def _drop(self, gone: set[TopicPartition], finished: bool) -> None:
        self._lost |= gone
        for place in gone:
            self._pending.pop(place, None)

    def _bury(self, record: Any, event_id: object, error: Exception) -> None:
        name, topic_id = self._effects.name, self._topic_ids[record.topic]
        repeated(self._effects.engine, lambda connection: bury(connection, name, topic_id, [(record, event_id, error)]))
