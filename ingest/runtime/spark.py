"""The Spark session: pinned jars as files, pinned semantics, and Spark's own output in a file.

Pinned because they decide what a row becomes (I9): the time zone is UTC; ANSI mode is off, so that a row rule evaluates to
NULL instead of ending the batch for good; names are compared without case, as Delta Lake does.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ingest.runtime import class_archive, databricks, jars, java, jvm_folder
from ingest.runtime.errors import InvalidEnvironment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PINNED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # What goes to a Python worker at once: ten thousand records, or fewer large ones. Spark's own bound is 64 or 256 MB, by its version.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    # Spark's own pattern does not know where Kafka's clients keep theirs.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
    # A batch has about ninety pieces of generated code, the same in the next one. Of a hundred that Spark keeps with two tables in turn
    # none would be left: each batch would be compiled anew.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # PySpark's note of the line that made each column: six calls into the JVM for each, and a batch makes some hundred columns.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Where a batch ends has to stand in its checkpoint before it is written.
    "spark.sql.streaming.asyncProgressTrackingEnabled": "false",
}

# What a session that the platform has started has from the platform (another Delta, another catalog), or cannot take any more:
# Spark refuses to set them while it runs, so the last two belong into the cluster's own configuration.
FIXED_AT_START = frozenset(
    {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.redaction.regex", "spark.sql.codegen.cache.maxEntries"}
)

# Java's second compiler takes two fifths of a short run's processor time, for code that pays in a long one.
ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# It has only hooks to run by then: those remove its files.
JVM_ENDS_WITHIN_S = 5.0

LOG4J = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
# One line a task and a screen a generated class: of use to nobody who reads this file after an accident.
logger.codegen.name = org.apache.spark.sql.catalyst.expressions.codegen
logger.codegen.level = warn
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = warn
logger.executor.name = org.apache.spark.executor
logger.executor.level = warn
logger.storage.name = org.apache.spark.storage
logger.storage.level = warn
# Two thousand warnings a second while a batch waits for a topic that was deleted (120 MB in three minutes).
logger.fetch.name = org.apache.kafka.clients.consumer.internals.FetchCollector
logger.fetch.level = error
"""


def start(master: str, log: Path, *, name: str = "ingest", memory: str | None = None, short: bool = False) -> SparkSession:
    """Start (or take) the Spark session; its output goes to the file `log`.

    `short`: for less than a minute's work, with ONE_COMPILER unless the caller's own options name a level. `memory` is the heap of the
    driver's JVM (default: INGEST_DRIVER_MEMORY or 2g); INGEST_DRIVER_JAVA_OPTIONS adds options of the JVM. On Databricks the platform's
    session is taken as it is, with the settings of `settable`: none of these parameters counts there. Raises InvalidEnvironment where
    Java or the jars are missing, or the platform's session does not do.
    """
    if (platform := databricks.runtime()) is not None:
        return _take(platform, master)
    os.environ["JAVA_HOME"] = str(java.find().home)
    files = jars.ensure(jars.JarSet.SPARK)
    # Py4J logs a traceback for every exception that passes it, and raises too; what is raised is said once, by us.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    log.parent.mkdir(parents=True, exist_ok=True)
    # The interpreter that runs this command also runs Spark's Python workers.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    scratch = jvm_folder.make(log.parent)
    properties = log.with_suffix(".log4j2.properties")
    properties.write_text(LOG4J.format(log=log.resolve()), encoding="utf-8")
    # -Xss4m: a Python exception inside foreachBatch meets a recursive regex in the JVM.
    options = f"-Xss4m -Dlog4j2.configurationFile={properties.resolve().as_uri()} -Dderby.system.home={log.parent.resolve()}"
    # In quotes: a folder's name may hold a blank.
    options += f' "-Djava.io.tmpdir={scratch}"'
    own = os.environ.get("INGEST_DRIVER_JAVA_OPTIONS", "")
    # A batch is short work and much garbage: what counts is how much is done, not how short a pause is.
    said = " ".join((own, os.environ.get("JAVA_TOOL_OPTIONS", ""), os.environ.get("JDK_JAVA_OPTIONS", "")))
    collector = "" if re.search(r"-XX:\+Use\w+GC\b", said) else "-XX:+UseParallelGC"
    compiler = ONE_COMPILER if short and "TieredStopAtLevel" not in said else ""
    options = " ".join(filter(None, (options, collector, compiler, "" if "Archive" in own else class_archive.option(), own)))
    builder = SparkSession.builder.appName(name).master(master)
    builder = builder.config("spark.jars", ",".join(str(path) for path in files))
    builder = builder.config("spark.driver.memory", memory or os.environ.get("INGEST_DRIVER_MEMORY", "2g"))
    builder = builder.config("spark.driver.extraJavaOptions", options)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(log.parent.resolve() / "warehouse"))
    # The state of a Delta log of ours is small; its default of 50 tasks costs more than it saves.
    builder = builder.config("spark.databricks.delta.snapshotPartitions", "2")
    # Spark writes every plan out for pages that nobody has open; the short form takes a twentieth off a small batch.
    builder = builder.config("spark.sql.ui.explainMode", "simple")
    if master.startswith("local"):
        builder = builder.config("spark.sql.shuffle.partitions", str(local_cores(master)))
    if master.startswith(("local", "spark://127.0.0.1:")):
        # On a cluster of this machine alone executors find the driver where they are themselves.
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in PINNED.items():
        builder = builder.config(key, value)
    with _output_to(log), _none_left_behind(scratch), _deaf_to_sigterm():
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise InvalidEnvironment(
                "SPARK_NOT_STARTED",
                f"Spark did not start on master {master}: {type(error).__name__}.",
                expected="a Spark session.",
                remedy=f"read {log}; `ingest doctor` checks what Spark needs.",
            ) from error
    atexit.register(_end_jvm, session, scratch)
    # A JVM that is killed breaks the connection on which its Python workers report; what became of the run is said once, by us.
    accumulators: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = lambda *_: None
    return session


