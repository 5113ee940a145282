"""Checks of the environment that an ingestion needs. Each check reports what it found, and how to fix it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ingest.runtime import databricks, jars, java, jvm_folder
from ingest.runtime.errors import IngestError, InvalidEnvironment, most_severe
from ingest.runtime.files import is_local, local_path
from ingest.runtime.places import Places, log_folder

# For Spark's shuffle files, the broker's indexes and a few batches. With less free space a run can fail halfway.
DISK_FREE_BYTES_MIN = 2 * 1024**3
_BROKER_DEADLINE_S = 5.0


@dataclass(frozen=True)
class EnvironmentCheck:
    """One line of `ingest doctor`. `detail` is what was found; `error`, if it is not None, says what is wrong and how to fix it."""

    check: str
    detail: str
    error: IngestError | None = None
    needed: bool = True

    @property
    def exit_code(self) -> int:
        return self.error.exit_code if self.error is not None and self.needed else 0


def examine(project: Path, lake: str, checkpoints: str, bootstrap_servers: str, master: str | None = None) -> list[EnvironmentCheck]:
    """All checks, in the order in which to fix them. Reads every jar; with `master` it also starts Spark and probes it in the lake.

    Without `master` nothing is written. A broker that does not answer is reported but is no error of the environment: `ingest demo`
    starts its own.
    """
    return [
        _finding("python", _python),
        *([] if databricks.runtime() is not None else [_finding("java", _java)]),
        *(_finding(f"jars ({each.value})", partial(_jars, each)) for each in jars.JarSet if databricks.runtime() is None),
        _finding("disk", lambda: _disk(lake)),
        _finding("lake", lambda: _lake(lake)),
        _finding("checkpoints", lambda: _writable(checkpoints, "--checkpoints")),
        _finding("contracts", lambda: _contracts(project, lake, checkpoints)),
        _finding("broker", lambda: _broker(bootstrap_servers), needed=False),
        *([] if master is None else [_finding("platform", lambda: _platform(master, lake))]),
    ]


def exit_code(findings: list[EnvironmentCheck]) -> int:
    """0, or the exit code of the most severe finding among the needed checks: 4 environment, 2 contract."""
    return most_severe([finding.exit_code for finding in findings])


def _finding(check: str, look: Callable[[], str], *, needed: bool = True) -> EnvironmentCheck:
    try:
        return EnvironmentCheck(check, look())
    except IngestError as error:
        return EnvironmentCheck(check, error.found, error, needed)


def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - this is the check
        raise InvalidEnvironment(
            "PYTHON_WRONG", f"Python {version}.", expected="Python 3.11 or later.", remedy="install one and run make setup."
        )
    return f"Python {version}"


def _java() -> str:
    found = java.find()
    return f"Java {found.version} in {found.home}"


def _jars(jar_set: jars.JarSet) -> str:
    absent, bad = jars.missing(jar_set), jars.damaged(jar_set)
    count = len(jars.locked(jar_set))
    if bad:
        expected, remedy = "the checksums in jars.lock.", "run `ingest jars`, which deletes it and fetches it again."
        raise InvalidEnvironment("JARS_CORRUPT", f"{bad[0]} does not match its checksum.", expected=expected, remedy=remedy)
    if absent:
        found = f"{len(absent)} of {count} jars are not in {jars.cache_folder()}."
        raise InvalidEnvironment("JARS_MISSING", found, expected="all of them.", remedy="run `ingest jars` (needs the network once).")
    return f"{count} jars, checksums match"


def _disk(lake: str) -> str:
    if not is_local(lake):
        return "the lake is not on this machine"
    free = shutil.disk_usage(_nearest(local_path(lake))).free
    if free < DISK_FREE_BYTES_MIN:
        expected, remedy = f"{DISK_FREE_BYTES_MIN / 1e9:.0f} GB.", "free space, or let --lake name a folder on another disk."
        raise InvalidEnvironment("DISK_FULL", f"{free / 1e9:.1f} GB free where the lake is.", expected=expected, remedy=remedy)
    return f"{free / 1e9:.0f} GB free"


def _lake(lake: str) -> str:
    if databricks.runtime() is None:
        jvm_folder.refuse_unfit(log_folder(lake))
    return _writable(lake, "--lake")


def _writable(location: str, option: str) -> str:
    if not is_local(location):
        return f"{location} is not on this machine; the run itself checks it"
    folder = local_path(location)
    nearest = _nearest(folder)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        remedy = f"make it writable (chown, chmod) or name another with {option}."
        raise InvalidEnvironment("NOT_WRITABLE", f"{nearest} cannot be written by this user.", expected="a writable folder.", remedy=remedy)
    return f"{folder} can be written" if nearest == folder else f"{folder} can be created"


def _nearest(folder: Path) -> Path:
    """The folder itself, or its closest ancestor that exists."""
    folder = folder.absolute()
    return next(one for one in (folder, *folder.parents) if one.exists())


def _contracts(project: Path, lake: str, checkpoints: str) -> str:
    from ingest.contract.definition import load_contracts
    from ingest.run.writer_choice import refuse_raising, spark_because

    contracts, by_spark = load_contracts(project), []
    for each in contracts:
        refuse_raising(each)
        if spark_because(each, Places(lake, checkpoints, each.pipeline, each.table)) is not None:
            by_spark.append(each.name)
    writers = f"; Delta in Spark writes {', '.join(by_spark)}" if by_spark else ""
    return f"{len(contracts)} valid in {project / 'tables'}{writers}"


def _platform(master: str, lake: str) -> str:
    from ingest.run import platform
    from ingest.runtime import spark

    with spark.session(master, log_folder(lake) / "spark-doctor.log", short=True) as session:
        return platform.probe(session, lake)


def _broker(bootstrap_servers: str) -> str:
    from kafka.protocol.metadata import MetadataRequest

    from ingest.kafka.broker_request import ask
    from ingest.kafka.kafka_options import KafkaOptions

    # With the client settings and login of a run. The content of the answer does not matter.
    ask(KafkaOptions.from_environment(bootstrap_servers), MetadataRequest(topics=[]), _BROKER_DEADLINE_S)
    return f"{bootstrap_servers} answers"
