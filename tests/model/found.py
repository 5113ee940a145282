"""Schedules with a name and a sentence: earlier epochs that go on at any moment of a later one, what former designs broke on, and what
this one has been found to break on."""

from __future__ import annotations

from tests.model.schedule import Schedule
from tests.model.world import Op, Setting

Named = tuple[str, str, Schedule]

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
PASSED_OVER: tuple[Op, ...] = (
    ROW,
    run(),
    STRICT,
    ODD,
    until(0, "batch target next"),
    ("kill", 0),
    ("seek", 1, "latest", (), True),
    run(1),
    ("kill", 1),
)
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
ZOMBIES: tuple[Named, ...] = tuple(
    (f"late {at}, {number}", f"A driver is stopped where its {at}, and goes on when another start has {done}.", Schedule(Setting(), ops))
    for number, (before, statement) in enumerate(STATEMENTS)
    for at in (f"{statement} next", f"{statement} at work")
    for done, ops in (
        ("read all", (*before, until(0, at), run(1), MORE, run(0), run(1), run(0))),
        ("fenced it", (*before, until(0, at), until(1, "epoch quarantine at work"), run(0), run(1))),
        ("decided", (*before, until(0, at), until(1, "epoch target next"), run(0), run(1))),
        ("been killed before its batch", (*before, until(0, at), until(1, "batch target next"), ("kill", 1), run(0), run(2))),
        ("sought the earliest", (*before, until(0, at), ("seek", 1, "earliest"), run(1), run(0), run(2))),
    )
)

STARTS: tuple[Named, ...] = (
    (
        "one epoch, one after the other",
        "Two starts want one epoch; the second fence begins when the first is committed.",
        Schedule(Setting(), (GOOD, until(0, "epoch target next"), until(1, "epoch target next"), run(), run(1))),
    ),
    (
        "one epoch, both at work",
        "Two starts want one epoch, and both fences are in flight.",
        Schedule(Setting(), (GOOD, until(0, "epoch target at work"), until(1, "epoch target at work"), run(), run(1))),
    ),
    (
        "commit between look and fence",
        "A batch is committed between a start's look and its fence.",
        Schedule(Setting(), (GOOD, until(0, "batch target at work"), until(1, "epoch target next"), run(0, 1), ("kill", 0), run(1))),
    ),
    (
        "RESTORE between look and fence",
        "The target is restored between a start's look and its fence.",
        Schedule(Setting(), (GOOD, run(), ("kill", 0), MORE, until(0, "epoch target next"), ("restore", 0, 1), run())),
    ),
    (
        "topic made again between two starts",
        "The topic is made again while two first starts are under way.",
        Schedule(Setting(), (GOOD, until(0, "seek target next"), until(1, "epoch target next"), ("recreate",), MORE, run(0), run(1))),
    ),
    (
        "dropped between two starts",
        "The target is dropped between two first starts; the second makes it anew.",
        Schedule(Setting(), (GOOD, until(0, "batch target next"), ("drop", 0), run(1), run(0))),
    ),
    (
        "anew beneath a MERGE",
        "Lake and checkpoints are deleted and a run begins anew; before its fence a MERGE of the old run lands on the new table.",
        Schedule(
            SMALL,
            (GOOD, run(0, 40), until(0, "batch target next"), *WIPED, until(1, "epoch target next"), run(0, 2), run(1)),
        ),
    ),
)

