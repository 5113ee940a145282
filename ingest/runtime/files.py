"""Small files of checkpoints and Delta logs, on the local disk or on any file system that Hadoop supports.

Only the operations that the engine itself needs, such as listing a folder, reading a small file and replacing its own file atomically.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from ingest.runtime import databricks
from ingest.runtime.errors import InvalidEnvironment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Modes of new files; a umask may take more. PRIVATE is for files that may show values or ids of records, NO_OTHERS for those among them
# that a group with one lake writes in turn.
ANYBODY, NO_OTHERS, PRIVATE = 0o666, 0o660, 0o600

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_OURS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})


def environment_error(error: BaseException) -> InvalidEnvironment | None:
    """The error of the environment for a file or folder that cannot be read or written; None for any other error."""
    if not isinstance(error, OSError):
        return None
    if error.errno in _FULL:
        found = f"{error.filename or 'a file'} cannot be written: {error.strerror}."  # the error of a write, not of an open, has no name
        return InvalidEnvironment("DISK_FULL", found, expected="free space for it.", remedy="free space, or name a folder on another disk.")
    if error.filename is None or error.errno not in _NOT_OURS:
        return None
    found = f"{error.filename} {refused_access(error)}: {error.strerror}."
    remedy = "correct its owner or permissions (chown, chmod), or name another folder; `ingest doctor` checks lake and checkpoints."
    if "read" in refused_access(error):
        return InvalidEnvironment("NOT_READABLE", found, expected="a file or folder that this user can read.", remedy=remedy)
    return InvalidEnvironment("NOT_WRITABLE", found, expected="a folder that this user can write to.", remedy=remedy)


def refused_access(error: OSError) -> str:
    """What this user cannot do with the error's file: "cannot be read", "cannot be written" or "can be neither read nor written".

    Python's error is the same for both, so this looks at the file. A file that can be read was refused to a writer, and so was a file that
    does not exist. If both are refused, the text says so, and is true whichever was tried.
    """
    path = error.filename
    if error.errno not in (errno.EACCES, errno.EPERM):
        return "cannot be written"
    try:
        search = os.X_OK if stat.S_ISDIR(os.stat(path).st_mode) else 0
    except PermissionError:  # a folder above it admits nobody
        return "can be neither read nor written"
    except OSError:
        return "cannot be written"
    # What counts is the effective user, where the platform can ask for it.
    effective = os.access in os.supports_effective_ids
    if os.access(path, os.R_OK | search, effective_ids=effective):
        return "cannot be written"
    return "cannot be read" if os.access(path, os.W_OK | search, effective_ids=effective) else "can be neither read nor written"


@contextmanager
def usable(
    folder: Path, full: Callable[[Path], InvalidEnvironment], error_of: Callable[[Path, OSError], InvalidEnvironment]
) -> Iterator[None]:
    """Create the folder if it does not exist. A failure to write there, in any step, raises `full` (no space) or `error_of`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise (full(folder) if error.errno == errno.ENOSPC else error_of(folder, error)) from error


