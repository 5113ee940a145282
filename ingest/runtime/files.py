"""Small files of checkpoints and Delta logs, on the local disk or wherever Hadoop's file systems reach.

Only what the engine reads by itself: names in a folder, whole small files, and a file of its own put in place atomically.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse
from urllib.request import url2pathname

from ingest.runtime import databricks
from ingest.runtime.errors import InvalidEnvironment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})


def environment_error(error: BaseException) -> InvalidEnvironment | None:
    """The machine's refusal to write a file or folder as an error of the environment; None for any other error."""
    if not isinstance(error, OSError) or error.filename is None or error.errno not in _FULL | _NOT_OURS:
        return None
    found = f"{error.filename} cannot be written: {error.strerror}."
    if error.errno in _FULL:
        return InvalidEnvironment("DISK_FULL", found, expected="room for it.", remedy="free space, or name a folder on another disk.")
    remedy = "see to its owner and rights (chown, chmod), or name another folder; `ingest doctor` looks at lake and checkpoints."
    return InvalidEnvironment("NOT_WRITABLE", found, expected="a folder that this user may write in.", remedy=remedy)


class LocalFiles:
    """The machine's own disk; paths are `/`-separated strings."""

    def names(self, folder: str) -> list[str]:
        """The names in `folder`, sorted; none if it does not exist."""
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> bytes | None:
        """The whole file, or None if it does not exist."""
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def stamp(self, path: str) -> str | None:
        """What tells this very file from another that is put in its place later (made when, how large); None if it does not exist."""
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def write(self, path: str, data: bytes) -> None:
        """Put `data` at `path`, in place of what was there, never half: a temporary file, fsync, rename."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)

    def parquet(self, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a Parquet file as JSON-like values: these struct columns as far as it has them, rows with none of them left out."""
        import pyarrow.compute as compute  # half a second that most verbs need not wait for
        import pyarrow.parquet as parquet

        file = parquet.ParquetFile(path)
        has = [name for name in columns if name in file.schema_arrow.names]
        if not has:
            return []
        read = file.read(columns=has)
        wanted = reduce(compute.or_, [read[name].is_valid() for name in has])
        rows: list[dict[str, Any]] = read.filter(wanted).to_pylist(maps_as_pydicts="strict")
        return rows

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        shutil.rmtree(folder, ignore_errors=True)


class HadoopFiles:
    """The same wherever the session's Hadoop configuration reaches (s3a:, abfss:, hdfs:, dbfs: …)."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._jvm = session.sparkContext._jvm
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()

    def _resolve(self, path: str) -> tuple[object, object]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
        return hadoop_path.getFileSystem(self._configuration), hadoop_path

    def names(self, folder: str) -> list[str]:
        """However many there are, they come over from the JVM in one answer."""
        system, path = self._resolve(folder)
        if not system.exists(path):  # type: ignore[attr-defined]
            return []
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(system.listStatus(path))  # type: ignore[union-attr,attr-defined]
        if not len(paths):
            return []
        # No name holds a slash, so that nothing but the beginning of the next path looks like one.
        parent = f"{paths[0].getParent().toString()}/"
        # Java's own Arrays.toString is not found by Py4J, which takes no Path[] for an Object[].
        text = self._jvm.scala.runtime.ScalaRunTime.stringOf(paths).removeprefix("Array(").removesuffix(")")  # type: ignore[union-attr]
        return sorted(text.removeprefix(parent).split(f", {parent}"))

    def read(self, path: str) -> bytes | None:
        system, hadoop_path = self._resolve(path)
        if not system.exists(hadoop_path):  # type: ignore[attr-defined]
            return None
        stream = system.open(hadoop_path)  # type: ignore[attr-defined]
        try:
            # The stream's own method: where Hadoop keeps its copy of commons-io differs from one distribution to the next.
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def stamp(self, path: str) -> str | None:
        from py4j.protocol import Py4JJavaError  # not there where nothing but the disk is read

        system, hadoop_path = self._resolve(path)
        try:
            status = system.getFileStatus(hadoop_path)  # type: ignore[attr-defined]
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != "java.io.FileNotFoundException":
                raise
            return None
        return f"{status.getModificationTime()}-{status.getLen()}"

    def write(self, path: str, data: bytes) -> None:
        """Object stores put a file whole when it is closed; create() replaces."""
        system, hadoop_path = self._resolve(path)
        stream = system.create(hadoop_path, True)  # type: ignore[attr-defined]
        stream.write(bytearray(data))
        stream.close()

    def parquet(self, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        frame = self._session.read.parquet(path)
        has = [name for name in columns if name in frame.columns]
        if not has:
            return []
        wanted = frame.select(*has).dropna(how="all")
        return [row.asDict(recursive=True) for row in wanted.collect()]

    def remove(self, folder: str) -> None:
        system, path = self._resolve(folder)
        system.delete(path, True)  # type: ignore[attr-defined]


Files = LocalFiles | HadoopFiles


def is_local(location: str) -> bool:
    """Whether a lake or checkpoint location is on the machine's own disk.

    On Databricks only file: URIs are: without a scheme Spark looks in the platform's storage, Python on the driver's disk, and what
    looks like a folder there (/Volumes/…) is a FUSE mount of an object store. Locks, hard links and renames of a disk are not to be
    had in it (docs/decisions/bundle.md), so it is reached as Spark reaches it.
    """
    scheme = urlparse(location).scheme
    return scheme == "file" or (scheme == "" and databricks.runtime() is None)


def local_path(location: str) -> Path:
    """The path of a local location, given plainly or as a file: URI."""
    return Path(url2pathname(urlparse(location).path)) if location.startswith("file:") else Path(location)


def files_of(location: str, session: SparkSession | None) -> Files:
    """The file system that holds `location`; a remote one needs a Spark session."""
    if is_local(location):
        return LocalFiles()
    if session is None:
        raise ValueError(f"{location} is not local: its files are read through a Spark session")
    return HadoopFiles(session)