# What the design with four witnesses broke on (its names), as far as it can still be told.
FORMER: tuple[Named, ...] = (
    (
        "latest-elsewhere",
        "A first run is cut off, somebody seeks the latest offsets of the empty table, the batch lands, and is restored away.",
        Schedule(Setting(), (ROW, until(0, "batch target next"), ("seek", 1, "latest"), run(1), run(0), BAD, ("restore", 0, 1))),
    ),
    (
        "restored-beside",
        "Two runs begin one after the other, and a RESTORE leaves out the batches of both.",
        Schedule(Setting(), (GOOD, run(), ("kill", 0), MORE, run(1), ("kill", 1), ("restore", 0, 3), ("lose",))),
    ),
    (
        "read-and-a-gap",
        "A seek to the earliest is to read again what expires before it is read: that was read, and is no gap.",
        Schedule(Setting(), (GOOD, run(), *seek("earliest"), ("expire", 0, 2))),
    ),
    (
        "expired-before-batch-0",
        "Killed before its first batch; a partition is added and its first records expire.",
        Schedule(Setting(), (ROW, until(0, "batch target next"), ("kill", 0), ("partition",), ("produce", 1, BAD[2]), ("expire", 1, 3))),
    ),
    (
        "slipped-in",
        "The target is restored between the last look and the MERGE.",
        Schedule(SMALL, (GOOD, until(0, "batch target next"), run(0, 12), until(0, "batch target next"), ("restore", 0, 1), run(0, 2))),
    ),
    (
        "slipped-in, overwritten",
        "The target is overwritten there, and the driver killed behind its MERGE.",
        Schedule(SMALL, (GOOD, run(0, 30), until(0, "batch target next"), ("overwrite", 0, 1), run(0, 2), ("kill", 0))),
    ),
    (
        "slipped-in, reading again",
        "The target is restored there in an epoch that reads again what the RESTORE takes.",
        Schedule(SMALL, (GOOD, run(), *seek("earliest"), until(0, "batch target next"), ("restore", 0, 4), run(0, 2), ("kill", 0))),
    ),
    (
        "quarantine-cleaned-up",
        "The quarantine is overwritten, and Delta cleans the target's log before the ledger knows the batch.",
        Schedule(LATE, (BAD, run(), ("overwrite", 1, 0), ("clean", 0))),
    ),
    (
        "cleaned, then replaced",
        "The log of the quarantine is cleaned, and then it is replaced.",
        Schedule(Setting(), (BAD, run(), MORE, run(), ("clean", 1), ("replace", 1))),
    ),
    (
        "stands-by-another",
        "A record stands in quarantine by a batch that was cut off; it is read again, and then the quarantine is dropped.",
        Schedule(Setting(), (BAD, until(0, "batch target next"), ("kill", 0), run(1), ("drop", 1))),
    ),
    (
        "cleaned-unprojected",
        "Killed before the ledger has its batch, which Delta cleans from the log; then the quarantine is dropped.",
        Schedule(SMALL_LATE, (BAD, ROW, run(), ("drop", 1), ("clean", 0))),
    ),
    (
        "restore-cleaned-up",
        "A RESTORE that Delta has cleaned from the log before the next start.",
        Schedule(SMALL, (GOOD, run(), ("restore", 0, 1), ("optimize", 0), ("clean", 0))),
    ),
    (
        "replaced-at-the-start",
        "The quarantine is replaced between a start's looks.",
        Schedule(Setting(), (BAD, run(), ("kill", 0), MORE, until(0, "epoch quarantine at work"), ("replace", 1), run())),
    ),
    (
        "quarantine-ahead",
        "Killed behind the quarantine's commit, and the checkpoints are lost.",
        Schedule(Setting(), (BAD, until(0, "batch target next"), ("kill", 0), ROW, ("lose",))),
    ),
    (
        "skipped-unseen",
        "Target and ledger are restored to the same day.",
        Schedule(SMALL, (GOOD, run(), ("restore", 2, 1), ("restore", 0, 1))),
    ),
    (
        "copy-of-between",
        "A copy of the quarantine that was made while the last run was at work is put back.",
        Schedule(SMALL, (BAD, run(), ("save",), BAD, MORE, run(), ("kill", 0), ("put_back", 1))),
    ),
    (
        "gap-unsaid, restored",
        "Killed before the ledger knew the first batch, and the target restored to before it; records expire.",
        Schedule(LATE, (ROW, run(), ("kill", 0), ("restore", 0, 2), ("expire", 0, 1))),
    ),
    (
        "ledger-ahead",
        "Table and checkpoints are put back from one backup, the ledger is of later, and the log is cleaned.",
        Schedule(SMALL, (ROW, run(), ("save",), GOOD, run(), ("kill", 0), ("put_back", 0, 3), MORE, run(), ("clean", 0))),
    ),
    (
        "restored-before-the-log",
        "The quarantine is restored, and what that jumped over is cleaned from the log.",
        Schedule(Setting(), (BAD, run(), MORE, run(), ("restore", 1, 2), ("optimize", 1), ("clean", 1))),
    ),
    (
        "regaining-cut-short",
        "A backup of the quarantine is put back, a seek begins there, and before it has read the target is put back too.",
        Schedule(Setting(), (ROW, BAD, run(), ("save",), MORE, run(), ("put_back", 1), *seek(), ("put_back", 0))),
    ),
    (
        "as-many-versions-again",
        "An older copy of the quarantine is put back and written to until it has as many versions as were seen.",
        Schedule(Setting(), (BAD, run(), ("save",), MORE, run(), ("kill", 0), ("put_back", 1), ("optimize", 1), ("optimize", 1))),
    ),
    (
        "another-of-its-number",
        "A copy of the target of before a seek is put back and written to until it has a commit of that number.",
        Schedule(Setting(), (GOOD, run(), ("save",), *seek("latest"), ("put_back", 0), ("optimize", 0), ("optimize", 0), ("optimize", 0))),
    ),
    (
        "restored-in-between",
        "The quarantine is restored between a run's look and its last commit there, and its log cleaned before the next start.",
        Schedule(Setting(), (BAD, run(), BAD, until(0, "batch quarantine next"), ("restore", 1, 1), run(0, 3), ("kill", 0), ("clean", 1))),
    ),
    (
        "ledger-replaced-at-work",
        "The ledger is replaced under a run that goes on to append to it; then the quarantine is dropped.",
        Schedule(SMALL, (BAD, run(), ("overwrite", 2, 0), GOOD, run(), ("kill", 0), ("drop", 1))),
    ),
    (
        "read-again-not-yet",
        "A seek to the earliest has read nothing yet, the quarantine is dropped, and two seeks follow.",
        Schedule(Setting(), (BAD, run(), *seek("earliest"), ("drop", 1), *seek(), *seek())),
    ),
    (
        "in-force-again",
        "The target is restored to before its batches, a seek, the quarantine is dropped, the target is restored to after them.",
        Schedule(Setting(), (BAD, ROW, run(), ("restore", 0, 1), *seek(), ("drop", 1), ("restore", 0, 4))),
    ),
    (
        "last-one-left-out",
        "Of two batches in quarantine the last is restored away; a seek; then the quarantine is dropped.",
        Schedule(SMALL, (BAD, BAD, run(), ("restore", 0, 1), *seek(), ("drop", 1))),
    ),
    (
        "put-back-behind-a-rebase",
        "The quarantine is restored and the target replaced; a seek; before it has read the target is put back.",
        Schedule(Setting(), (BAD, ROW, run(), ("save",), ("restore", 1, 1), ("replace", 0), *seek(), ("put_back", 0))),
    ),
    (
        "restored-forward",
        "The quarantine is restored, the target to before its batch; a seek; then the target to after the batch.",
        Schedule(Setting(), (BAD, run(), ("restore", 1, 1), ("restore", 0, 1), *seek(), ("restore", 0, 4))),
    ),
    (
        "gap-told-twice",
        "A seek leaves a gap, the ledger is lost, and a copy of the target puts an earlier epoch back.",
        Schedule(Setting(), (ROW, run(), ("save",), GOOD, *seek("latest", accept=True), run(), ("drop", 2), ("put_back", 0))),
    ),
    (
        "hole-of-an-old-table",
        "A RESTORE to before a seek between look and MERGE, in a table whose log was cleaned.",
        Schedule(
            SMALL, (GOOD, run(), *seek("earliest"), ("clean", 0), run(0, 20), until(0, "batch target next"), ("restore", 0, 1), run(0, 2))
        ),
    ),
)

