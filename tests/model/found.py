"""What the model has found in the engine, each as its smallest schedule: what is still so, and what was mended."""

from __future__ import annotations

from tests.model.schedule import Schedule
from tests.model.world import Op, Setting

THREE: Op = ("produce", 0, ((6, 0, "good"), (7, 0, "good"), (8, 0, "good")))
POISON: Op = ("produce", 0, ((6, 0, "poison"),))
OTHER: Op = ("produce", 0, ((5, 50, "poison"),))
LATE: Op = ("produce", 0, ((9, 0, "good"),))
SMALL = Setting(limit=1)
# The quarantine is restored, the target replaced, and a rebase begins anew.
BEGIN_ANEW: tuple[Op, ...] = (("restore", 1, 1, False), ("replace", 0, True), ("rebase", 0, "table", False, (), 0, ()))
# The target is restored to the version before its newest; a second time, back again.
FORWARD: Op = ("restore", 0, 1, False)
TORN: Op = ("tear", 0, "offsets-0", True)
ELSEWHERE: Op = ("rebase", 1, "table", False, (), 0, ())


def go(number: int, steps: int, *, place: int = 0, bypass: bool = False, at: int = 0, then: Op = ()) -> Op:
    """A driver goes on by `steps`; at its `at`-th change of a file or table `then` comes in between."""
    return ("go", number, place, bypass, steps, at, then)


LATEST_ELSEWHERE: tuple[Op, ...] = (
    ("produce", 0, ((4, 41, "good"),)),
    go(0, 6, at=11, then=("crash",)),
    ("rebase", 1, "latest", False, (), 0, ()),
    go(0, 5),
    ("produce", 0, ((1, 10, "good"),)),
    ("restore", 0, 1, False),
)
BESIDE: tuple[Op, ...] = (
    ("produce", 0, ((0, 0, "good"),)),
    go(0, 6, place=1, at=11, then=("crash",)),
    ("rebase", 0, "latest", False, (), 0, ()),
    ("produce", 0, ((3, 30, "good"),)),
    go(0, 12, place=1),
    ("restore", 0, 2, False),
)
READ: tuple[Op, ...] = (THREE, THREE, go(0, 40), ("stop", 0))

# What the model has found: (known as, what, schedule). All of them end as xfail until the engine is mended.
FOUND = (
    (
        "beside-untold",
        "as restored-beside, and Delta has cleaned the batch that was restored away from the log",
        Schedule(Setting(), (*LATEST_ELSEWHERE, ("kill", 0), ("clean", 0, 0), go(0, 6, place=1))),
    ),
    (
        "stands-by-another",
        "a record stands in quarantine by a batch that never came to its target commit; another checkpoint reads it again and counts "
        "it as replayed; then the quarantine is dropped: no commit in force proves that it held the record",
        Schedule(Setting(), (POISON, go(0, 5, at=12, then=("crash",)), go(0, 2, place=1), go(0, 4), ("drop", 1))),
    ),
    (
        "cleaned-unprojected",
        "a run is killed before the ledger has its batch, nobody starts it again until Delta has cleaned the batch from the target's log, "
        "and the quarantine is dropped: nothing tells any more that the batch had put a record there",
        Schedule(
            Setting(limit=1, ledger_every=50), (("produce", 0, ((2, 20, "poison"), THREE[2][0])), go(0, 13), ("drop", 1), ("clean", 0, 0))
        ),
    ),
    (
        "restore-cleaned-up",
        "a RESTORE that Delta has cleaned up from the log before the next start: the ledger vouches for what it left out",
        Schedule(SMALL, (THREE, go(0, 23), ("restore", 0, 1, False), ("optimize",), ("clean", 0, 0))),
    ),
)

