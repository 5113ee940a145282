"""Who writes one table for a command: this process, if the table is fit for it, or a Spark session. Either holds the table's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ingest.contract.definition import Contract
from ingest.delta.direct_writer import DirectWriter
from ingest.delta.table_writer import SparkWriter, TableWriter
from ingest.run import table_lock
from ingest.run.writer_choice import refuse_direct
from ingest.run.writer_setting import Writer, writer_setting
from ingest.runtime import crash_points
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import is_local
from ingest.runtime.places import Places, spark_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def with_writer(
    contract: Contract,
    places: Places,
    master: str,
    verb: str,
    work: Callable[[TableWriter], T],
    *,
    only_look: bool = False,
    discreet: bool = False,
    any_contract: bool = False,
) -> T:
    """The result of `work`, which writes this table, while its lock is held. No JVM starts if the direct writer can write the table.

    Otherwise Spark writes, and with INGEST_WRITER=spark always. `work` is called again if the table is found unfit only then: like after a
    crash, it does what is left. `only_look` as in `writing_session`, `discreet` as in `spark.start`.
    With `any_contract` the table need not match its contract.

    Raises Refused LOCKED, InvalidInput WRITER_INVALID, InvalidEnvironment PLATFORM_UNFIT, and the errors of `work`.
    """
    if writer_setting() is not Writer.SPARK:
        try:
            refuse_direct(contract, places)
            writer = DirectWriter(None if any_contract else contract)
            if only_look:
                return work(writer)
            with table_lock.holding(None, places):
                crash_points.arm(Path(places.lake), None)
                done = work(writer)
                writer.finish()
                return done
        except InvalidInput as error:
            if error.code != "DIRECT_UNFIT":
                raise
    with writing_session(places, master, verb, only_look=only_look, discreet=discreet) as session:
        return work(SparkWriter(session))


@contextmanager
def writing_session(places: Places, master: str, verb: str, *, only_look: bool = False, discreet: bool = False) -> Iterator[SparkSession]:
    """Start Spark for a command that writes this table, and hold the lock inside this context.

    `only_look` is for a dry run: it needs no lock, so it works beside a run. `discreet` as in `spark.start`.

    Raises Refused LOCKED and InvalidEnvironment PLATFORM_UNFIT.
    """
    from ingest.run import platform
    from ingest.runtime import spark

    with spark.session(master, spark_log(places.lake, verb), short=True, discreet=discreet) as session:
        if only_look:
            yield session
            return
        platform.ensure(session, places.lake)
        with table_lock.holding(session, places):
            if is_local(places.lake) and is_local(places.checkpoints):
                crash_points.arm(Path(places.lake), spark.jvm_pid(session))
            yield session
