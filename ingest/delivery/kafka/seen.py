"""The ids of processed events, bounded in number and persistent, so that copies are recognised after a restart too."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from ingest.delivery.kafka.delivery_errors import StoreFailed
from ingest.runtime.errors import InvalidInput
from ingest.runtime.files import PRIVATE

KEEP: Final = 1_000_000
# Older ids are deleted in portions of this share of `keep`, so that not every insert deletes.
_SLACK: Final = 0.05


class SeenIds(AbstractContextManager["SeenIds"]):
    """The last `keep` event ids, in an SQLite file. A context manager; for one thread.

    It does not recognise a copy that arrives more than `keep` ids after the first one, or one that another instance with another file
    processed. Choose `keep` large enough (retries arrive soon), or deduplicate in one central place, as `ingest run` does in the lake.
    Raises StoreFailed.
    """

    def __init__(self, path: Path | str, *, keep: int = KEEP) -> None:
        if keep < 1:
            raise InvalidInput("SEEN_KEEP", f"keep is {keep}.", expected="at least 1.", remedy="correct it.")
        self._keep, self._path = keep, str(path)
        # synchronous=FULL: an added id must survive a power cut, because the offset may be committed right after it.
        with self._stored():
            if self._path != ":memory:":
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))  # an id may be a name or an address
            self.connection = sqlite3.connect(path, isolation_level=None)
            try:
                self.connection.execute("PRAGMA journal_mode=WAL")
                self.connection.execute("PRAGMA synchronous=FULL")
                self.connection.execute(
                    "CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE)"
                )
                self._pruned_at = self._newest()
            except BaseException:
                self.close()
                raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def __contains__(self, event_id: str) -> bool:
        return self.connection.execute("SELECT 1 FROM seen WHERE id = ?", (event_id,)).fetchone() is not None

    def __len__(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM seen").fetchone()[0])

    @contextmanager
    def once(self, event_id: str) -> Iterator[bool]:
        """Yield True if the id is new; the id is stored if the block ends without an exception.

        Writes through `connection` are committed together with the id, so they happen exactly once. Any other effect happens at least
        once, because a crash can happen between the effect and the id. Raises RunStopped SEEN_STORE.
        """
        try:
            with self._stored():
                self.connection.execute("BEGIN IMMEDIATE")
                fresh = event_id not in self
            yield fresh
            with self._stored():
                if fresh:
                    self.connection.execute("INSERT INTO seen (id) VALUES (?)", (event_id,))
                    newest = self._newest()
                    if newest - self._pruned_at >= max(1, int(self._keep * _SLACK)):
                        self.connection.execute("DELETE FROM seen WHERE number <= ?", (newest - self._keep,))
                        self._pruned_at = newest
                self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:  # SQLite may have rolled back by itself
                self.connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _stored(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(self._path, error) from error

    def _newest(self) -> int:
        return int(self.connection.execute("SELECT coalesce(max(number), 0) FROM seen").fetchone()[0])
