"""Named schedules: earlier epochs that continue at any moment of a later one, and schedules that broke a former design or this one."""

from __future__ import annotations

from tests.model.schedule import Schedule
from tests.model.world import Op, Setting

Named = dict[str, Schedule]

GOOD: Op = ("produce", 0, ((0, 0, "good"), (1, 10, "poison"), (2, 20, "good"), (3, 30, "odd")))
MORE: Op = ("produce", 0, ((4, 40, "good"), (5, 50, "poison")))
BAD: Op = ("produce", 0, ((1, 10, "poison"),))
ROW: Op = ("produce", 0, ((0, 0, "good"),))
ODD: Op = ("produce", 0, ((3, 30, "odd"),))
MANY: tuple[Op, ...] = tuple(("produce", 0, ((id, 10 * id, "good"),)) for id in range(9))
STRICT, LAX = ("strict", True), ("strict", False)
LATE = Setting(ledger_every=50)
SMALL = Setting(limit=1)
SMALL_LATE = Setting(limit=1, ledger_every=50)
SPARK = Setting(spark=True)


def run(number: int = 0, steps: int = 99) -> Op:
    """Run a driver until it has read everything."""
    return ("go", number, steps)


def until(number: int, place: str) -> Op:
    return ("until", number, place)


def seek(kind: str = "table", *, accept: bool = False, number: int = 3) -> tuple[Op, ...]:
    return (("kill", 0), ("seek", number, kind, (), accept), run(number))


# A quarantined odd record; a seek under the lax contract is done, and the re-read that makes it a row is next.
REREAD: tuple[Op, ...] = (ODD, STRICT, run(), LAX, *seek("earliest"))
# Another topic joins and is read.
JOINED: tuple[Op, ...] = (("join",), ("produce", 0, GOOD[2], 1), run(), ("kill", 0))
WIPED: tuple[Op, ...] = (("drop", 0), ("drop", 1), ("drop", 2), ("lose",))
# A start on a copy of the target that lacks a committed batch rolls its records back. Then the newer target is restored.
ROLLED_BACK: tuple[Op, ...] = (BAD, until(0, "batch target at work"), run(0, 1), ("save",), ("kill", 0), ("copy", 0, 1))
ROLLED_BACK += (until(1, "batch quarantine next"), ("kill", 1), ("put_back", 0))
# An odd record of an uncommitted batch is in quarantine, and a seek skips its offset.
SKIPPED: tuple[Op, ...] = (ROW, run(), STRICT, ODD, until(0, "batch target next"), ("kill", 0))
SKIPPED += (("seek", 1, "latest", (), True), run(1), ("kill", 1))
# (operations before it, the statement).
STATEMENTS: tuple[tuple[tuple[Op, ...], str], ...] = (
    ((GOOD,), "fence target"),
    ((GOOD,), "fence quarantine"),
    ((GOOD,), "start target"),
    ((GOOD,), "batch quarantine"),
    ((GOOD,), "batch target"),
    ((GOOD,), "ledger"),
    ((GOOD, run(), ("kill", 0), MORE), "fence target"),
    ((GOOD, run(), ("kill", 0), MORE), "fence quarantine"),
    ((GOOD, run(), ("kill", 0), MORE), "batch target"),
    ((GOOD, until(0, "batch target next"), ("kill", 0)), "rollback quarantine"),
    (REREAD, "batch target"),
    (REREAD, "quarantine"),
)
# A driver pauses at the statement, and continues after another start has done this.
ZOMBIES: Named = {
    f"late {at}, {number}, another has {done}": Schedule(Setting(), (*before, until(0, at), *ops))
    for number, (before, statement) in enumerate(STATEMENTS)
    for at in (f"{statement} next", f"{statement} at work")
    for done, ops in (
        ("read everything", (run(1), MORE, run(0), run(1), run(0))),
        ("fenced it", (until(1, "fence quarantine at work"), run(0), run(1))),
        ("decided", (until(1, "fence target next"), run(0), run(1))),
        ("been killed before its batch", (until(1, "batch target next"), ("kill", 1), run(0), run(2))),
        ("run a seek to the earliest", (("seek", 1, "earliest"), run(1), run(0), run(2))),
    )
}

