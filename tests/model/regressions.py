"""Schedules with a name: earlier epochs that go on at any moment of a later one, what former designs broke on, and what
this one has been found to break on."""

from __future__ import annotations

from tests.model.schedule import Schedule
from tests.model.world import Op, Setting

Named = dict[str, Schedule]

GOOD: Op = ("produce", 0, ((0, 0, "good"), (1, 10, "poison"), (2, 20, "good"), (3, 30, "odd")))
MORE: Op = ("produce", 0, ((4, 40, "good"), (5, 50, "poison")))
BAD: Op = ("produce", 0, ((1, 10, "poison"),))
ROW: Op = ("produce", 0, ((0, 0, "good"),))
ODD: Op = ("produce", 0, ((3, 30, "odd"),))
STRICT, LAX = ("strict", True), ("strict", False)
LATE = Setting(ledger_every=50)
SMALL = Setting(limit=1)
SMALL_LATE = Setting(limit=1, ledger_every=50)


def run(number: int = 0, steps: int = 99) -> Op:
    """A driver runs until it has read all."""
    return ("go", number, steps)


def until(number: int, place: str) -> Op:
    return ("until", number, place)


def seek(kind: str = "table", *, accept: bool = False, number: int = 3) -> tuple[Op, ...]:
    return (("kill", 0), ("seek", number, kind, (), accept), run(number))


# An odd record in quarantine that a seek under the lax contract makes a row, as far as the seek.
REREAD: tuple[Op, ...] = (ODD, STRICT, run(), LAX, *seek("earliest"))
WIPED: tuple[Op, ...] = (("drop", 0), ("drop", 1), ("drop", 2), ("lose",))
# A committed batch is rolled back beneath a copy of the target that lacks it, and then the target is put back with it.
ROLLED_BACK: tuple[Op, ...] = (BAD, until(0, "batch target at work"), run(0, 1), ("save",), ("kill", 0), ("copy", 0, 1))
ROLLED_BACK += (until(1, "batch quarantine next"), ("kill", 1), ("put_back", 0))
# An uncommitted batch's odd record in quarantine, and a seek behind it.
PASSED_OVER: tuple[Op, ...] = (ROW, run(), STRICT, ODD, until(0, "batch target next"), ("kill", 0))
PASSED_OVER += (("seek", 1, "latest", (), True), run(1), ("kill", 1))
# (what comes before, the statement).
STATEMENTS: tuple[tuple[tuple[Op, ...], str], ...] = (
    ((GOOD,), "epoch target"),
    ((GOOD,), "epoch quarantine"),
    ((GOOD,), "seek target"),
    ((GOOD,), "batch quarantine"),
    ((GOOD,), "batch target"),
    ((GOOD,), "ledger"),
    ((GOOD, run(), ("kill", 0), MORE), "epoch target"),
    ((GOOD, run(), ("kill", 0), MORE), "epoch quarantine"),
    ((GOOD, run(), ("kill", 0), MORE), "batch target"),
    ((GOOD, until(0, "batch target next"), ("kill", 0)), "rollback quarantine"),
    (REREAD, "batch target"),
    (REREAD, "quarantine"),
)
# A driver is stopped there, and goes on when another start has done this.
ZOMBIES: Named = {
    f"late {at}, {number}, another has {done}": Schedule(Setting(), (*before, until(0, at), *ops))
    for number, (before, statement) in enumerate(STATEMENTS)
    for at in (f"{statement} next", f"{statement} at work")
    for done, ops in (
        ("read all", (run(1), MORE, run(0), run(1), run(0))),
        ("fenced it", (until(1, "epoch quarantine at work"), run(0), run(1))),
        ("decided", (until(1, "epoch target next"), run(0), run(1))),
        ("been killed before its batch", (until(1, "batch target next"), ("kill", 1), run(0), run(2))),
        ("sought the earliest", (("seek", 1, "earliest"), run(1), run(0), run(2))),
    )
}

