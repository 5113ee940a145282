"""The audited version of a target: the newest version whose checks passed, for readers who want no unchecked row.

The authority is the folder `audited/` beside the target: one numbered file for each change, with what happened and the state after it. A
file is written in one atomic step, after a check has passed, or before the results of a failed one are stored. So a run that is killed
between judging and recording leaves the former audited version, and the next check covers the rows of a failure again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from ingest.delta.batch_commit import Snapshot
from ingest.delta.delta_log import DeltaLog
from ingest.delta.delta_sql import by_path
from ingest.runtime import numbered_files
from ingest.runtime.canonical_json import canonical_json, read_json
from ingest.runtime.errors import InvalidEnvironment, InvalidInput
from ingest.runtime.files import Files, is_local, local_path
from ingest.runtime.places import Places

SCHEMA = "oncelake/audited/1"
# What a failed check does, as the contract's key `quality` says: with these the audited version stays back until somebody releases it.
HOLDING = ("hold", "stop")


@dataclass(frozen=True)
class AuditedVersion:
    """A version of the target with this id; `stamp` identifies its commit, `at` is when it became the audited one (UTC, ISO 8601)."""

    version: int
    target_id: str
    stamp: str
    at: str


@dataclass(frozen=True)
class Hold:
    """Checks have failed since `since`, the last one at `version` of the table `target_id` (its `run_id` is in the quality table)."""

    since: str
    version: int
    run_id: str
    target_id: str = ""

    def covers(self, version: int, target_id: str) -> bool:
        """Whether it failed at this version of this table, or later. Versions of a recreated table begin anew: they say nothing."""
        return self.target_id == target_id and self.version >= version


@dataclass(frozen=True)
class AuditState:
    """The audited version of a table, and the hold that keeps it back. None: there is none."""

    audited: AuditedVersion | None = None
    held: Hold | None = None


class _Change(msgspec.Struct, frozen=True):
    """One file: what happened, and the state after it."""

    number: int
    at: str
    kind: str
    version: int
    audited: AuditedVersion | None
    held: Hold | None
    run_id: str | None = None
    by: str | None = None
    why: str | None = None


def audit_state(files: Files, places: Places) -> AuditState:
    """The current state. Raises InvalidEnvironment AUDITED_DAMAGED."""
    number, data = numbered_files.newest(files, places.audited)
    return _parsed(places, number, data)[1] if number else AuditState()


def unrecorded(files: Files, places: Places) -> bool:
    """Whether no check and no release is on record: what earlier checks found is not known."""
    return not numbered_files.numbers(files, places.audited)


def history(files: Files, places: Places) -> list[dict[str, Any]]:
    """Every change, oldest first: number, at, kind (passed, failed, released), version, run_id, by, why, and the state after it."""
    numbers = numbered_files.numbers(files, places.audited)
    return [_parsed(places, each, files.read(numbered_files.path_of(places.audited, each)) or b"")[0] for each in numbers]


def passed(files: Files, places: Places, judged: Snapshot, run_id: str) -> None:
    """The checks passed at this version of the target. It becomes the audited version, unless a hold keeps that back, or it is newer."""
    log = DeltaLog(files, places.target)

    def after(state: AuditState, at: str) -> AuditState | None:
        former = state.audited
        newer = former is None or former.version < judged.version or former.target_id != judged.table_id
        if state.held or not (newer or log.lacks(former.version, former.stamp)):  # type: ignore[union-attr]
            return None
        return AuditState(AuditedVersion(judged.version, judged.table_id, judged.stamp, at))

    _append(files, places, "passed", judged.version, after, run_id=run_id)


def failed(files: Files, places: Places, judged: Snapshot, run_id: str, why: str) -> None:
    """A check failed at this version, and the contract holds the audited version back. Recorded before the check's results are stored."""

    def after(state: AuditState, at: str) -> AuditState | None:
        if state.held and state.held.covers(judged.version, judged.table_id):
            return None
        return AuditState(state.audited, Hold(state.held.since if state.held else at, judged.version, run_id, judged.table_id))

    _append(files, places, "failed", judged.version, after, run_id=run_id, why=why)


