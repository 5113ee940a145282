"""An archive of Spark's classes, so that a JVM starts in two thirds of the time: Java's own dynamic class data sharing.

`ingest jars` makes it once, from a short run of what every run does. A JVM that finds none, or one that does not fit its Java or
its class path, does without and says nothing.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from ingest.runtime import jars, java

# A start, two commits and the writing of the archive; what takes longer hangs.
WITHIN_S = 300
# About 180 MB each; one for each virtual environment in use, those used last.
KEPT = 4
WARM_UP = """\
import sys
from pathlib import Path
from ingest.runtime import spark
from ingest.pipeline import platform
folder = Path(sys.argv[1])
session = spark.start("local[2]", folder / "spark.log", name="warm up", memory="1g")
platform.probe(session, str(folder / "lake"))
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()  # the JVM ends when it notices, and writes the archive then
gateway.proc.wait()
"""


def path() -> Path:
    """Where the archive for this Java and this pyspark is; an installation made anew has another."""
    import pyspark

    found, home = java.find(), Path(pyspark.__file__).parent
    # Java compares the jars' times and sizes with those of the archive, and does without it where one differs.
    installed = max((jar.stat().st_mtime_ns for jar in (home / "jars").glob("*.jar")), default=0)
    key = f"{found.home} {found.version} {home} {pyspark.__version__} {installed}"
    return jars.cache_folder() / "classes" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def option() -> str:
    """The JVM's option that uses the archive, which counts as used by that; empty where there is none."""
    archive = path()
    if not archive.exists():
        return ""
    with suppress(OSError):  # a cache of somebody else
        os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:class+path=off"


def make() -> bool:
    """Make the archive if it is missing; False if that did not work, which costs nobody more than time."""
    archive = path()
    with suppress(OSError):  # a cache that may only be read, a full disk
        if not archive.exists():
            _dump(archive)
    return archive.exists()


def _dump(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = archive.with_name(f".{archive.name}.{os.getpid()}")
        options = f"-XX:ArchiveClassesAtExit={made} -Djava.io.tmpdir={folder} {os.environ.get('INGEST_DRIVER_JAVA_OPTIONS', '')}"
        environment = {**os.environ, "INGEST_DRIVER_JAVA_OPTIONS": options.strip(), "TMPDIR": folder}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([sys.executable, "-c", WARM_UP, folder], env=environment, capture_output=True, timeout=WITHIN_S, check=False)
        if made.exists():
            made.replace(archive)
    _remove_least_used(archive.parent)


def _remove_least_used(folder: Path) -> None:
    for old in sorted(folder.glob("*.jsa"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
