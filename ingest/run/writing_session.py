"""A Spark session that may write one table: the platform is fit, and the session's JVM holds the table's lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from ingest.run import platform, table_lock
from ingest.runtime import crash_points, spark
from ingest.runtime.files import is_local
from ingest.runtime.places import Places, spark_log


@contextmanager
def writing_session(places: Places, master: str, verb: str, *, only_look: bool = False, discreet: bool = False) -> Iterator[SparkSession]:
    """Start Spark for a command that writes this table, and hold the lock inside this context.

    `only_look` is for a dry run: it needs no lock, so it works beside a run. `discreet` as in `spark.start`.

    Raises Refused LOCKED and InvalidEnvironment PLATFORM_UNFIT.
    """
    with spark.session(master, spark_log(places.lake, verb), short=True, discreet=discreet) as session:
        if only_look:
            yield session
            return
        platform.ensure(session, places.lake)
        with table_lock.holding(session, places):
            if is_local(places.lake) and is_local(places.checkpoints):
                crash_points.arm(Path(places.lake), spark.jvm_pid(session))
            yield session
