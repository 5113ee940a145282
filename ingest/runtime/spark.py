"""The Spark session: pinned jars as files, pinned semantics, and Spark's own output in a file.

The semantics are pinned because they decide the contents of rows (I9). The time zone is UTC. ANSI mode is off, so that a row rule
evaluates to NULL instead of failing the batch on every attempt. Names are case-insensitive, as in Delta Lake.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ingest.runtime import databricks, jars, java, jvm_folder
from ingest.runtime.errors import InvalidEnvironment
from ingest.runtime.files import PRIVATE
from ingest.runtime.output import err_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PINNED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "false",
    # Spark would replace `${env:…}` in a statement, and so publish a password through a contract's comment.
    "spark.sql.variable.substitute": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A Python worker gets ten thousand records at once, or fewer large ones. Spark's own limit is 64 or 256 MB, depending on the version.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),
    # Spark's default pattern misses the options in which Kafka clients keep their secrets.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
    # A batch has about ninety pieces of generated code, and the next batch reuses them. Spark keeps a hundred by default. With two tables
    # in turn, none would stay in the cache, and Spark would compile each batch again.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # PySpark records the source line of each column with six calls into the JVM, and a batch creates some hundred columns.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The checkpoint must contain a batch's end offsets before the batch is written.
    "spark.sql.streaming.asyncProgressTrackingEnabled": "false",
}

# Settings that cannot be set on a session that the platform has started. The first two are the platform's own (another Delta, another
# catalog). Spark refuses to set the last two on a running session, so they belong in the cluster's configuration.
FIXED_AT_START = frozenset(
    {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.redaction.regex", "spark.sql.codegen.cache.maxEntries"}
)

# Java's second compiler takes two fifths of a short run's CPU time, for code that only pays off in a long run.
ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"

# By then the JVM has only shutdown hooks left to run, which remove its files.
JVM_ENDS_WITHIN_S = 5.0

# A continuous run's output is one file, of which log4j keeps the newest parts. Files of former commands go at the next start of Spark: the
# message of an error may quote a value, so they must not stay for longer than Delta's own log.
LOG_BYTES, LOG_PARTS = 20_000_000, 4
# What `places.spark_log` names, with log4j's settings and older parts.
_OURS = re.compile(r"spark-(\w+-\d\w*|doctor)\.log")
LOG_FILES_KEPT, LOG_KEPT_S = 200, 30 * 86_400

LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {pattern}.%i
appender.file.filePermissions = rw-------
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {bytes}
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {parts}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
# One line per task and a screenful per generated class: useless to someone who reads this file after a failure.
logger.codegen.name = org.apache.spark.sql.catalyst.expressions.codegen
logger.codegen.level = warn
logger.scheduler.name = org.apache.spark.scheduler
logger.scheduler.level = warn
logger.executor.name = org.apache.spark.executor
logger.executor.level = warn
logger.storage.name = org.apache.spark.storage
logger.storage.level = warn
# No erasure reaches this file, so what quotes values is left out: the filters of each read (event ids, the conditions of an erasure), and
# the statistics of each snapshot (the least and greatest event id of its files).
logger.filters.name = org.apache.spark.sql.execution.datasources.FileSourceStrategy
logger.filters.level = warn
logger.parquet.name = org.apache.parquet.filter2.compat.FilterCompat
logger.parquet.level = warn
logger.delta.name = org.apache.spark.sql.delta.DeltaLog
logger.delta.level = warn
logger.snapshot.name = org.apache.spark.sql.delta.Snapshot
logger.snapshot.level = warn
# Two thousand warnings a second (120 MB in three minutes) while a batch waits for a deleted topic.
logger.fetch.name = org.apache.kafka.clients.consumer.internals.FetchCollector
logger.fetch.level = error
"""


