"""An archive of Spark's classes (Java's dynamic class data sharing), with which a JVM starts in two thirds of the time.

`ingest jars` creates it once, from a short run of the steps that every run takes. Without an archive, or with one of another Java or
class path, the JVM silently starts without it.
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

# Covers a start, two commits and writing the archive; a process that takes longer hangs.
WITHIN_S = 300
# About 180 MB each, one per virtual environment in use; the most recently used archives are kept.
KEPT = 4
WARM_UP = """\
import sys
from pathlib import Path
from ingest.runtime import spark
from ingest.run import platform
folder = Path(sys.argv[1])
session = spark.start("local[2]", folder / "spark.log", name="warm up", memory="1g")
platform.probe(session, str(folder / "lake"))
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()  # the JVM notices this, writes the archive and ends
gateway.proc.wait()
"""


def path() -> Path:
    """The path of the archive for this Java and this pyspark; a reinstalled pyspark has another one."""
    import pyspark

    found, home = java.find(), Path(pyspark.__file__).parent
    # Java compares the jars' times and sizes with those in the archive, and ignores the archive if any differ.
    installed = max((jar.stat().st_mtime_ns for jar in (home / "jars").glob("*.jar")), default=0)
    key = f"{found.home} {found.version} {home} {pyspark.__version__} {installed}"
    return jars.cache_folder() / "classes" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsa"


def option() -> str:
    """The JVM options that use the archive, or an empty string if there is none. The call marks the archive as used."""
    archive = path()
    if not archive.exists():
        return ""
    with suppress(OSError):  # a cache that belongs to another user
        os.utime(archive)
    return f"{java.option(f'-XX:SharedArchiveFile={archive}')} -Xlog:cds=off -Xlog:class+path=off"


def make() -> bool:
    """Create the archive if it is missing. Returns False if that failed, which only makes starts slower."""
    archive = path()
    with suppress(OSError):  # a read-only cache, a full disk
        if not archive.exists():
            _dump(archive)
    return archive.exists()


def _dump(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        temporary = archive.with_name(f".{archive.name}.{os.getpid()}")
        own = os.environ.get("INGEST_DRIVER_JAVA_OPTIONS", "")
        options = f"{java.option(f'-XX:ArchiveClassesAtExit={temporary}')} {java.option(f'-Djava.io.tmpdir={folder}')} {own}"
        environment = {**os.environ, "INGEST_DRIVER_JAVA_OPTIONS": options.strip(), "TMPDIR": folder}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([sys.executable, "-c", WARM_UP, folder], env=environment, capture_output=True, timeout=WITHIN_S, check=False)
        if temporary.exists():
            temporary.replace(archive)
    _remove_least_used(archive.parent)


def _remove_least_used(folder: Path) -> None:
    for old in sorted(folder.glob("*.jsa"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)
