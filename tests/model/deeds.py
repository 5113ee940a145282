"""What befalls a lake in a tale beside our own batches: what its users do to the tables, what Kafka does to the topic.

Each deed is one step of a tale. It says in words what it did; empty where there was nothing to do it to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import Any

from tests.model.delta import Row
from tests.model.lake import Lake
from tests.model.ours import Ours


class Deeds:
    """Chosen at random by `dice`. `harmed`: something was done that is no DELETE and took what was promised."""

    def __init__(self, lake: Lake, ours: Ours, dice: random.Random) -> None:
        self.lake, self.ours, self.dice = lake, ours, dice
        self.harmed = False

    # Ours.

    def batch(self) -> str:
        return self.ours.batch()

    def rebase(self) -> str:
        return self.ours.rebase()

    def cut(self) -> str:
        """Killed between quarantine and target, and the checkpoint given up."""
        told = self.ours.batch(cut=True)
        return f"{told}; {self.ours.rebase()}" if told else ""

    # What is anybody's right.

    def delete(self) -> str:
        return self._rewrite(self._some(self.lake.rows.values(), 4), "DELETE")

    def optimize(self) -> str:
        files = self.lake.target.newest.files
        return self._rewrite((), "OPTIMIZE", self._some(files, 4)) if len(files) > 1 else ""

    def update(self) -> str:
        chosen = self._some(self.lake.rows.values(), 1)
        return (
            self._rewrite((), "UPDATE", [path for path, rows in self.lake.target.newest.files.items() if chosen[0] in rows])
            if chosen
            else ""
        )

    def put_back(self) -> str:
        """An append of rows that stood once."""
        return self._rewrite((), "WRITE", put=self._gone(), mode="Append")

    def settle(self) -> str:
        """Records that are rows by now are marked as replayed, as docs/contract.md says of the quarantine."""
        lake = self.lake
        both = {each for each in lake.records.values() if each[0] in lake.positions and each[3] == "open"}
        if not both:
            return ""
        files = {path: rows for path, rows in lake.quarantine.newest.files.items() if both & set(rows)}
        settled = [(*row[:3], "replayed") if row in both else row for rows in files.values() for row in rows]
        lake.write(lake.quarantine, "UPDATE", settled, files)
        return f"settled {_offsets(row[0] for row in both)}"

    def restore(self) -> str:
        """To a version that has all batches in force."""
        force = self.lake.target.newest.force
        return self._restore(max((version for version, _ in self.ours.written if version in force), default=0))

    def vacuum(self) -> str:
        self.lake.vacuum()
        return "VACUUM"

    def compact(self) -> str:
        """Kafka compacts: offsets that were read hold no record any more."""
        logs = self.lake.topic.partitions
        chosen = self._some((each for each in self.lake.promised if logs[each[1]][each[2]] is not None), 2)
        for _, partition, offset in chosen:
            logs[partition][offset] = None
        return f"compacted {_offsets(chosen)}" if chosen else ""

    def expire(self) -> str:
        """Kafka drops records that were read."""
        partition, log_start = self.dice.randrange(len(self.ours.at)), self.lake.topic.log_start
        log_start[partition] = max(log_start[partition], self.dice.randint(0, self.ours.at[partition]))
        return f"partition {partition} expired up to {log_start[partition]}"

    # What takes away what was promised.

    def take(self) -> str:
        """Rows go by another way than a DELETE."""
        gone = self._some(self.lake.rows.values(), 2)
        if self.dice.random() < 0.5:
            return self._harm(self._rewrite(gone, "MERGE"))
        return self._harm(self._rewrite(gone, "WRITE", mode="Overwrite", predicate="_offset >= 0"))

    def take_and_put(self) -> str:
        """Some go, and others come back in the same commit."""
        put = self._gone()
        return self._harm(self._rewrite(self._some(self.lake.rows.values(), 2), "MERGE", put=put)) if put else ""

    def truncate(self) -> str:
        return self._harm(self._rewrite(list(self.lake.rows.values()), "TRUNCATE"))

    def take_records(self) -> str:
        lake = self.lake
        gone = set(self._some(lake.records.values(), 2))
        files = {path: rows for path, rows in lake.quarantine.newest.files.items() if gone & set(rows)}
        with lake.change("QUARANTINE"):
            lake.write(lake.quarantine, "DELETE", [row for rows in files.values() for row in rows if row not in gone], files)
        return self._harm(f"took from the quarantine {_offsets(row[0] for row in gone)}" if gone else "")

    def put_records_back(self) -> str:
        lake = self.lake
        could = (row for position, row in lake.records_ever.items() if position not in lake.records and position not in lake.positions)
        put = self._some(could, 2)
        with lake.change("QUARANTINE"):
            lake.write(lake.quarantine, "WRITE", put, mode="Append")
        return f"put back into the quarantine {_offsets(row[0] for row in put)}" if put else ""

    # What leaves batches out, and a rebase after it.

    def rewind(self) -> str:
        told = self._restore(0)
        return f"{told}; {self.ours.rewound()}" if told else ""

    def overwrite(self) -> str:
        """The whole table is written anew, most of its rows in it."""
        kept = [row for row in self.lake.rows.values() if self.dice.random() < 0.9]
        with self.lake.change("OVERWRITE"):
            self.lake.write(self.lake.target, "WRITE", kept, self.lake.target.newest.files, mode="Overwrite")
        return f"version {self.lake.target.number}: overwritten, {sorted(row[0] for row in kept)} kept; {self.ours.rewound()}"

    # How.

    def _some(self, of: Iterable[Any], most: int) -> list[Any]:
        each = sorted(of)
        return self.dice.sample(each, min(len(each), self.dice.randint(1, most)))

    def _gone(self) -> list[Row]:
        """Some rows that stood once and whose events have none now."""
        could = (row for row in self.lake.rows_ever if row[0] not in self.lake.rows)
        return list({row[0]: row for row in self._some(could, 3)}.values())

    def _rewrite(
        self, gone: Collection[Row], operation: str, files: Collection[str] = (), *, put: Collection[Row] = (), **parameters: Any
    ) -> str:
        """A commit that writes `files` and those of the rows that are `gone` anew, without these, and puts in some."""
        table = self.lake.target
        if not (gone or files or put):
            return ""
        removed = [path for path, rows in table.newest.files.items() if path in files or set(gone) & set(rows)]
        rows = [row for path in removed for row in table.newest.files[path] if row not in gone]
        with self.lake.change(operation):
            self.lake.write(table, operation, [*rows, *put], removed, **parameters)
        did = [f"{word} {_offsets(row[2] for row in rows)}" for word, rows in (("took", gone), ("put back", put)) if rows]
        return f"version {table.number}: {operation} {' and '.join(did)}"

    def _restore(self, least: int) -> str:
        table = self.lake.target
        back = self.dice.randint(least, table.number)
        if back == table.number or not self.lake.readable(table.path, back):
            return ""
        with self.lake.change("RESTORE", back=back):
            table.restore(back, by_time=False)
        return f"version {table.number}: RESTORE to {back}"

    def _harm(self, told: str) -> str:
        self.harmed |= bool(told)
        return told


def _offsets(positions: Iterable[tuple[str, int, int]]) -> list[tuple[int, int]]:
    return sorted(each[1:] for each in positions)


Weights = dict[Callable[[Deeds], str], float]
ORDINARY: Weights = {
    Deeds.batch: 6,
    Deeds.rebase: 1.5,
    Deeds.delete: 2,
    Deeds.optimize: 1,
    Deeds.update: 0.5,
    Deeds.settle: 1.5,
    Deeds.restore: 0.5,
}
BACK: Weights = {**ORDINARY, Deeds.put_back: 1, Deeds.cut: 0.3}
HARM: Weights = {**BACK, Deeds.take: 1.2, Deeds.take_records: 1, Deeds.put_records_back: 0.6}
KAFKA: Weights = {Deeds.compact: 0.7, Deeds.expire: 0.4, Deeds.cut: 0.3}
BIG: Weights = {Deeds.take_and_put: 0.4, Deeds.rewind: 0.6, Deeds.overwrite: 0.4, Deeds.truncate: 0.1}
MODES: dict[str, Weights] = {
    "ordinary": ORDINARY,
    "ordinary+vacuum": {**ORDINARY, Deeds.vacuum: 0.7},
    "kafka": {**ORDINARY, **KAFKA},
    "back": BACK,
    "harm": HARM,
    "harm+kafka": {**HARM, **KAFKA},
    "harm+vacuum": {**HARM, Deeds.vacuum: 0.7},
    "hands": {Deeds.batch: 4, Deeds.rebase: 1, Deeds.delete: 3, Deeds.put_back: 3, Deeds.take: 2},
    "big": {**HARM, **BIG},
}
"""What may happen in a tale, and how often beside the rest."""