STARTS: Named = {
    # Two starts want one epoch, and both fences are in flight.
    "one epoch, both at work": Schedule(
        Setting(), (GOOD, until(0, "epoch target at work"), until(1, "epoch target at work"), run(), run(1))
    ),
    # A batch is committed between a start's look and its fence.
    "commit between look and fence": Schedule(
        Setting(), (GOOD, until(0, "batch target at work"), until(1, "epoch target next"), run(0, 1), ("kill", 0), run(1))
    ),
    # The target is restored between a start's look and its fence.
    "RESTORE between look and fence": Schedule(
        Setting(), (GOOD, run(), ("kill", 0), MORE, until(0, "epoch target next"), ("restore", 0, 1), run())
    ),
    # The topic is made again while two first starts are under way.
    "topic made again between two starts": Schedule(
        Setting(), (GOOD, until(0, "seek target next"), until(1, "epoch target next"), ("recreate",), MORE, run(0), run(1))
    ),
    # The target is dropped between two first starts; the second makes it anew.
    "dropped between two starts": Schedule(Setting(), (GOOD, until(0, "batch target next"), ("drop", 0), run(1), run(0))),
    # Lake and checkpoints are deleted and a run begins anew; before its fence a MERGE of the old run lands on the new table.
    "anew beneath a MERGE": Schedule(
        SMALL, (GOOD, run(0, 40), until(0, "batch target next"), *WIPED, until(1, "epoch target next"), run(0, 2), run(1))
    ),
}

