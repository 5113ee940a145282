"""The last batch of a query up to which none is missing: what follows a hole does not count (I2).

Between the last look at the table and a MERGE somebody can restore or overwrite it: the batch that is merged then is in force,
and batches before it are not. So a commit in force proves its own batch, and those before it only as far as their commits
are in force too, down to what the ledger vouches for, or to where the query began.
"""

from __future__ import annotations

from ingest.stream.decide import LastWritten
from ingest.stream.delta_log import DeltaLog
from ingest.stream.in_force import InForce
from ingest.stream.ledger_summary import LedgerSummary
from ingest.stream.situation import CheckpointFacts

# No version of the table: the commit at which a rebase began is not in this log, though another has its number by now.
ANOTHER = -1


def stamp_of(checkpoint: CheckpointFacts, query_id: str | None) -> str:
    """What the checkpoint keeps of the commit at which the rebase of this query, its own or a former one, began; empty for none."""
    rebase = checkpoint.binding.rebase if checkpoint.binding is not None else None
    if rebase is None:
        return ""
    return rebase.stamp if query_id == checkpoint.query_id else next((f.stamp for f in rebase.former if f.query_id == query_id), "")


def baseline_of(checkpoint: CheckpointFacts, summary: LedgerSummary, query_id: str | None, log: DeltaLog) -> int | None:
    """The target's version at which a rebase began this query, by its checkpoint or the ledger; None if none has."""
    own = checkpoint.binding.rebase if checkpoint.binding is not None and query_id == checkpoint.query_id else None
    began = own or summary.begins.get(query_id or "")
    if began is None:
        return None
    stamp = stamp_of(checkpoint, query_id)
    there = stamp and log.stamp(began.table_version)
    return ANOTHER if there and there != stamp else began.table_version


def last_unbroken(chain: InForce, summary: LedgerSummary, query_id: str, baseline: int | None = None) -> LastWritten | None:
    """The last batch of `query_id` in force before which none is missing; None if there is none.

    `baseline` is the target's version at which a rebase began this query, as `baseline_of` tells it.
    """
    # Of an epoch that a rebase has ended, the ledger's last row may be one behind a hole.
    vouched = summary.last.get(query_id) if query_id not in summary.ended else None
    found: list[LastWritten] = []
    for commit in chain.commits():
        if commit.version == baseline:
            return _whole(found, 0)
        if commit.mark is not None and commit.mark.id.query_id == query_id:
            found.append(LastWritten(commit.mark, commit.version))
            if vouched is not None and commit.mark.id == vouched.mark.id:
                return _whole(found, vouched.mark.id.number - 1)
    horizon = chain.before_the_log()
    # The ledger vouches only for what Delta has cleaned up, not for a table that was deleted and made anew.
    if vouched is not None and 0 <= vouched.version <= horizon:
        return _whole(found, vouched.mark.id.number, vouched)
    if not found:
        return None
    first, oldest = found[-1].mark, min(commit.version for commit in chain.commits())
    # Where the log has the rebase's version, or the batch that the ledger vouches for, they are not in force: behind them is a hole.
    if baseline is not None and not 0 <= baseline <= horizon:
        return None
    if vouched is not None and vouched.version > horizon and first.id.number > vouched.mark.id.number:
        return None
    if horizon >= 0:
        # What was before the log nobody knows any more, but that a RESTORE has jumped over some of it, or that a rebase ended it.
        jumped = horizon < oldest - 1 or first.id.number > summary.ended.get(query_id, first.id.number) + 1
        return None if jumped else _whole(found, first.id.number - 1)
    if first.epoch == 0:
        return _whole(found, -1)
    return None if oldest > 0 else _whole(found, 0)


def _whole(found: list[LastWritten], number: int, last: LastWritten | None = None) -> LastWritten | None:
    """The last of `found` (newest first) that follows on batch `number`, which is `last`, without a hole."""
    for each in reversed(found):
        if each.mark.id.number == number + 1:
            last, number = each, number + 1
    return last