# What this design was found to break on.
FLAWS: tuple[Named, ...] = (
    (
        "copy beneath a MERGE",
        "A copy of the target is put back between a run's look and its MERGE, which lands on the copy and hides what that lacks.",
        Schedule(SMALL, (GOOD, run(0, 30), until(0, "batch target next"), ("copy", 0, 1), run(0, 2))),
    ),
    (
        "gap-unsaid",
        "All tables are dropped and the first records expire; only the checkpoints tell of batches.",
        Schedule(Setting(), (ROW, run(), ("drop", 0), ("drop", 1), ("drop", 2), ("expire", 0, 1))),
    ),
    (
        "first again, dropped",
        "The target is dropped before the ledger has its batch, records expire: the seek takes itself for a first one.",
        Schedule(LATE, (BAD, run(), ("kill", 0), ("drop", 0), ("expire", 0, 1))),
    ),
    (
        "first again, put back",
        "A copy of the target of before its first batch is put back, and records expire: only the checkpoints tell that anything was read.",
        Schedule(LATE, (ROW, run(), ("kill", 0), ("copy", 0, 2), ("expire", 0, 1))),
    ),
    (
        "first again, history gone",
        "The log is cleaned before the ledger has the first batch, records expire: the seek takes itself for a first one.",
        Schedule(LATE, (ROW, run(), ("kill", 0), until(1, "epoch quarantine next"), ("clean", 0), ("lose",), ("expire", 0, 1))),
    ),
    (
        "replay cut off by a seek",
        "Killed behind the MERGE that makes a quarantined record a row; then a seek is killed behind its commit: nobody marks the record.",
        Schedule(
            Setting(), (*REREAD, until(0, "quarantine next"), ("kill", 0), ("seek", 1, "latest"), until(1, "quarantine next"), ("kill", 1))
        ),
    ),
    (
        "rolled back beneath a copy",
        "A start on an old copy of the target rolls a record back, the target is put back, a seek killed between fences hides it.",
        Schedule(
            Setting(),
            (*ROLLED_BACK, ("seek", 1, "table"), until(1, "epoch quarantine next"), ("kill", 1)),
        ),
    ),
    (
        "never in the ledger",
        "An old copy of the target is put back, and an earlier run goes on: the ledger, which is ahead, never gets its batch.",
        Schedule(Setting(), (run(1), ROW, run(), ("copy", 0, 2), run(1, 6), ("delete", 0))),
    ),
    (
        "passed over, and back under another contract",
        "Killed behind the quarantine; a seek passes over the record; another seek goes back, where the contract takes it: row and open.",
        Schedule(SMALL, (*PASSED_OVER, LAX, MORE, *seek("earliest"), run())),
    ),
    (
        "passed over, back, and the quarantine lost",
        "The record that was passed over makes its own re-read a copy: the batch has put nothing there, and nobody misses it.",
        Schedule(SMALL, (*PASSED_OVER, *seek("earliest"), run(), ("kill", 0), ("drop", 1))),
    ),
)