def end(session: SparkSession) -> None:
    """Stop a session that `start` gave; that of Databricks goes on, since the platform ends it after the task."""
    if databricks.runtime() is None:
        session.stop()


@contextmanager
def session(master: str, log: Path, *, short: bool = False) -> Iterator[SparkSession]:
    """A session for what is done inside. Raises as `start`."""
    started = start(master, log, short=short)
    try:
        yield started
    finally:
        end(started)


def settable() -> dict[str, str]:
    """Those of PINNED that are set on a session which somebody else has started."""
    return {key: value for key, value in PINNED.items() if key not in FIXED_AT_START}


def _take(platform: str, master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    print(f"ingest: on Databricks Runtime {platform} its own Spark is taken; --master {master} does not count.", file=sys.stderr)
    session = SparkSession.builder.getOrCreate()
    if not hasattr(session, "_jvm"):  # Spark Connect, which serverless and the standard access mode give
        raise InvalidEnvironment(
            "SPARK_CONNECT",
            "the session is one of Spark Connect, without a JVM at hand.",
            expected="a classic session: locks, logs and conflicts are seen through the driver's JVM.",
            remedy="run on a job cluster in dedicated access mode (data_security_mode: SINGLE_USER).",
        )
    for key, value in settable().items():
        if session.conf.get(key, None) == value:
            continue
        try:
            session.conf.set(key, value)
        except Exception as error:
            raise InvalidEnvironment(
                "SETTING_REFUSED",
                f"Databricks Runtime {platform} does not let a session set {key}: {error}",
                expected=f"{key}={value}, since it decides what a row becomes (I9).",
                remedy="give the cluster that value in its spark_conf (databricks.yml).",
            ) from error
    return session


def local_cores(master: str) -> int:
    """How many tasks a local master runs at once: `local[4]` → 4, `local[*]` → the machine's cores."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1


def jvm_pid(session: SparkSession) -> int:
    """The process id of the driver's JVM."""
    return int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def jvm_exit(session: SparkSession, wait_s: float = 0) -> int | None:
    """The exit code of the driver's JVM (negative: the signal that killed it), or None if it still runs after `wait_s` or is not ours."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _none_left_behind(scratch: Path) -> Iterator[None]:
    """A start that is broken off (Ctrl-C, a signal) kills what it has launched: a JVM that is only coming up notices seconds later."""
    before = set(psutil.Process().children())
    try:
        yield
    except Exception:
        jvm_folder.remove(scratch)
        raise
    except BaseException:
        launched = [child for child in psutil.Process().children(recursive=True) if child not in before]
        for child in launched:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(launched, timeout=5)
        jvm_folder.remove(scratch)
        raise


@contextmanager
def _deaf_to_sigterm() -> Iterator[None]:
    """Let the JVM that is launched ignore SIGTERM, as PySpark lets it ignore Ctrl-C.

    Supervisors (systemd, timeout) send it to every process of a service, and the batch at hand needs its JVM. That ends with its Python.
    """
    import pyspark.java_gateway

    launcher: Any = pyspark.java_gateway
    popen = launcher.Popen

    def deaf(*arguments: Any, preexec_fn: Callable[[], object] | None = None, **named: Any) -> Any:
        def before() -> None:
            if preexec_fn is not None:
                preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return popen(*arguments, preexec_fn=before, **named)

    launcher.Popen = deaf
    try:
        yield
    finally:
        launcher.Popen = popen


def _end_jvm(session: SparkSession, scratch: Path) -> None:
    """Let the JVM end and tidy up as Python does; it would a moment later anyway. One that takes longer is left to itself."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    with suppress(Exception):  # a JVM that is gone; where a command has failed it was not stopped yet
        session.stop()
    if process is not None and process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
        if jvm_exit(session, JVM_ENDS_WITHIN_S) is None:
            return
    jvm_folder.remove(scratch)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Let the JVM, which inherits our stdout and stderr when it is launched, write to `log` instead of the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, file):
            os.close(descriptor)