# What the design with four witnesses broke on (its names), as far as it can still be told.
FORMER: Named = {
    # A first run is cut off, somebody seeks the latest offsets of the empty table, the batch lands, and is restored away.
    "latest-elsewhere": Schedule(
        Setting(), (ROW, until(0, "batch target next"), ("seek", 1, "latest"), run(1), run(0), BAD, ("restore", 0, 1))
    ),
    # Two runs begin one after the other, and a RESTORE leaves out the batches of both.
    "restored-beside": Schedule(Setting(), (GOOD, run(), ("kill", 0), MORE, run(1), ("kill", 1), ("restore", 0, 3), ("lose",))),
    # A seek to the earliest is to read again what expires before it is read: that was read, and is no gap.
    "read-and-a-gap": Schedule(Setting(), (GOOD, run(), *seek("earliest"), ("expire", 0, 2))),
    # Killed before its first batch; a partition is added and its first records expire.
    "expired-before-batch-0": Schedule(
        Setting(), (ROW, until(0, "batch target next"), ("kill", 0), ("partition",), ("produce", 1, BAD[2]), ("expire", 1, 3))
    ),
    # The target is restored between the last look and the MERGE.
    "slipped-in": Schedule(
        SMALL, (GOOD, until(0, "batch target next"), run(0, 12), until(0, "batch target next"), ("restore", 0, 1), run(0, 2))
    ),
    # The target is overwritten there, and the driver killed behind its MERGE.
    "slipped-in, overwritten": Schedule(
        SMALL, (GOOD, run(0, 30), until(0, "batch target next"), ("overwrite", 0, 1), run(0, 2), ("kill", 0))
    ),
    # The target is restored there in an epoch that reads again what the RESTORE takes.
    "slipped-in, reading again": Schedule(
        SMALL, (GOOD, run(), *seek("earliest"), until(0, "batch target next"), ("restore", 0, 4), run(0, 2), ("kill", 0))
    ),
    # The quarantine is overwritten, and Delta cleans the target's log before the ledger knows the batch.
    "quarantine-cleaned-up": Schedule(LATE, (BAD, run(), ("overwrite", 1, 0), ("clean", 0))),
    # The log of the quarantine is cleaned, and then it is replaced.
    "cleaned, then replaced": Schedule(Setting(), (BAD, run(), MORE, run(), ("clean", 1), ("replace", 1))),
    # A record stands in quarantine by a batch that was cut off; it is read again, and then the quarantine is dropped.
    "stands-by-another": Schedule(Setting(), (BAD, until(0, "batch target next"), ("kill", 0), run(1), ("drop", 1))),
    # Killed before the ledger has its batch, which Delta cleans from the log; then the quarantine is dropped.
    "cleaned-unprojected": Schedule(SMALL_LATE, (BAD, ROW, run(), ("drop", 1), ("clean", 0))),
    # A RESTORE that Delta has cleaned from the log before the next start.
    "restore-cleaned-up": Schedule(SMALL, (GOOD, run(), ("restore", 0, 1), ("optimize", 0), ("clean", 0))),
    # The quarantine is replaced between a start's looks.
    "replaced-at-the-start": Schedule(
        Setting(), (BAD, run(), ("kill", 0), MORE, until(0, "epoch quarantine at work"), ("replace", 1), run())
    ),
    # Killed behind the quarantine's commit, and the checkpoints are lost.
    "quarantine-ahead": Schedule(Setting(), (BAD, until(0, "batch target next"), ("kill", 0), ROW, ("lose",))),
    # Target and ledger are restored to the same day.
    "skipped-unseen": Schedule(SMALL, (GOOD, run(), ("restore", 2, 1), ("restore", 0, 1))),
    # A copy of the quarantine that was made while the last run was at work is put back.
    "copy-of-between": Schedule(SMALL, (BAD, run(), ("save",), BAD, MORE, run(), ("kill", 0), ("put_back", 1))),
    # Killed before the ledger knew the first batch, and the target restored to before it; records expire.
    "gap-unsaid, restored": Schedule(LATE, (ROW, run(), ("kill", 0), ("restore", 0, 2), ("expire", 0, 1))),
    # Table and checkpoints are put back from one backup, the ledger is of later, and the log is cleaned.
    "ledger-ahead": Schedule(SMALL, (ROW, run(), ("save",), GOOD, run(), ("kill", 0), ("put_back", 0, 3), MORE, run(), ("clean", 0))),
    # The quarantine is restored, and what that jumped over is cleaned from the log.
    "restored-before-the-log": Schedule(Setting(), (BAD, run(), MORE, run(), ("restore", 1, 2), ("optimize", 1), ("clean", 1))),
    # A backup of the quarantine is put back, a seek begins there, and before it has read the target is put back too.
    "regaining-cut-short": Schedule(Setting(), (ROW, BAD, run(), ("save",), MORE, run(), ("put_back", 1), *seek(), ("put_back", 0))),
    # An older copy of the quarantine is put back and written to until it has as many versions as were seen.
    "as-many-versions-again": Schedule(
        Setting(), (BAD, run(), ("save",), MORE, run(), ("kill", 0), ("put_back", 1), ("optimize", 1), ("optimize", 1))
    ),
    # A copy of the target of before a seek is put back and written to until it has a commit of that number.
    "another-of-its-number": Schedule(
        Setting(), (GOOD, run(), ("save",), *seek("latest"), ("put_back", 0), ("optimize", 0), ("optimize", 0), ("optimize", 0))
    ),
    # The quarantine is restored between a run's look and its last commit there, and its log cleaned before the next start.
    "restored-in-between": Schedule(
        Setting(), (BAD, run(), BAD, until(0, "batch quarantine next"), ("restore", 1, 1), run(0, 3), ("kill", 0), ("clean", 1))
    ),
    # The ledger is replaced under a run that goes on to append to it; then the quarantine is dropped.
    "ledger-replaced-at-work": Schedule(SMALL, (BAD, run(), ("overwrite", 2, 0), GOOD, run(), ("kill", 0), ("drop", 1))),
    # A seek to the earliest has read nothing yet, the quarantine is dropped, and two seeks follow.
    "read-again-not-yet": Schedule(Setting(), (BAD, run(), *seek("earliest"), ("drop", 1), *seek(), *seek())),
    # The target is restored to before its batches, a seek, the quarantine is dropped, the target is restored to after them.
    "in-force-again": Schedule(Setting(), (BAD, ROW, run(), ("restore", 0, 1), *seek(), ("drop", 1), ("restore", 0, 4))),
    # Of two batches in quarantine the last is restored away; a seek; then the quarantine is dropped.
    "last-one-left-out": Schedule(SMALL, (BAD, BAD, run(), ("restore", 0, 1), *seek(), ("drop", 1))),
    # The quarantine is restored and the target replaced; a seek; before it has read the target is put back.
    "put-back-behind-a-seek": Schedule(
        Setting(), (BAD, ROW, run(), ("save",), ("restore", 1, 1), ("replace", 0), *seek(), ("put_back", 0))
    ),
    # The quarantine is restored, the target to before its batch; a seek; then the target to after the batch.
    "restored-forward": Schedule(Setting(), (BAD, run(), ("restore", 1, 1), ("restore", 0, 1), *seek(), ("restore", 0, 4))),
    # A seek leaves a gap, the ledger is lost, and a copy of the target puts an earlier epoch back.
    "gap-told-twice": Schedule(Setting(), (ROW, run(), ("save",), GOOD, *seek("latest", accept=True), run(), ("drop", 2), ("put_back", 0))),
    # A RESTORE to before a seek between look and MERGE, in a table whose log was cleaned.
    "hole-of-an-old-table": Schedule(
        SMALL, (GOOD, run(), *seek("earliest"), ("clean", 0), run(0, 20), until(0, "batch target next"), ("restore", 0, 1), run(0, 2))
    ),
}