class LocalFiles:
    """The local disk; paths are `/`-separated strings, or file: URIs."""

    def names(self, folder: str) -> list[str]:
        """The names in `folder`, sorted; an empty list if it does not exist."""
        try:
            return sorted(os.listdir(local_path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, path: str) -> bytes | None:
        """The whole file, or None if it does not exist."""
        try:
            return local_path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def stamp(self, path: str) -> str | None:
        """A stamp that changes if another file replaces this one (inode, modification time, size); None if the file does not exist."""
        try:
            status = os.stat(local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"

    def write(self, path: str, data: bytes) -> None:
        """Write `data` to `path` atomically, replacing any existing file."""
        with replacing(local_path(path)) as file:
            file.write(data)

    def create(self, path: str, data: bytes, mode: int = ANYBODY) -> bool:
        """Write a new file atomically. False if `path` exists already; then nothing changes, even if two processes try at once.

        After an OSError the file may be there, and may be gone after a power failure (`sync_name`).
        """
        target = local_path(path)
        with _beside(target, mode) as (temporary, file):
            file.write(data)
            _synced(file)
            try:
                os.link(temporary, target)  # unlike a rename it never replaces a file
            except FileExistsError:
                return False
        self.sync_name(path)
        return True

    def sync_name(self, path: str) -> None:
        """Bring the name of a file onto the disk, that is, its folder. `create` does it; repeat it if that reported an error."""
        folder = os.open(local_path(path).parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def parquet(self, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a Parquet file as JSON-like values, with the struct `columns` that it has; rows with only nulls are left out."""
        import pyarrow.compute as compute  # the import takes half a second, and most commands do not need it
        import pyarrow.parquet as parquet

        file = parquet.ParquetFile(local_path(path))
        has = [name for name in columns if name in file.schema_arrow.names]
        if not has:
            return []
        read = file.read(columns=has)
        wanted = reduce(compute.or_, [read[name].is_valid() for name in has])
        rows: list[dict[str, Any]] = read.filter(wanted).to_pylist(maps_as_pydicts="strict")
        return rows

    def remove(self, folder: str) -> None:
        """Remove a folder and its contents, if it exists."""
        shutil.rmtree(local_path(folder), ignore_errors=True)

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""
        local_path(path).unlink(missing_ok=True)


class HadoopFiles:
    """The same operations on any file system of the session's Hadoop configuration (s3a:, abfss:, hdfs:, dbfs: …)."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._jvm = session.sparkContext._jvm
        self._configuration = session.sparkContext._jsc.hadoopConfiguration()

    def _resolve(self, path: str) -> tuple[object, object]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
        return hadoop_path.getFileSystem(self._configuration), hadoop_path

    def names(self, folder: str) -> list[str]:
        """The JVM returns all names in one answer, however many there are."""
        system, path = self._resolve(folder)
        if not system.exists(path):  # type: ignore[attr-defined]
            return []
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(system.listStatus(path))  # type: ignore[union-attr,attr-defined]
        if not len(paths):
            return []
        # No name contains a slash, so only the start of the next path matches this separator.
        parent = f"{paths[0].getParent().toString()}/"
        # Py4J does not find Java's own Arrays.toString, because it does not pass a Path[] as an Object[].
        text = self._jvm.scala.runtime.ScalaRunTime.stringOf(paths).removeprefix("Array(").removesuffix(")")  # type: ignore[union-attr]
        return sorted(text.removeprefix(parent).split(f", {parent}"))

    def read(self, path: str) -> bytes | None:
        system, hadoop_path = self._resolve(path)
        if not system.exists(hadoop_path):  # type: ignore[attr-defined]
            return None
        stream = system.open(hadoop_path)  # type: ignore[attr-defined]
        try:
            # The stream's own method, because the package of Hadoop's copy of commons-io differs between distributions.
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def stamp(self, path: str) -> str | None:
        from py4j.protocol import Py4JJavaError  # not at the top: commands that read only the local disk run without py4j

        system, hadoop_path = self._resolve(path)
        try:
            status = system.getFileStatus(hadoop_path)  # type: ignore[attr-defined]
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != "java.io.FileNotFoundException":
                raise
            return None
        return f"{status.getModificationTime()}-{status.getLen()}"

    def write(self, path: str, data: bytes) -> None:
        """Object stores publish the whole file on close(); create() replaces an existing file."""
        system, hadoop_path = self._resolve(path)
        stream = system.create(hadoop_path, True)  # type: ignore[attr-defined]
        stream.write(bytearray(data))
        stream.close()

    def create(self, path: str, data: bytes, mode: int = ANYBODY) -> bool:
        """A rename, which HDFS and ABFS do atomically. On S3 two processes must not create the same file at once. It sets no `mode`."""
        system, hadoop_path = self._resolve(path)
        temporary = f"{path}.{uuid.uuid4().hex}.tmp"
        self.write(temporary, data)
        done = not system.exists(hadoop_path) and bool(system.rename(self._resolve(temporary)[1], hadoop_path))  # type: ignore[attr-defined]
        if not done:
            self.remove(temporary)
        return done

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


@contextmanager
def replacing(target: Path, mode: int = ANYBODY) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of `target` when the block ends: nobody sees half of it, and an error changes nothing.

    `mode` is for a new file, a stricter umask wins; a file that exists keeps its own.
    """
    with _beside(target, mode) as (temporary, file):
        yield file
        with suppress(FileNotFoundError):
            former = os.lstat(target)
            if stat.S_ISREG(former.st_mode) and former.st_mode != os.fstat(file.fileno()).st_mode:
                os.fchmod(file.fileno(), stat.S_IMODE(former.st_mode))
        _synced(file)
        temporary.replace(target)


@contextmanager
def _beside(target: Path, mode: int) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file in the target's folder, under a name that nobody can guess and only if there is none: never a link to another place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file:
        try:
            yield temporary, file
        finally:
            temporary.unlink(missing_ok=True)


def _synced(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def is_local(location: str) -> bool:
    """Whether a lake or checkpoint location is on the machine's own disk.

    On Databricks only file: URIs are. Without a scheme, Spark reads the platform's storage, but Python reads the driver's disk. A path
    that looks like a local folder there (/Volumes/…) is a FUSE mount of an object store. The mount lacks a disk's locks, hard links and
    renames (docs/decisions/bundle.md), so we access it through Spark.
    """
    scheme = urlparse(location).scheme
    return scheme == "file" or (scheme == "" and databricks.runtime() is None)


def local_path(location: str) -> Path:
    """The path of a local location, given as a plain path or as a file: URI. In such a URI, `?` and `#` are letters of the path."""
    return Path(unquote(re.sub("^file:(//[^/]*)?", "", location))) if location.startswith("file:") else Path(location)


def files_of(location: str, session: SparkSession | None) -> Files:
    """The file system of `location`; a remote one needs a Spark session (else ValueError)."""
    if is_local(location):
        return LocalFiles()
    if session is None:
        raise ValueError(f"{location} is not local: its files are read through a Spark session")
    return HadoopFiles(session)
