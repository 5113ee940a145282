"""The pinned Java libraries: downloaded once with the Ivy inside pyspark, checked against jars.lock, then used as plain files.

Resolving `spark.jars.packages` on every start takes seconds and needs a network. Here a start only checks the files.
"""

from __future__ import annotations

import enum
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ingest.runtime import java
from ingest.runtime.errors import Bug, InvalidEnvironment, InvalidInput
from ingest.runtime.files import usable

LOCK_FILE = Path(__file__).with_name("jars.lock")

# 46 files from one host take some hundred ms each. After this time the network is effectively down.
_FETCH_DEADLINE_S = 900
# Ivy sets no timeouts of its own. Without these, a network that drops packets would block it forever.
_CONNECT_TIMEOUT_MS, _READ_TIMEOUT_MS = 20_000, 60_000

# POM files are skipped on purpose: every dependency is pinned and not transitive, so they would only double the requests.
# The ibiblio resolver's default root is Maven Central.
_SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>
"""
_MODULE = """<ivy-module version="2.0"><info organisation="oncelake" module="jars"/>
<configurations><conf name="default"/></configurations><dependencies>
{}
</dependencies></ivy-module>
"""
# `master` is the artifact alone, for mirrors whose settings read POM files. `default` is the configuration of a module without a POM.
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default->master(default)"/>'

# Spark splits its list of jars at commas, and reads the others as signs of a URL or of a pattern. A colon ends an entry of a class path.
_UNFIT = re.compile(r"[,:#?\[\]{}]")

# The Spark lines that have pinned jars. The tests run on the first. The second is the line of Databricks Runtime 17.3.
SPARK_LINES = ("4.2", "4.0")


class JarSet(enum.Enum):
    """The purpose of a set: Spark's class path (Delta, Kafka source) or the embedded broker's. They contain different kafka-clients."""

    SPARK = "spark"
    BROKER = "broker"


@dataclass(frozen=True)
class Jar:
    """One line of jars.lock: Maven coordinates, size in bytes and SHA-256 in hex."""

    set: JarSet
    organisation: str
    name: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


@cache
def locked(jar_set: JarSet, spark: str | None = None) -> tuple[Jar, ...]:
    """The jars of a set as jars.lock pins them, in the lock's order. Spark's are for the line `spark` (default: the installed pyspark's).

    Raises InvalidEnvironment SPARK_UNKNOWN if the installed pyspark is of a line without pinned jars.
    """
    wanted = f"{jar_set.value}-{spark or _spark_line()}" if jar_set is JarSet.SPARK else jar_set.value
    jars = []
    for line in LOCK_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            belongs_to, organisation, name, release, size, sha256 = line.split()
            if belongs_to == wanted:
                jars.append(Jar(jar_set, organisation, name, release, int(size), sha256))
    return tuple(jars)


def _spark_line() -> str:
    installed = version("pyspark")
    line = ".".join(installed.split(".")[:2])
    if line not in SPARK_LINES:
        raise InvalidEnvironment(
            "SPARK_UNKNOWN",
            f"pyspark {installed} is installed.",
            expected=f"pyspark {' or '.join(f'{each}.x' for each in SPARK_LINES)}: Delta's jars are built for one line of Spark.",
            remedy="install the version that requirements.lock pins: pip install --require-hashes -r requirements.lock",
        )
    return line


def cache_folder() -> Path:
    """The folder for downloaded files: INGEST_CACHE, else `oncelake` under XDG_CACHE_HOME or ~/.cache.

    Raises InvalidInput LOCATION_CHARACTER.
    """
    chosen = os.environ.get("INGEST_CACHE")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oncelake"
    if chosen:
        folder = Path(chosen).expanduser().absolute()
    if (unfit := _UNFIT.search(str(folder))) is not None:
        raise InvalidInput(
            "LOCATION_CHARACTER",
            f"the cache of jars is {folder}, which has a {unfit[0]} in its name.",
            expected="a path without , : # ? [ ] { and }: Java or Spark would look for the jars elsewhere.",
            remedy="set INGEST_CACHE to another folder.",
        )
    return folder


def ensure(jar_set: JarSet, say: Callable[[str], None] | None = None) -> tuple[Path, ...]:
    """The files of a set, in the lock's order. Missing files are downloaded, usually on a machine's first call.

    `say` is called before a download, which takes seconds. Every call checks the SHA-256 of every file, so that no start loads what
    somebody has put into the cache since: 0.02 s of CPU time for Spark's 23 MB, 0.04 s for the broker's 45 MB, and twice as much on a
    CPU without SHA instructions. Any number of processes may call this at once. Raises InvalidEnvironment JARS_UNREACHABLE, JARS_CORRUPT or
    DISK_FULL, cache_folder's error, and java.find's errors if it must download.
    """
    jars, folder = locked(jar_set), cache_folder() / "jars"
    if missing(jar_set):
        with usable(folder, _disk_full, _unusable), exclusively(folder.parent / "fetch.lock"):
            wanted = missing(jar_set)  # another process may have downloaded them while this one waited
            if wanted:
                if say:
                    megabytes = sum(jar.size_bytes for jar in wanted) / 1e6
                    say(f"fetching {len(wanted)} jars for {jar_set.value} ({megabytes:.0f} MB), once")
                _fetch(wanted, folder)
    if bad := damaged(jar_set):
        raise InvalidEnvironment(
            "JARS_CORRUPT",
            f"{bad[0]} is not the file that was downloaded" + (f", {len(bad) - 1} more likewise." if len(bad) > 1 else "."),
            expected="the SHA-256 sums that jars.lock pins.",
            remedy="run `ingest jars`, which deletes and downloads it again; find out who writes to the cache.",
        )
    return tuple(folder / jar.file_name for jar in jars)


def missing(jar_set: JarSet) -> tuple[Jar, ...]:
    """The jars of a set that are not in the cache, or not with their full size."""
    folder = cache_folder() / "jars"

    def present(jar: Jar) -> bool:
        try:
            return (folder / jar.file_name).stat().st_size == jar.size_bytes
        except OSError:
            return False

    return tuple(jar for jar in locked(jar_set) if not present(jar))


def damaged(jar_set: JarSet) -> tuple[Path, ...]:
    """The cached files of a set whose SHA-256 differs from jars.lock; reads all files of the set."""
    folder = cache_folder() / "jars"
    files = ((jar, folder / jar.file_name) for jar in locked(jar_set))
    return tuple(file for jar, file in files if file.is_file() and _sha256(file) != jar.sha256)


def discard_damaged(jar_set: JarSet) -> tuple[Path, ...]:
    """Delete the files that `damaged` finds, so that the next `ensure` downloads them again; returns the deleted files."""
    bad = damaged(jar_set)
    for file in bad:
        file.unlink(missing_ok=True)
    return bad


def _fetch(jars: tuple[Jar, ...], folder: Path) -> None:
    """Download into a temporary folder, check, then rename file by file, so that no process ever sees a partial jar."""
    ivy_cache = folder.parent / "ivy"
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
        run_ivy(jars, ivy_cache, Path(scratch))
        fetched = {jar: Path(scratch) / jar.organisation / jar.file_name for jar in jars}
        wrong = [jar for jar, file in fetched.items() if _sha256(file) != jar.sha256]
        if wrong:
            shutil.rmtree(ivy_cache, ignore_errors=True)  # else the next attempt would get the same bytes
            raise InvalidEnvironment(
                "JARS_CORRUPT",
                f"{wrong[0].file_name} arrived with SHA-256 {_sha256(fetched[wrong[0]])} and was deleted"
                + (f", {len(wrong) - 1} more likewise." if len(wrong) > 1 else "."),
                expected=f"SHA-256 {wrong[0].sha256}, as pinned in jars.lock.",
                remedy="run `ingest jars` again; if that does not help, your mirror or proxy serves other files than Maven Central.",
            )
        for jar, file in fetched.items():
            os.replace(file, folder / jar.file_name)
    shutil.rmtree(ivy_cache, ignore_errors=True)  # its copies are no longer needed


def run_ivy(jars: tuple[Jar, ...], ivy_cache: Path, target: Path) -> None:
    """Download the jars with pyspark's Ivy to `target/<organisation>/<name>-<version>.jar`; Ivy's output goes to fetch.log."""
    ivy_cache.mkdir(parents=True, exist_ok=True)
    log = ivy_cache.parent / "fetch.log"
    module, settings = target / "ivy.xml", target / "settings.xml"
    module.write_text(_MODULE.format("\n".join(_DEPENDENCY.format(jar.organisation, jar.name, jar.version) for jar in jars)))
    settings.write_text(_SETTINGS)
    timeouts = [f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_TIMEOUT_MS}", f"-Dsun.net.client.defaultReadTimeout={_READ_TIMEOUT_MS}"]
    command = [str(java.find().executable), "-Xmx256m", *timeouts, f"-Divy.default.ivy.user.dir={ivy_cache}"]
    command += ["-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-settings", os.environ.get("INGEST_IVY_SETTINGS") or str(settings)]
    command += ["-cache", str(ivy_cache), "-ivy", str(module), "-confs", "default"]
    # Relative, because Ivy reads brackets in a folder's name as a part of the pattern.
    command += ["-retrieve", "[organisation]/[artifact]-[revision].[ext]"]
    with log.open("w", encoding="utf-8") as output:
        try:
            exit_code = subprocess.run(
                command, cwd=target, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=_FETCH_DEADLINE_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            exit_code = -1
    absent = [jar.file_name for jar in jars if not (target / jar.organisation / jar.file_name).is_file()]
    if exit_code != 0 or absent:
        raise _fetch_error(log, f"{len(absent) or len(jars)} of {len(jars)} jars could not be fetched")


def _fetch_error(log: Path, what: str) -> InvalidEnvironment:
    text = log.read_text(encoding="utf-8", errors="replace")
    if "No space left on device" in text:
        return _disk_full(log.parent)
    if re.search(r"invalid (sha1|md5|sha-256)", text):
        return InvalidEnvironment(
            "JARS_CORRUPT",
            f"{what}: a download does not match its published checksum.",
            expected="files as Maven Central publishes them.",
            remedy=f"run `ingest jars` again; details are in {log}.",
        )
    return InvalidEnvironment(
        "JARS_UNREACHABLE",
        f"{what}: Maven Central does not answer or does not have them.",
        expected="a network on the first start (later starts need none).",
        remedy="connect and run `ingest jars`; behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=…; for a mirror set "
        f"INGEST_IVY_SETTINGS to an Ivy settings file; without any network copy a filled {log.parent} here. Details are in {log}.",
    )


def _disk_full(where: Path) -> InvalidEnvironment:
    remedy = "free space there or set INGEST_CACHE to a folder on another disk."
    return InvalidEnvironment("DISK_FULL", f"no space left under {where}.", expected="about 200 MB free.", remedy=remedy)


def _unusable(folder: Path, error: OSError) -> InvalidEnvironment:
    found, expected = f"the cache of jars at {folder} cannot be used ({error}).", "a folder that this user can write to."
    return InvalidEnvironment("JARS_UNREACHABLE", found, expected=expected, remedy="set INGEST_CACHE to a folder of your own.")


@contextmanager
def exclusively(file: Path) -> Iterator[None]:
    """Admit one process at a time. The lock ends with the process, so a killed process leaves nothing to clean up."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")  # located, not imported: importing pyspark takes a second
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("Ivy comes with pyspark", name="pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise Bug("IVY_MISSING", "pyspark is not installed with its jars folder.", expected="pyspark as pinned in requirements.lock.")
    return found[-1]


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