STARTS: Named = {
    # Two starts want one epoch, and both fences are in flight.
    "one epoch, both fences in flight": Schedule(
        Setting(), (GOOD, until(0, "fence target at work"), until(1, "fence target at work"), run(), run(1))
    ),
    # A batch is committed between the first read of a start and its fence.
    "commit between first read and fence": Schedule(
        Setting(), (GOOD, until(0, "batch target at work"), until(1, "fence target next"), run(0, 1), ("kill", 0), run(1))
    ),
    # The target is restored between the first read of a start and its fence.
    "RESTORE between first read and fence": Schedule(
        Setting(), (GOOD, run(), ("kill", 0), MORE, until(0, "fence target next"), ("restore", 0, 1), run())
    ),
    # The topic is recreated while two first starts are in progress.
    "topic recreated between two starts": Schedule(
        Setting(), (GOOD, until(0, "start target next"), until(1, "fence target next"), ("recreate",), MORE, run(0), run(1))
    ),
    # The target is dropped between two first starts, and the second recreates it.
    "dropped between two starts": Schedule(Setting(), (GOOD, until(0, "batch target next"), ("drop", 0), run(1), run(0))),
    # Lake and checkpoints are deleted and a new run starts. Before its fence, a MERGE of the old run commits to the new table.
    "recreated during a MERGE": Schedule(
        SMALL, (GOOD, run(0, 40), until(0, "batch target next"), *WIPED, until(1, "fence target next"), run(0, 2), run(1))
    ),
}