def start(
    master: str, log: Path, *, name: str = "ingest", memory: str | None = None, short: bool = False, discreet: bool = False
) -> SparkSession:
    """Start the Spark session, or use the platform's; Spark's output goes to the file `log`.

    `short` is for less than a minute's work: it adds ONE_COMPILER unless the caller's own options set a compiler level. `memory` is the
    heap of the driver's JVM (default: INGEST_DRIVER_MEMORY or 2g). `discreet` keeps conditions out of the log: Spark notes the filters of
    each read. INGEST_DRIVER_JAVA_OPTIONS adds JVM options. On Databricks the
    function uses the platform's session with the settings of `settable` and ignores its parameters. Raises InvalidEnvironment if Java or
    the jars are missing, Spark does not start, or the platform's session is unsuitable; and as jvm_folder.refuse_unfit.
    """
    if (platform := databricks.runtime()) is not None:
        return _take(platform, master)
    os.environ["JAVA_HOME"] = str(java.find().home)
    jvm_folder.refuse_unfit(log.parent)
    files = jars.ensure(jars.JarSet.SPARK)
    # Py4J logs a traceback of every exception and also raises it. We report each exception once ourselves.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    log.parent.mkdir(parents=True, exist_ok=True)
    _remove_old_logs(log.parent)
    # The interpreter that runs this command also runs Spark's Python workers.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    scratch = jvm_folder.make(log.parent)
    properties = log.with_suffix(".log4j2.properties")
    path = str(log.resolve())
    file, pattern = java.property_value(path), java.property_value(path.replace("%", "%%"))
    about = LOG4J.format(log=file, pattern=pattern, bytes=LOG_BYTES, parts=LOG_PARTS, level="warn" if discreet else "info")
    properties.write_text(about, encoding="utf-8")
    # -Xss4m: the JVM parses a Python exception from foreachBatch with a recursive regex, which needs a deep stack.
    options = f"-Xss4m -Dlog4j2.configurationFile={properties.resolve().as_uri()}"
    options += f" {java.option(f'-Dderby.system.home={log.parent.resolve()}')} {java.option(f'-Djava.io.tmpdir={scratch}')}"
    own = os.environ.get("INGEST_DRIVER_JAVA_OPTIONS", "")
    # A batch is short work with much garbage, so throughput matters more than short pauses.
    chosen = " ".join((own, os.environ.get("JAVA_TOOL_OPTIONS", ""), os.environ.get("JDK_JAVA_OPTIONS", "")))
    collector = "" if re.search(r"-XX:\+Use\w+GC\b", chosen) else "-XX:+UseParallelGC"
    compiler = ONE_COMPILER if short and "TieredStopAtLevel" not in chosen else ""
    options = " ".join(filter(None, (options, collector, compiler, own)))
    builder = SparkSession.builder.appName(name).master(master)
    builder = builder.config("spark.jars", ",".join(str(path) for path in files))
    builder = builder.config("spark.driver.memory", memory or os.environ.get("INGEST_DRIVER_MEMORY", "2g"))
    builder = builder.config("spark.driver.extraJavaOptions", options)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(log.parent.resolve() / "warehouse"))
    # The state of our Delta logs is small; Delta's default of 50 tasks costs more than it saves.
    builder = builder.config("spark.databricks.delta.snapshotPartitions", "2")
    # Spark formats every plan for UI pages that nobody opens; the short form saves a twentieth of a small batch's time.
    builder = builder.config("spark.sql.ui.explainMode", "simple")
    if master.startswith("local"):
        builder = builder.config("spark.sql.shuffle.partitions", str(local_cores(master)))
        # One record may need more than the heap. Spark would end the JVM, and with it the run, at every attempt; so it ends the task only.
        builder = builder.config("spark.executor.killOnFatalError.depth", "0")
    if master.startswith(("local", "spark://127.0.0.1:")):
        # On a cluster of this machine alone, executors reach the driver at the loopback address.
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for key, value in PINNED.items():
        builder = builder.config(key, value)
    with _output_to(log), _killed_if_interrupted(scratch), _jvm_ignores_sigterm():
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
    # If the JVM is killed, the connection on which its Python workers report breaks. We report the outcome of the run once ourselves.
    accumulators: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if accumulators is not None:
        accumulators.handle_error = lambda *_: None
    return session


def _remove_old_logs(folder: Path) -> None:
    """Delete Spark's output of former commands: files not written for LOG_KEPT_S seconds, and all but the newest LOG_FILES_KEPT.

    A run writes to its file every few seconds, even if no records come.
    """
    files = []
    for path in (each for each in folder.glob("spark-*.log*") if _OURS.match(each.name)):  # Spark's own shells write beside them
        with suppress(OSError):  # another command may delete it too
            files.append((path.stat().st_mtime, path))
    for number, (written, path) in enumerate(sorted(files, reverse=True)):
        if number >= LOG_FILES_KEPT or written < time.time() - LOG_KEPT_S:
            with suppress(OSError):
                path.unlink()