# What it had found, and what was mended.
MENDED: tuple[tuple[str, str, Schedule], ...] = (
    (
        "latest-elsewhere",
        "a first run is killed before its first batch, and somebody rebases the empty table to the latest offsets with another "
        "checkpoint; the first goes on, its batch is restored away, and the rebase that is named begins where that other epoch was to",
        Schedule(Setting(), LATEST_ELSEWHERE),
    ),
    *(
        (
            "latest-elsewhere",
            f"the same, and the first one's {lost} is lost or damaged",
            Schedule(Setting(), (*LATEST_ELSEWHERE, ("kill", 0), harm)),
        )
        for lost, harm in (
            ("sources/0/0", ("tear", 0, "sources/0/0", True)),
            ("binding.json", ("tear", 0, "oncelake/binding.json", False)),
            ("metadata", ("tear", 0, "metadata", False)),
            ("checkpoint", ("lose", 0)),
        )
    ),
    (
        "restored-beside",
        "as latest-elsewhere, but it is the other checkpoint that goes on, which knows nothing of the batch that was restored away",
        Schedule(Setting(), (*LATEST_ELSEWHERE, ("kill", 0), go(0, 20, place=1), ("stop", 0))),
    ),
    (
        "restored-beside",
        "the same with two batches, of which only the first began before the other checkpoint",
        Schedule(Setting(), BESIDE),
    ),
    (
        "restored-beside",
        "the same, and the ledger is lost: the rebase that is named went on where that other checkpoint was to begin",
        Schedule(Setting(limit=9), (*BESIDE[:4], go(0, 5, place=1), ("kill", 0), ("restore", 0, 1, False), ("drop", 2))),
    ),
    (
        "read-and-a-gap",
        "the table is rebased with another checkpoint that never reads, records that have long been read expire, and the first checkpoint "
        "is damaged: the rebase that is named goes back to where this one began, and calls them a gap",
        Schedule(Setting(), (*READ, ELSEWHERE, ("expire", 0, 4), TORN)),
    ),
    (
        "read-and-a-gap",
        "the same, and which query the checkpoint was of is lost",
        Schedule(Setting(), (*READ, ELSEWHERE, ("expire", 0, 4), ("tear", 0, "metadata", True))),
    ),
    (
        "read-and-a-gap",
        "the same, and the other checkpoint has read on before it is rebased itself",
        Schedule(
            Setting(),
            (*READ, ELSEWHERE, THREE, go(0, 40, place=1), ("stop", 0), ELSEWHERE, ("expire", 0, 8), TORN),
        ),
    ),
    (
        "read-and-a-gap",
        "one checkpoint, rebased to the earliest to read again what stands; that expires before it is read: it could go on only with a gap",
        Schedule(Setting(limit=9), (THREE, go(0, 20), ("stop", 0), ("rebase", 0, "earliest", False, (), 0, ()), ("expire", 0, 2))),
    ),
    (
        "told-and-cleaned",
        "a rebase is cut off between the ledger and its last rename, the ledger is written on, and Delta cleans that commit from its log: "
        "to finish the rebase was refused at every turn, since its rows were skipped by their pair and no commit was found",
        Schedule(
            Setting(partitions=2),
            (
                *(("produce", 1, ((1, 10, "good"),)), go(0, 2, at=4, then=("crash",))),
                *(("rebase", 0, "table", True, (), 12, ("crash",)), ("expire", 1, 5)),
                *(("rebase", 1, "table", True, (6, 3), 0, ()), ("clean", 2, 0)),
            ),
        ),
    ),
    (
        "added-elsewhere",
        "as latest-elsewhere, with a partition that was added in between, and the table put back from a copy: of that partition the rebase "
        "that is named began where the other checkpoint was to begin",
        Schedule(
            Setting(ledger_every=50),
            (
                ("produce", 0, ((4, 41, "good"),)),
                *(go(0, 6, at=11, then=("crash",)), ("partition",), ("produce", 1, ((5, 50, "good"),))),
                *(("rebase", 1, "latest", False, (), 0, ()), go(0, 20), ("kill", 0), ("copy", 0, 2)),
            ),
        ),
    ),
    (
        "read-and-a-gap",
        "told as one of offsets that an epoch before had jumped over, and one after that has read",
        Schedule(
            Setting(),
            (
                *(THREE, THREE, go(0, 4), ("stop", 0)),
                *(("rebase", 0, "offsets", True, (offset,), 0, ()) for offset in (4, 2)),
                *(go(0, 40), ("stop", 0), ELSEWHERE, ("expire", 0, 4), ("tear", 0, "metadata", True)),
            ),
        ),
    ),
    (
        "expired-before-batch-0",
        "killed between where Spark fixes the beginning of batch 0 and its plan, then a partition is added and its first records "
        "expire: Spark's own error ends every start",
        Schedule(
            Setting(partitions=2), (go(0, 3, at=9, then=("crash",)), ("partition",), ("produce", 2, ((6, 0, "good"),)), ("expire", 2, 3))
        ),
    ),
    (
        "unseen-at-first",
        "two first starts on two checkpoints without locks: before its own first batch the one does not look for batches of the other, "
        "counts their records as replayed, and a RESTORE takes them away",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"),)),
                go(0, 4, place=1, at=3, then=go(1, 12, bypass=True)),
                ("restore", 0, 1, True),
                go(0, 2),
            ),
        ),
    ),
    (
        "replaced-at-the-start",
        "the quarantine is replaced after preflight has looked at it and before the start remembers it: what was taken away counts as seen",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((1, 10, "poison"),)),
                go(0, 6),
                ("kill", 0),
                go(0, 1),
                ("replace", 1, False),
                go(0, 1),
            ),
        ),
    ),
    (
        "initial-offsets-torn",
        "sources/0/0 is damaged before anything was planned: preflight lets it pass, and Spark's own error ends every start",
        Schedule(Setting(), (THREE, go(0, 3, at=9, then=("crash",)), ("tear", 0, "sources/0/0", False))),
    ),
    (
        "quarantine-ahead",
        "killed after the quarantine's commit, and the checkpoint put back from before that batch: it is planned anew with other ranges, "
        "every start ends as BATCH_DIFFERS, whose remedy names no command",
        Schedule(Setting(), (POISON, go(0, 5), ("kill", 0), ("produce", 0, ((7, 0, "good"),)), ("tear", 0, "offsets-0", True))),
    ),
    (
        "left-out-since",
        "a batch of another checkpoint that a RESTORE has left out: preflight starts, the run stops itself (TABLE_OWNED), again and again",
        Schedule(Setting(), (("rebase", 0, "table", True, (), 0, ()), THREE, go(0, 6, place=1), ("kill", 0), ("restore", 0, 1, False))),
    ),
    (
        "left-out-since",
        "two drivers of one checkpoint without locks: one skips a batch of the other that a RESTORE has left out",
        Schedule(
            SMALL,
            (
                THREE,
                go(0, 6, bypass=True),
                go(1, 1, bypass=True),
                go(0, 7, bypass=True),
                ("restore", 0, 1, False),
                go(1, 2, bypass=True),
            ),
        ),
    ),
    (
        "skipped-unseen",
        "target and ledger restored to the same earlier state: the ledger's pair is higher than what is to be appended, Delta skips it, "
        "and every start ends as a bug of ours (COMMIT_MISSING, exit 70) that names no remedy",
        Schedule(Setting(limit=1, ledger_every=2), (THREE, go(0, 14), ("restore", 2, 1, False), ("restore", 0, 1, False))),
    ),
    (
        "skipped-unseen",
        "killed after the quarantine's commit, which is then restored and cleaned up: the same",
        Schedule(Setting(), (POISON, go(0, 5), ("kill", 0), ("restore", 1, 1, False), ("clean", 1, 0))),
    ),
    (
        "binding-lost",
        "binding.json is missing and the topic was made again: the topic id in the table's own commits is not compared",
        Schedule(
            Setting(),
            (THREE, go(0, 9), ("recreate",), ("kill", 0), THREE, ("tear", 0, "oncelake/binding.json", True)),
        ),
    ),
    (
        "abandoned-epoch",
        "a rebase of a table without batches is cut off before its last rename: the next start begins anew beside it, and a later rebase "
        "takes the baseline that never came to be for where the table ends",
        Schedule(
            Setting(),
            (THREE, ("rebase", 0, "latest", False, (), 12, ("crash",)), go(0, 9), ("kill", 0), ("restore", 0, 1, False)),
        ),
    ),
    (
        "slipped-in",
        "a RESTORE between the last look at the table and the MERGE: the next start refuses, and the rebase that it names begins where "
        "the batch that slipped in ends, not where the batches without a hole do",
        Schedule(SMALL, (THREE, go(0, 18), go(0, 2, at=1, then=("restore", 0, 1, False)))),
    ),
    (
        "slipped-in",
        "an overwrite there: the batch stands alone in the table, and the next start takes all before it for written",
        Schedule(SMALL, (THREE, go(0, 9), go(0, 4, at=2, then=("replace", 0, True)))),
    ),
    (
        "slipped-in",
        "a RESTORE there under a rebased checkpoint that reads again what the RESTORE takes: it counts as replayed and is gone, until the "
        "next rebase begins at the hole",
        Schedule(
            SMALL,
            (
                ("produce", 0, ((6, 0, "good"), (7, 0, "good"))),
                go(0, 20),
                ("kill", 0),
                ("rebase", 0, "earliest", False, (0,), 0, ()),
                go(0, 6, at=3, then=("restore", 0, 2, False)),
            ),
        ),
    ),
    (
        "dropped-at-work",
        "two first starts without locks, and the target dropped between them: the second makes it anew and binds the checkpoint to it, "
        "the first goes on in it as if it were its own",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"),)),
                go(0, 1, bypass=True),
                go(1, 1, bypass=True),
                go(0, 5, bypass=True),
                ("drop", 0),
                go(1, 1, bypass=True),
                ("produce", 0, ((7, 0, "good"),)),
                go(0, 7, bypass=True),
            ),
        ),
    ),
    (
        "quarantine-cleaned-up",
        "the log of the quarantine is cleaned up, then it is replaced: the commits that were left out are not in its log",
        Schedule(Setting(), (POISON, go(0, 5), POISON, go(0, 7), ("clean", 1, 0), ("replace", 1, False))),
    ),
    (
        "quarantine-cleaned-up",
        "the quarantine is restored to a version that Delta has cleaned up: its pairs, which a RESTORE keeps, were taken for proof",
        Schedule(Setting(), (POISON, go(0, 6), ("restore", 1, 1, False), ("clean", 1, 0))),
    ),
    (
        "quarantine-cleaned-up",
        "the quarantine is overwritten, then the log of the target cleaned up, before the ledger knows of the batch",
        Schedule(
            Setting(partitions=2, limit=1, ledger_every=50),
            (("produce", 0, ((6, 0, "poison"), (7, 0, "good"))), go(0, 13), ("replace", 1, True), ("clean", 0, 0)),
        ),
    ),
    (
        "contract-race",
        "two drivers of one checkpoint without locks, each with its contract: the quarantine is under one, contract.json holds the other, "
        "every start ends as CONTRACT_CHANGED; a rebase, which the error names, reads the batch again",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"), (7, 0, "poison"))),
                go(0, 1, bypass=True),
                ("contract", True),
                go(1, 5, bypass=True),
                go(0, 1, bypass=True),
            ),
        ),
    ),
    (
        "contract-damaged",
        "the contract kept beside the checkpoint is empty, and no backup is there",
        Schedule(Setting(), (THREE, POISON, go(0, 5), ("kill", 0), ("tear", 0, "oncelake/contract.json", False))),
    ),
    (
        "copy-of-between",
        "a backup of the quarantine, made while the last run was at work, is put back: it is newer than what that run's start had seen, "
        "and nothing in its log was left out",
        Schedule(Setting(), (POISON, go(0, 8), POISON, go(0, 8), POISON, go(0, 8), ("stop", 0), ("copy", 1, 1))),
    ),
    (
        "gap-unsaid",
        "the lake is deleted and its first records expire: nothing is left that tells of batches, and a rebase to the table, as the error "
        "says, begins behind them without a word and without a gap in the ledger",
        Schedule(Setting(), (THREE, go(0, 12), ("stop", 0), ("drop", 0), ("drop", 1), ("drop", 2), ("expire", 0, 2))),
    ),
    (
        "gap-unsaid",
        "killed before the ledger knew of the first batch, the target restored to before it: the same",
        Schedule(Setting(), (THREE, go(0, 6), ("kill", 0), ("restore", 0, 1, False), ("expire", 0, 2))),
    ),
    (
        "gap-unsaid",
        "checkpoint and ledger are gone, the log was cleaned up, and records expire that were not read: only the pairs tell of batches",
        Schedule(
            Setting(),
            (
                THREE,
                go(0, 12),
                ("stop", 0),
                ("optimize",),
                ("delete", 6),
                ("clean", 0, 0),
                ("drop", 2),
                ("lose", 0),
                ("produce", 0, ((5, 0, "good"),)),
                ("expire", 0, 4),
                ("produce", 0, ((4, 0, "good"),)),
            ),
        ),
    ),
    (
        "gap-unsaid",
        "a rebase is cut off, and then the target is gone and the ledger empty: nothing but the checkpoint that it had prepared tells of "
        "batches, and the next rebase begins behind records that expired",
        Schedule(
            SMALL,
            (
                THREE,
                go(0, 14, at=22, then=("crash",)),
                ("rebase", 0, "table", False, (), 12, ("crash",)),
                ("drop", 0),
                ("replace", 2, True),
                ("expire", 0, 2),
            ),
        ),
    ),
    (
        "ledger-ahead",
        "table and checkpoint are put back from one backup, the ledger is of later: the batches made since have the numbers of those that "
        "it has, and once the log is cleaned up it vouches for offsets that the table never got; a rebase to the table begins behind them",
        Schedule(
            SMALL,
            (
                ("produce", 0, ((0, 0, "good"), (1, 10, "good"))),
                go(0, 3),
                ("save", 0),
                ("produce", 0, ((3, 30, "good"), (4, 40, "good"))),
                go(0, 21),
                ("stop", 0),
                ("copy", 0, 3),
                ("put_back", 0, 0),
                go(0, 8),
                ("optimize",),
                ("delete", 0),
                ("delete", 1),
                ("clean", 0, 0),
            ),
        ),
    ),
    (
        "restored-before-the-log",
        "the quarantine is restored to a version that Delta has cleaned up from the log since: of what the RESTORE jumped over only the "
        "part that the log still has was read again",
        Schedule(
            Setting(partitions=2, limit=1),
            (
                ("produce", 0, ((6, 0, "good"), (1, 10, "poison"), (4, 40, "poison"))),
                go(0, 19),
                ("restore", 1, 2, False),
                go(0, 1, at=3, then=("clean", 1, 1)),
            ),
        ),
    ),
    (
        "binding-race",
        "two first starts without locks and the topic made again between them: the binding of the one names the topic id of the other",
        Schedule(
            Setting(),
            (go(0, 1, bypass=True), ("recreate",), THREE, go(1, 2, bypass=True, at=3, then=go(0, 9, bypass=True))),
        ),
    ),
    (
        "regaining-cut-short",
        "a backup of the quarantine is put back; a rebase begins where that lacks records, and takes it for whole from then on; before its "
        "run has read them the target is put back from a copy, and the next rebase begins where that ends",
        Schedule(
            SMALL,
            (
                ("keep",),
                ("produce", 0, ((3, 30, "poison"), (4, 40, "good"), (8, 0, "good"))),
                go(0, 1),
                ("produce", 0, ((3, 30, "good"), (7, 0, "good"))),
                go(0, 30),
                ("stop", 0),
                ("bring_back", (1,), False),
                go(0, 1),
                ("mend", 0),
                ("copy", 0, 4),
            ),
        ),
    ),
    (
        "seen-before-it-was-there",
        "backups of quarantine and checkpoint, both of before another checkpoint put records there, are put back: what the older one has "
        "seen is there, and whatever other checkpoints had put there was taken for seen",
        Schedule(
            Setting(),
            (
                go(0, 2),
                ("kill", 0),
                ("save", 0),
                ("keep",),
                ("lose", 0),
                ("produce", 0, ((2, 20, "poison"),)),
                go(0, 3),
                ("stop", 0),
                ("bring_back", (1,), False),
                ("put_back", 0, 0),
            ),
        ),
    ),
    (
        "ledger-of-another-branch",
        "table and checkpoint of before are put back and the ledger is restored: Delta skips its append by the pair of a batch with other "
        "offsets, and the rebase that was named met the same",
        Schedule(
            Setting(),
            (
                go(0, 2),
                ("save", 0),
                ("limit", 1),
                ("produce", 0, ((2, 20, "good"), (7, 0, "good"), (4, 40, "good"), (9, 0, "good"))),
                go(0, 22),
                ("stop", 0),
                ("put_back", 0, 0),
                ("copy", 0, 4),
                ("restore", 2, 4, False),
            ),
        ),
    ),
    (
        "as-many-versions-again",
        "an older copy of the quarantine is put back and written to until it has as many versions as were seen: what another checkpoint "
        "had put there since was taken for seen",
        Schedule(
            Setting(),
            (
                ("produce", 0, ((6, 0, "good"),)),
                ("produce", 0, ((2, 20, "poison"), (4, 40, "poison"))),
                go(0, 12),
                ("keep",),
                ("limit", 1),
                ("produce", 0, ((3, 30, "poison"), (5, 50, "poison"))),
                go(0, 12),
                ("stop", 0),
                ("rebase", 0, "table", False, (), 0, ()),
                ("bring_back", (1,), False),
                ("optimize", 1),
                ("replace", 1, True),
            ),
        ),
    ),
    (
        "another-of-its-number",
        "a copy of the target of before a rebase is put back and written to until it has a commit of the number at which the rebase began: "
        "the baseline counted as in force, and the next rebase began behind what the copy lacks",
        Schedule(
            SMALL,
            (
                ("produce", 0, ((0, 0, "good"), (7, 0, "good"))),
                go(0, 10),
                ("stop", 0),
                ("rebase", 0, "table", False, (), 0, ()),
                ("produce", 0, ((6, 0, "good"), (7, 0, "good"))),
                ("produce", 0, ((6, 0, "good"), (7, 0, "good"))),
                go(0, 24),
                ("stop", 0),
                ("rebase", 0, "table", False, (), 0, ()),
                ("copy", 0, 5),
                ("restore", 0, 1, False),
            ),
        ),
    ),
    (
        "restored-in-between",
        "the quarantine is restored between a run's look at it and its last commit there, and what that left out cleaned up before the "
        "next start: the RESTORE was there, of what it had jumped over nothing",
        Schedule(
            Setting(partitions=1, ledger_every=1, skips_by_statistics=False),
            (
                ("produce", 0, ((4, 40, "poison"), (3, 30, "good"), (1, 10, "poison"))),
                go(0, 9),
                go(0, 3, at=1, then=("restore", 1, 1, False)),
                ("clean", 1, 1),
            ),
        ),
    ),
    (
        "ledger-replaced-at-work",
        "the ledger is replaced while a run is at work, which goes on to append to it: of the batches before, also those with records in "
        "quarantine, the ledger knows nothing, and takes them for projected; then the quarantine is dropped",
        Schedule(
            Setting(partitions=1, ledger_every=1, skips_by_statistics=False),
            (
                go(0, 1),
                ("produce", 0, ((1, 10, "poison"), (5, 50, "good"), (2, 20, "good"))),
                go(0, 4),
                go(0, 5),
                go(0, 4, at=1, then=("replace", 2, False)),
                ("drop", 1),
            ),
        ),
    ),
    (
        "read-again-not-yet",
        "a rebase to the earliest has read nothing yet, the quarantine is dropped, and the rebase that is named begins there, too: what it "
        "was to read again for the quarantine ended where it began, and the next one went past the lost record as past any that was read",
        Schedule(
            Setting(limit=9),
            (
                ("produce", 0, ((1, 0, "good"), (2, 0, "good"), (3, 0, "poison"))),
                go(0, 40),
                ("stop", 0),
                ("rebase", 0, "earliest", False, (), 0, ()),
                ("drop", 1),
                ("rebase", 0, "table", False, (), 0, ()),
                ("rebase", 0, "latest", False, (), 0, ()),
            ),
        ),
    ),
    (
        "in-force-again",
        "the target is restored to before its batches, another checkpoint is rebased, which tells that they ended before the first, and "
        "the target is restored to after them: that the quarantine had been dropped meanwhile nobody noticed",
        Schedule(
            Setting(limit=9),
            (
                POISON,
                go(0, 40),
                ("stop", 0),
                ("restore", 0, 1, False),
                ELSEWHERE,
                ("drop", 1),
                ("restore", 0, 1, False),
                ("rebase", 0, "latest", False, (), 0, ()),
            ),
        ),
    ),
    *(
        (
            "last-one-left-out",
            f"of an epoch with two batches in quarantine the last is restored away, and a rebase ends it before that; then the quarantine "
            f"is dropped{more}: of the batch that is in force nobody asked",
            Schedule(
                Setting(limit=9),
                (
                    *(POISON, go(0, 40), POISON, go(0, 40), ("stop", 0), ("restore", 0, 1, False)),
                    *(("rebase", 0, "latest", True, (), 0, ()), THREE, go(0, 40), ("stop", 0), *cleaned, ("drop", 1)),
                ),
            ),
        )
        for more, cleaned in (("", ()), (", and the log cleaned up", (("clean", 0, 0),)))
    ),
    (
        "put-back-behind-a-rebase",
        "the quarantine is restored and the target replaced, and a rebase begins anew, since nothing in force proves that the quarantine "
        "lacks anything; before it has read it all again the target is put back from a copy, and the next rebase begins where that ends",
        Schedule(
            Setting(),
            (POISON, go(0, 13), ("kill", 0), ("keep",), *BEGIN_ANEW, ("bring_back", (0,), False)),
        ),
    ),
    *(
        (
            "restored-forward",
            f"the quarantine is {how}, the target restored to before its batch, and a rebase takes the quarantine for whole, since nothing "
            "in force proves the contrary; then the target is restored to after the batch, as TABLE_REWOUND itself offers",
            Schedule(Setting(limit=9), (POISON, go(0, 40), ("stop", 0), *harm, ("rebase", 0, kind, False, (), 0, ()), FORWARD)),
        )
        for how, harm, kind in (
            ("dropped", (("drop", 1), ("restore", 0, 1, False)), "table"),
            ("restored", (("restore", 1, 1, False), ("restore", 0, 1, False)), "table"),
            ("dropped after that", (("restore", 0, 1, False), ("drop", 1)), "earliest"),
        )
    ),
    (
        "restored-forward",
        "the same with a batch of another checkpoint, which the rebase did not know and the ledger does not have",
        Schedule(
            Setting(limit=9, ledger_every=50),
            (POISON, go(0, 40, place=1), ("kill", 0), ("replace", 1, True), FORWARD, ("rebase", 0, "table", False, (), 0, ()), FORWARD),
        ),
    ),
    (
        "gap-told-twice",
        "the ledger is lost, a rebase tells again of a gap that an epoch before it had jumped over, and the checkpoint of that epoch is "
        "put back: it told of its gap once more",
        Schedule(
            Setting(limit=9),
            (
                *(THREE, go(0, 40), ("stop", 0), THREE, ("rebase", 0, "latest", True, (), 0, ()), POISON, go(0, 40), ("stop", 0)),
                *(("save", 0), ("drop", 2), ("rebase", 0, "table", False, (), 0, ()), ("put_back", 0, 0), POISON, go(0, 40)),
            ),
        ),
    ),
    (
        "own-again",
        "an older checkpoint is put back behind a rebase that had ended its epoch, the target restored forward, and a copy of the "
        "quarantine put back that has as many versions as that checkpoint had seen: of its own batches only the first was looked for",
        Schedule(
            Setting(limit=9),
            (
                *(POISON, go(0, 40), ("stop", 0), go(0, 40), OTHER, go(0, 40), ("stop", 0), ("save", 0), FORWARD),
                *(("rebase", 0, "table", False, (), 0, ()), FORWARD, ("copy", 1, 1), ("put_back", 0, 0)),
            ),
        ),
    ),
    (
        "gone-on",
        "another checkpoint goes on after a rebase that knew it, and a copy of the quarantine is put back that lacks what it has put there "
        "since: the rebase was taken to have seen that",
        Schedule(
            Setting(limit=9),
            (
                *(("produce", 0, ((1, 10, "good"),)), go(0, 40, place=1), ("kill", 0), ("rebase", 0, "table", False, (), 0, ()), POISON),
                *(go(0, 40, place=1), ("kill", 0), ("copy", 1, 1), ("rebase", 0, "table", False, (), 0, ())),
            ),
        ),
    ),
    (
        "hole-of-an-old-table",
        "a RESTORE to before the rebase in the moment between the last look and the MERGE, in a table whose log Delta has begun to clean "
        "up: what is before the first batch was taken for cleaned, though the log has the rebase's version, and not in force",
        Schedule(
            Setting(limit=9),
            (
                *(("produce", 0, ((1, 10, "good"),)), go(0, 40), THREE, go(0, 40), ("stop", 0), ("rebase", 0, "table", False, (), 0, ())),
                *(("clean", 0, 1), go(0, 3), LATE, go(0, 40, at=2, then=FORWARD), ("kill", 0)),
            ),
        ),
    ),
    (
        "hole-of-an-old-table",
        "the same without a rebase: the RESTORE goes to an OPTIMIZE, and leaves out a batch that the ledger has",
        Schedule(
            Setting(limit=9),
            (
                *(("produce", 0, ((1, 10, "good"),)), go(0, 40), ("produce", 0, ((2, 20, "good"),)), go(0, 40), ("optimize", 0), THREE),
                *(go(0, 40), ("stop", 0), ("clean", 0, 1), go(0, 3), LATE, go(0, 40, at=2, then=FORWARD), ("kill", 0)),
            ),
        ),
    ),
)