NEXT = until(1, "batch quarantine next")
# What this design was found to break on.
FLAWS: Named = {
    # A copy of the target is put back between a run's look and its MERGE, which lands on the copy and hides what that lacks.
    "copy beneath a MERGE": Schedule(SMALL, (GOOD, run(0, 30), until(0, "batch target next"), ("copy", 0, 1), run(0, 2))),
    # Behind a commit the ledger is overwritten and the log cleaned: the run alone knows the batch.
    "cut and cleaned beneath a run": Schedule(
        Setting(),
        (ROW, run(), GOOD, until(0, "batch target at work"), run(0, 1), ("overwrite", 2, 0), ("optimize", 0), ("clean", 0), run()),
    ),
    # A copy of the quarantine, put back between a start's fence and its second look, lets an earlier run's batch through.
    "copy in the place of a fence": Schedule(
        Setting(),
        (BAD, NEXT, until(0, "epoch quarantine at work"), run(0, 1), ("copy", 1, 1), until(0, "batch quarantine next"), run(1, 2)),
    ),
    # All tables are dropped and the first records expire; only the checkpoints tell of batches.
    "gap-unsaid": Schedule(Setting(), (ROW, run(), ("drop", 0), ("drop", 1), ("drop", 2), ("expire", 0, 1))),
    # The target is dropped before the ledger has its batch, records expire: the seek takes itself for a first one.
    "first again, dropped": Schedule(LATE, (BAD, run(), ("kill", 0), ("drop", 0), ("expire", 0, 1))),
    # A copy of the target of before its first batch is put back, and records expire: only the checkpoints tell that anything was read.
    "first again, put back": Schedule(LATE, (ROW, run(), ("kill", 0), ("copy", 0, 2), ("expire", 0, 1))),
    # The log is cleaned before the ledger has the first batch, records expire: the seek takes itself for a first one.
    "first again, history gone": Schedule(
        LATE, (ROW, run(), ("kill", 0), until(1, "epoch quarantine next"), ("clean", 0), ("lose",), ("expire", 0, 1))
    ),
    # Killed behind the MERGE that makes a quarantined record a row; then a seek is killed behind its commit: nobody marks the record.
    "replay cut off by a seek": Schedule(
        Setting(), (*REREAD, until(0, "quarantine next"), ("kill", 0), ("seek", 1, "latest"), until(1, "quarantine next"), ("kill", 1))
    ),
    # A start on an old copy of the target rolls a record back, the target is put back, a seek killed between fences hides it.
    "rolled back beneath a copy": Schedule(Setting(), (*ROLLED_BACK, ("seek", 1, "table"), until(1, "epoch quarantine next"), ("kill", 1))),
    # An old copy of the target is put back, and an earlier run goes on: the ledger, which is ahead, never gets its batch.
    "never in the ledger": Schedule(Setting(), (run(1), ROW, run(), ("copy", 0, 2), run(1, 6), ("delete", 0))),
    # Killed behind the quarantine; a seek passes over the record; another seek goes back, where the contract takes it: row and open.
    "passed over, and back under another contract": Schedule(SMALL, (*PASSED_OVER, LAX, MORE, *seek("earliest"), run())),
    # The record that was passed over makes its own re-read a copy: the batch has put nothing there, and nobody misses it.
    "passed over, back, and the quarantine lost": Schedule(SMALL, (*PASSED_OVER, *seek("earliest"), run(), ("kill", 0), ("drop", 1))),
}