def end(session: SparkSession) -> None:
    """Stop a session that `start` returned. On Databricks the session stays open; the platform ends it after the task."""
    if databricks.runtime() is None:
        session.stop()


@contextmanager
def session(master: str, log: Path, *, short: bool = False, discreet: bool = False) -> Iterator[SparkSession]:
    """A session for the enclosed block. Raises as `start`."""
    started = start(master, log, short=short, discreet=discreet)
    try:
        yield started
    finally:
        end(started)


def another(session: SparkSession) -> SparkSession:
    """A session with settings of its own, beside one that `start` returned. Raises InvalidEnvironment SETTING_REFUSED."""
    new = session.newSession()
    if (platform := databricks.runtime()) is not None:  # it has the cluster's settings, not those of `session`
        _pin(new, platform)
    return new


def settable() -> dict[str, str]:
    """The PINNED settings that can be set on a session that the platform has started."""
    return {key: value for key, value in PINNED.items() if key not in FIXED_AT_START}


def _take(platform: str, master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    err_line(f"ingest: using the Spark of Databricks Runtime {platform}; --master {master} is ignored.")
    session = SparkSession.builder.getOrCreate()
    if not hasattr(session, "_jvm"):  # Spark Connect, which serverless and the standard access mode provide
        raise InvalidEnvironment(
            "SPARK_CONNECT",
            "the session is a Spark Connect session, which gives no access to a JVM.",
            expected="a classic session: the engine reads locks, logs and conflicts through the driver's JVM.",
            remedy="run on a job cluster in dedicated access mode (data_security_mode: SINGLE_USER).",
        )
    _pin(session, platform)
    return session


def _pin(session: SparkSession, platform: str) -> None:
    """Set the settings of `settable` on a session of the platform. Raises InvalidEnvironment SETTING_REFUSED."""
    for key, value in settable().items():
        if session.conf.get(key, None) == value:
            continue
        try:
            session.conf.set(key, value)
        except Exception as error:
            raise InvalidEnvironment(
                "SETTING_REFUSED",
                f"Databricks Runtime {platform} does not let a session set {key}: {error}",
                expected=f"{key}={value}, because it decides the contents of rows (I9).",
                remedy="set that value in the cluster's spark_conf (databricks.yml).",
            ) from error


def local_cores(master: str) -> int:
    """The number of tasks that a local master runs at once: `local[4]` → 4, `local[*]` → the machine's cores."""
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1


def jvm_pid(session: SparkSession) -> int:
    """The process id of the driver's JVM."""
    return int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def jvm_exit(session: SparkSession, wait_s: float = 0) -> int | None:
    """The exit code of the driver's JVM (negative: the signal that killed it). None if it still runs after `wait_s` or is not ours."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


@contextmanager
def _killed_if_interrupted(scratch: Path) -> Iterator[None]:
    """If the start is interrupted (Ctrl-C, a signal), kill the processes it launched: a starting JVM would notice seconds later."""
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
def _jvm_ignores_sigterm() -> Iterator[None]:
    """Make the launched JVM ignore SIGTERM, as PySpark makes it ignore Ctrl-C.

    Supervisors (systemd, timeout) signal every process of a service, but the current batch needs its JVM. The JVM ends with its Python.
    """
    import pyspark.java_gateway

    launcher: Any = pyspark.java_gateway
    popen = launcher.Popen

    def launch(*arguments: Any, preexec_fn: Callable[[], object] | None = None, **named: Any) -> Any:
        def ignore_sigterm() -> None:
            if preexec_fn is not None:
                preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        return popen(*arguments, preexec_fn=ignore_sigterm, **named)

    launcher.Popen = launch
    try:
        yield
    finally:
        launcher.Popen = popen


def _end_jvm(session: SparkSession, scratch: Path) -> None:
    """Let the JVM end and clean up before Python exits. A JVM that takes too long is left alone, with its folder."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    with suppress(Exception):  # the JVM may be gone; after a failed command the session is still open
        session.stop()
    if process is not None and process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
        if jvm_exit(session, JVM_ENDS_WITHIN_S) is None:
            return
    jvm_folder.remove(scratch)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send the JVM's output to `log` instead of the terminal. The JVM inherits our stdout and stderr at its launch."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)  # errors quote values
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