# Schedules that broke the former design with four witnesses, under their former names.
FORMER: Named = {
    # A first run is cut off, a seek on the empty table goes to the latest offsets, the batch is committed, and a RESTORE reverts it.
    "latest-elsewhere": Schedule(
        Setting(), (ROW, until(0, "batch target next"), ("seek", 1, "latest"), run(1), run(0), BAD, ("restore", 0, 1))
    ),
    # Two runs start one after the other, and a RESTORE reverts the batches of both.
    "restored-beside": Schedule(Setting(), (GOOD, run(), ("kill", 0), MORE, run(1), ("kill", 1), ("restore", 0, 3), ("lose",))),
    # After a seek to the earliest, records expire before they are re-read. They were read before, so they are no gap.
    "read-and-a-gap": Schedule(Setting(), (GOOD, run(), *seek("earliest"), ("expire", 0, 2))),
    # The run is killed before its first batch; a partition is added, and its first records expire.
    "expired-before-batch-0": Schedule(
        Setting(), (ROW, until(0, "batch target next"), ("kill", 0), ("partition",), ("produce", 1, BAD[2]), ("expire", 1, 3))
    ),
    # The target is restored between the last check and the MERGE.
    "slipped-in": Schedule(
        SMALL, (GOOD, until(0, "batch target next"), run(0, 12), until(0, "batch target next"), ("restore", 0, 1), run(0, 2))
    ),
    # The target is overwritten between check and MERGE, and the driver is killed after the MERGE.
    "slipped-in, overwritten": Schedule(
        SMALL, (GOOD, run(0, 30), until(0, "batch target next"), ("overwrite", 0, 1), run(0, 2), ("kill", 0))
    ),
    # The target is restored between check and MERGE, in an epoch that re-reads the rows that the RESTORE removes.
    "slipped-in, reading again": Schedule(
        SMALL, (GOOD, run(), *seek("earliest"), until(0, "batch target next"), ("restore", 0, 4), run(0, 2), ("kill", 0))
    ),
    # The quarantine is overwritten, and Delta cleans the target's log before the ledger knows the batch.
    "quarantine-cleaned-up": Schedule(LATE, (BAD, run(), ("overwrite", 1, 0), ("clean", 0))),
    # The quarantine's log is cleaned, and then the quarantine is replaced.
    "cleaned, then replaced": Schedule(Setting(), (BAD, run(), MORE, run(), ("clean", 1), ("replace", 1))),
    # The quarantine has a record of a batch that was cut off. The record is re-read, and then the quarantine is dropped.
    "stands-by-another": Schedule(Setting(), (BAD, until(0, "batch target next"), ("kill", 0), run(1), ("drop", 1))),
    # The quarantine is dropped, and Delta cleans batches from the log that the ledger does not have yet.
    "cleaned-unprojected": Schedule(SMALL_LATE, (BAD, ROW, run(), ("drop", 1), ("clean", 0))),
    # Delta cleans a RESTORE from the log before the next start.
    "restore-cleaned-up": Schedule(SMALL, (GOOD, run(), ("restore", 0, 1), ("optimize", 0), ("clean", 0))),
    # The quarantine is replaced between the two reads of a start.
    "replaced-at-the-start": Schedule(
        Setting(), (BAD, run(), ("kill", 0), MORE, until(0, "fence quarantine at work"), ("replace", 1), run())
    ),
    # The run is killed after the quarantine's commit, and the checkpoints are lost.
    "quarantine-ahead": Schedule(Setting(), (BAD, until(0, "batch target next"), ("kill", 0), ROW, ("lose",))),
    # Target and ledger are restored to the same point in time.
    "skipped-unseen": Schedule(SMALL, (GOOD, run(), ("restore", 2, 1), ("restore", 0, 1))),
    # The quarantine is restored from a copy that was made during the last run.
    "copy-of-between": Schedule(SMALL, (BAD, run(), ("save",), BAD, MORE, run(), ("kill", 0), ("put_back", 1))),
    # The run is killed before the ledger has the first batch, the target is restored to before it, and records expire.
    "gap-unsaid, restored": Schedule(LATE, (ROW, run(), ("kill", 0), ("restore", 0, 2), ("expire", 0, 1))),
    # Target and checkpoints are restored from one backup, the ledger is newer, and the log is cleaned.
    "ledger-ahead": Schedule(SMALL, (ROW, run(), ("save",), GOOD, run(), ("kill", 0), ("put_back", 0, 3), MORE, run(), ("clean", 0))),
    # The quarantine is restored, and the reverted commits are cleaned from the log.
    "restored-before-the-log": Schedule(Setting(), (BAD, run(), MORE, run(), ("restore", 1, 2), ("optimize", 1), ("clean", 1))),
    # The quarantine is restored from a backup and a seek goes back to it. Before the re-read, the target is restored, too.
    "regaining-cut-short": Schedule(Setting(), (ROW, BAD, run(), ("save",), MORE, run(), ("put_back", 1), *seek(), ("put_back", 0))),
    # The quarantine is restored from an older copy, and written to until it has as many versions as the original.
    "as-many-versions-again": Schedule(
        Setting(), (BAD, run(), ("save",), MORE, run(), ("kill", 0), ("put_back", 1), ("optimize", 1), ("optimize", 1))
    ),
    # The target is restored from a copy from before a seek, and written to until it has a commit with the seek's version.
    "another-of-its-number": Schedule(
        Setting(), (GOOD, run(), ("save",), *seek("latest"), ("put_back", 0), ("optimize", 0), ("optimize", 0), ("optimize", 0))
    ),
    # The quarantine is restored between a run's check and its last commit there; its log is cleaned before the next start.
    "restored-in-between": Schedule(
        Setting(), (BAD, run(), BAD, until(0, "batch quarantine next"), ("restore", 1, 1), run(0, 3), ("kill", 0), ("clean", 1))
    ),
    # The ledger is overwritten during a run that continues to append to it; then the quarantine is dropped.
    "ledger-replaced-at-work": Schedule(SMALL, (BAD, run(), ("overwrite", 2, 0), GOOD, run(), ("kill", 0), ("drop", 1))),
    # After a seek to the earliest nothing is re-read yet, the quarantine is dropped, and two more seeks follow.
    "read-again-not-yet": Schedule(Setting(), (BAD, run(), *seek("earliest"), ("drop", 1), *seek(), *seek())),
    # The target is restored to before its batches, a seek follows, the quarantine is dropped, and the target is restored to after them.
    "in-force-again": Schedule(Setting(), (BAD, ROW, run(), ("restore", 0, 1), *seek(), ("drop", 1), ("restore", 0, 4))),
    # A RESTORE reverts the last of two batches with quarantined records; after a seek, the quarantine is dropped.
    "last-one-left-out": Schedule(SMALL, (BAD, BAD, run(), ("restore", 0, 1), *seek(), ("drop", 1))),
    # The quarantine is restored and the target replaced. After a seek and before its re-read, the target is restored from a copy.
    "put-back-behind-a-seek": Schedule(
        Setting(), (BAD, ROW, run(), ("save",), ("restore", 1, 1), ("replace", 0), *seek(), ("put_back", 0))
    ),
    # The quarantine is restored, and the target to before its batch. After a seek, the target is restored to after the batch.
    "restored-forward": Schedule(Setting(), (BAD, run(), ("restore", 1, 1), ("restore", 0, 1), *seek(), ("restore", 0, 4))),
    # A seek accepts a gap, the ledger is lost, and a copy of the target brings back an earlier epoch.
    "gap-told-twice": Schedule(Setting(), (ROW, run(), ("save",), GOOD, *seek("latest", accept=True), run(), ("drop", 2), ("put_back", 0))),
    # Between check and MERGE, a RESTORE to before a seek, in a table whose log was cleaned.
    "hole-of-an-old-table": Schedule(
        SMALL, (GOOD, run(), *seek("earliest"), ("clean", 0), run(0, 20), until(0, "batch target next"), ("restore", 0, 1), run(0, 2))
    ),
}