def release(files: Files, places: Places, version: int, by: str, why: str) -> AuditState:
    """A person makes this version the audited one. That ends the hold, unless a check failed at a later version.

    Raises InvalidInput AUDITED_NOT_HELD, and AUDITED_UNREADABLE for a version that nobody can read.
    """
    log = DeltaLog(files, places.target)
    table = log.state()
    stamp = log.stamp(version) if 0 <= version <= log.newest() else ""
    wanted = AuditedVersion(version, table.id if table else "", stamp, "")
    if (because := unreadable(files, places, wanted)) is not None:
        raise InvalidInput(
            "AUDITED_UNREADABLE",
            f"{places.name} cannot be read at version {version}: {because}.",
            expected="a version of the target whose commit and files still exist.",
            remedy="name a newer one; `ingest audited show` prints the newest.",
        )

    def after(state: AuditState, at: str) -> AuditState:
        if state.held is None:
            raise InvalidInput(
                "AUDITED_NOT_HELD",
                f"nothing holds the audited version of {places.name} back.",
                expected="a failed check of a contract with `quality: hold` or `stop`.",
                remedy=f"`ingest check {places.name}` moves the audited version.",
            )
        held = state.held if state.held.covers(version + 1, wanted.target_id) else None
        return AuditState(AuditedVersion(version, wanted.target_id, stamp, at), held)

    _append(files, places, "released", version, after, by=by, why=why)
    return audit_state(files, places)


def unreadable(files: Files, places: Places, audited: AuditedVersion) -> str | None:
    """Why the target can no longer be read at this version; None if it can. On a remote lake it does not look for the data files."""
    log = DeltaLog(files, places.target)
    table = log.state()
    if table is None:
        return "there is no target"
    if table.id != audited.target_id:
        return "the target was recreated since"
    if not audited.stamp or log.stamp(audited.version) != audited.stamp:
        gone = audited.version <= log.newest()
        return "its commit was replaced, or Delta has cleaned it up" if gone else f"the newest version is {log.newest()}"
    if not is_local(places.target):
        return None
    from deltalake import DeltaTable

    try:
        paths = DeltaTable(str(local_path(places.target)), version=audited.version).file_uris()
    except Exception as error:  # deltalake has no class for what a log can lack
        return f"deltalake cannot open it: {str(error).splitlines()[0]}"
    missing = sum(not local_path(path).exists() for path in paths)
    return f"VACUUM has removed {missing} of its {len(paths)} files" if missing else None


def view_statement(places: Places, audited: AuditedVersion) -> str:
    """The statement that makes the audited version a view in Spark or on Databricks."""
    name = f"`{places.pipeline}`.`{places.table}__audited`"
    return f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {by_path(places.target)} VERSION AS OF {audited.version}"


def _append(
    files: Files, places: Places, kind: str, version: int, after: Callable[[AuditState, str], AuditState | None], **given: str
) -> None:
    """Write the next file with the state that `after` makes of the newest one; nothing if it makes None."""

    def content(number: int, former: bytes) -> bytes | None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        state = after(_parsed(places, number - 1, former)[1] if number > 1 else AuditState(), at)
        if state is None:
            return None
        change = {"schema": SCHEMA, "table": places.name, "number": number, "at": at, "kind": kind, "version": version}
        return canonical_json({**dict.fromkeys(("run_id", "by", "why")), **change, **given, **asdict(state)}).encode()

    numbered_files.append(files, places.audited, content)


def _parsed(places: Places, number: int, data: bytes) -> tuple[dict[str, Any], AuditState]:
    try:
        document = read_json(data)
        change = msgspec.convert(document, _Change)
        return document, AuditState(change.audited, change.held)
    except ValueError as error:
        raise InvalidEnvironment(
            "AUDITED_DAMAGED",
            f"{numbered_files.path_of(places.audited, number)} is damaged: {error}.",
            expected="a file that `ingest check` or `ingest audited release` wrote.",
            remedy="restore it from a backup, or move this file away, only this one, and run "
            f"`ingest check {places.name} --all`: what the file said is then forgotten, and that check judges all rows anew.",
        ) from error