NEXT = until(1, "batch quarantine next")
# Schedules that broke this design, before it was fixed.
FLAWS: Named = {
    # The target is restored from a copy between a run's check and its MERGE. The batch is committed to the copy, and hides its losses.
    "copy put back during a MERGE": Schedule(SMALL, (GOOD, run(0, 30), until(0, "batch target next"), ("copy", 0, 1), run(0, 2))),
    # After a commit the ledger is overwritten and the log cleaned: only the run itself has the batch.
    "ledger cut and log cleaned during a run": Schedule(
        Setting(),
        (ROW, run(), GOOD, until(0, "batch target at work"), run(0, 1), ("overwrite", 2, 0), ("optimize", 0), ("clean", 0), run()),
    ),
    # A copy of the quarantine, put back between a start's fence and its second read, lets an earlier run's batch through.
    "copy in place of a fence": Schedule(
        Setting(),
        (BAD, NEXT, until(0, "fence quarantine at work"), run(0, 1), ("copy", 1, 1), until(0, "batch quarantine next"), run(1, 2)),
    ),
    # All tables are dropped and the first records expire; only the checkpoints show that batches were committed.
    "gap-unsaid": Schedule(Setting(), (ROW, run(), ("drop", 0), ("drop", 1), ("drop", 2), ("expire", 0, 1))),
    # The target is dropped before the ledger has its batch, and records expire: the seek is mistaken for a first start.
    "mistaken for a first start, dropped": Schedule(LATE, (BAD, run(), ("kill", 0), ("drop", 0), ("expire", 0, 1))),
    # The target is restored from a copy from before its first batch, and records expire: only the checkpoints show earlier batches.
    "mistaken for a first start, put back": Schedule(LATE, (ROW, run(), ("kill", 0), ("copy", 0, 2), ("expire", 0, 1))),
    # The log is cleaned before the ledger has the first batch, and records expire: the seek is mistaken for a first start.
    "mistaken for a first start, history gone": Schedule(
        LATE, (ROW, run(), ("kill", 0), until(1, "fence quarantine next"), ("clean", 0), ("lose",), ("expire", 0, 1))
    ),
    # A run is killed after the MERGE that makes a quarantined record a row, and a seek after its commit. The record stays open.
    "replay cut off by a seek": Schedule(
        Setting(), (*REREAD, until(0, "quarantine next"), ("kill", 0), ("seek", 1, "latest"), until(1, "quarantine next"), ("kill", 1))
    ),
    # A start on an old copy of the target rolls a record back, the newer target is put back, and a killed seek hides the loss.
    "rolled back on an old copy": Schedule(Setting(), (*ROLLED_BACK, ("seek", 1, "table"), until(1, "fence quarantine next"), ("kill", 1))),
    # The target is restored from an old copy and an earlier run continues. The ledger, which is ahead, never gets its batch.
    "never in the ledger": Schedule(Setting(), (run(1), ROW, run(), ("copy", 0, 2), run(1, 6), ("delete", 0))),
    # A run is killed after the quarantine's commit, one seek skips the record, and another re-reads it as a row: row and open.
    "skipped, re-read under another contract": Schedule(SMALL, (*SKIPPED, LAX, MORE, *seek("earliest"), run())),
    # The skipped record makes its own re-read a duplicate. The batch inserts nothing, so a later loss goes unnoticed.
    "skipped, re-read, and the quarantine lost": Schedule(SMALL, (*SKIPPED, *seek("earliest"), run(), ("kill", 0), ("drop", 1))),
    # A copy that lacks the batch is put in the target's place. Its versions seem to say what the batch added.
    "an open batch on a copy": Schedule(SPARK, (ROW, run(0, 28), ("copy", 0, 1))),
    # A run is stopped after a batch's commit, which said what its predecessor added, and says it again.
    "said twice": Schedule(Setting(limit=1, ledger_every=50, spark=True), (*MANY, run(0, 40), ("stop", 0))),
    # The target is restored from a copy that lacks the statement that says what the newest batch added, and the next start says it again.
    "said again on a copy": Schedule(
        Setting(starting="latest", spark=True), (run(0, 2), run(0, 15), ROW, run(0, 9), ("stop", 0), ("copy", 0, 1))
    ),
    # The target is dropped. Its former batches count as missing only as far as the new table has as many versions.
    "a longer life before": Schedule(Setting(limit=1), (*MANY, run(0, 99), ("drop", 0))),
    # The quarantine loses a record of a topic that is recreated, and the seek to the new one writes the record off.
    "written off with its topic": Schedule(
        Setting(), (BAD, ("seek", 1, "earliest"), run(0, 28), ("copy", 1, 1), ("recreate",), run(1, 7), run(1, 8))
    ),
    # Target and ledger are dropped after the topic was recreated. Its number was given again, and the former topic's record rolled back.
    "numbers of a former topic": Schedule(
        Setting(), (BAD, run(), ("kill", 0), ("recreate",), ROW, BAD, *seek("earliest"), run(), ("kill", 0), ("drop", 0), ("drop", 2))
    ),
    # A topic joins and is read, a copy of the target puts that back, and the topic's records expire. A seek took it for a new topic.
    "mistaken for a topic that joins": Schedule(LATE, (ROW, run(), ("stop", 0), ("save",), *JOINED, ("put_back", 0), ("expire", 0, 9, 1))),
    # A seek to the latest offsets skipped the records of a topic that joins, without a gap.
    "a topic that joins is skipped": Schedule(Setting(), (ROW, run(), *JOINED[:2], *seek("latest"))),
    # One topic is recreated, and the other has left the contract: no seek went on.
    "recreated, and the other has left": Schedule(Setting(topics=2), (ROW, run(), ("leave",), ("recreate",))),
    # Erasing a row of an open batch looked like the statement that says what the batch added.
    "an erasure closes no batch": Schedule(SPARK, (ROW, run(0, 25), ("kill", 0), ("erase", 0))),
}
