"""A Delta table as the direct writer last saw it: its metadata, transaction ids and live files, brought forward commit by commit.

It is loaded once a start, through the log's checkpoint. Each look then reads our own last commit again and requires the same bytes: a table
that was dropped and made again with as many versions, restored, or replaced by a copy shows there. Then it reads the next versions until
one is absent. The transaction id comes from these commits, never from a checksum file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from ingest.contract.definition import Contract
from ingest.decode.partition_value import kind_of, text_of, value_of
from ingest.delta import contract_change, log_errors
from ingest.delta.batch_commit import Snapshot
from ingest.delta.commit import Commit, parse_commit
from ingest.delta.delta_log import DeltaLog
from ingest.delta.direct_fit import refuse_unfit, unfit
from ingest.delta.reachable import reverts
from ingest.delta.table_state import TableState
from ingest.runtime.canonical_json import read_json
from ingest.runtime.errors import RunStopped
from ingest.runtime.files import Files, local_path

if TYPE_CHECKING:
    from ingest.delta.id_index import IdIndex

MILLISECOND = timedelta(milliseconds=1)
# The actions that decide how a table is to be written (PROTOCOL.md, Actions).
DESCRIBING = frozenset({"metaData", "protocol", "domainMetadata"})


@dataclass(frozen=True)
class DataFile:
    """A live file. `least` and `greatest` hold bounds by column as Python values; a column without a bound may hold any value.

    `uri` is the file as the log names it: the action that removes it repeats this text, because delta-rs compares texts. `path` is its
    place: relative to the table's folder, or absolute, as in a shallow clone. A file outside of the folder is another table's; it is read.
    `partition_values` has the partition columns, which are not in the file, as text; they are bounds, too. `partition.read` reads its rows
    with them.
    """

    uri: str
    path: str
    size: int
    rows: int | None
    partition_values: Mapping[str, str | None]
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)

    def removal(self, at_ms: int, *, data_change: bool = True) -> dict[str, Any]:
        """The action that removes the file from the table."""
        about = {"path": self.uri, "deletionTimestamp": at_ms, "dataChange": data_change, "extendedFileMetadata": True}
        return {"remove": {**about, "partitionValues": dict(self.partition_values), "size": self.size}}


class LiveTable:
    """The table at `path`. `state` is None while there is no table. `ids` is the index of its event ids, if it has one.

    The direct writer must know every feature that the table uses, and a target must match its `contract`. Only metadata and protocol decide
    that, so it is asked at the load and whenever a commit changes them.
    """

    def __init__(self, files: Files, path: str, contract: Contract | None = None) -> None:
        self.path = path
        self._contract = contract
        self.ids: IdIndex | None = None
        self.log = DeltaLog(files, path)
        self.state: TableState | None = None
        self.live: dict[str, DataFile] = {}
        self._files = files
        self._seen: tuple[int, bytes] | None = None  # the newest commit that was looked at
        self._kinds: dict[str, str] = {}

    @property
    def version(self) -> int:
        """The newest version that was looked at; -1 without a table."""
        return self.state.version if self.state is not None else -1

    @property
    def snapshot(self) -> Snapshot:
        """Id, version and stamp of the newest version that was looked at."""
        assert self.state is not None, "the table exists"
        return self.state.snapshot

    def load(self) -> TableState | None:
        """Read the whole table anew. Raises what `DeltaLog.state` raises, InvalidInput DIRECT_UNFIT and Refused CONTRACT_CHANGED."""
        state = self.log.state()
        if state is not None:
            self._refuse(state)  # before deltalake opens the table, which has errors of its own for what it does not know
            self._kinds = _kinds(state.schema)
            self.live = {file.path: self._partitioned(file) for file in files_at(self.path, state.version)}
            self._seen = state.version, self._files.read(self.path_of(state.version)) or b""
        self.state = state
        return state

    def path_of(self, version: int) -> str:
        """The file of a commit."""
        return f"{self.path}/_delta_log/{version:020}.json"

    def look(self) -> list[Commit]:
        """Bring the snapshot forward; returns the commits since the last look, ours included.

        Raises RunStopped TABLE_REWOUND or QUARANTINE_REWOUND if the table is not the one of the last look, or has lost its content since.
        Raises InvalidInput DIRECT_UNFIT and Refused CONTRACT_CHANGED if somebody has changed it so that this writer must not go on.
        """
        self.refuse_another()
        found = []
        while (written := self._files.read(self.path_of(self.version + 1))) is not None:
            commit = self._applied(self.version + 1, written)
            if reverts(commit):
                raise self._changed(f"version {commit.version} is a {commit.operation}")
            found.append(commit)
        return found

    def refuse_another(self) -> None:
        """Raises as `look` if the newest commit that was looked at is not there any more, byte for byte."""
        if self._seen is None:
            return
        version, data = self._seen
        if (self._files.read(self.path_of(version)) or b"") != data:
            raise self._changed(f"its version {version} is missing or different: it was dropped, or a copy was put in its place")

    def wrote(self, data: bytes) -> Commit:
        """Take our own commit of the next version into the snapshot."""
        return self._applied(self.version + 1, data)

    def _applied(self, version: int, data: bytes) -> Commit:
        try:
            actions = [read_json(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise log_errors.log_damaged(self.path, self.path_of(version)) from error
        if not actions:  # engines take such a file for a commit, and go on behind it
            raise log_errors.log_damaged(self.path, self.path_of(version))
        if any((action.get("add") or {}).get("deletionVector") is not None for action in actions):  # its rows are not those of the file
            raise unfit(self.path, "has files with deletion vectors")
        commit = parse_commit(version, actions)
        stamp = next((str(each["commitInfo"].get("txnId") or "") for each in actions if "commitInfo" in each), "")
        state = replace((self.state or TableState(-1)).after(actions), version=version, stamp=stamp or self.log.stamp(version))
        if any(not DESCRIBING.isdisjoint(action) for action in actions):
            self._refuse(state)  # first: the next look asks again
            self._kinds = _kinds(state.schema)
        self.state = state
        for action in actions:
            if "remove" in action:
                self.live.pop(place(self.path, action["remove"]["path"]), None)  # other engines may escape it another way
        for action in actions:
            if "add" in action:
                added = self.described(action["add"])
                self.live[added.path] = added
        self._seen = version, data
        return commit

    def _refuse(self, state: TableState) -> None:
        """As a start judges a table: another writer may have changed it since."""
        refuse_unfit(state, self.path)
        if self._contract is not None:
            contract_change.refuse_state(self._contract, self.path, state)

    def described(self, add: Mapping[str, Any]) -> DataFile:
        stats = read_json(add.get("stats") or "{}", parse_float=Decimal)
        least, greatest = (self._values(stats.get(key) or {}) for key in ("minValues", "maxValues"))
        values = add.get("partitionValues") or {}
        path = place(self.path, add["path"])
        return self._partitioned(DataFile(add["path"], path, int(add["size"]), stats.get("numRecords"), values, least, _not_cut(greatest)))

    def _partitioned(self, file: DataFile) -> DataFile:
        """The file with its partition values as bounds. Raises InvalidInput DIRECT_UNFIT for one that is not of the column's type."""
        found = {}
        for name, text in file.partition_values.items():
            kind = kind_of(self._kinds.get(name))
            try:
                if kind is None:
                    raise ValueError(f"{name} is no partition column")
                found[name] = value_of(text, kind)
            except ValueError as error:
                raise unfit(self.path, f"has a partition {name}={text}, which cannot be read") from error
        found = {name: value for name, value in found.items() if value is not None}
        return replace(file, least={**file.least, **found}, greatest={**file.greatest, **found}) if found else file

    def _values(self, bounds: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: _value(self._kinds.get(name, ""), value) for name, value in bounds.items() if not isinstance(value, dict)}
        return {name: value for name, value in found.items() if value is not None}

    def _changed(self, found: str) -> RunStopped:
        name = ".".join(self.path.split("/")[-3:-1])  # the folders of pipeline and table
        return RunStopped(
            "QUARANTINE_REWOUND" if self.path.endswith("quarantine") else "TABLE_REWOUND",
            f"{self.path} was changed during the run: {found}.",
            expected="a table from which no other process removes committed batches.",
            remedy=f"`ingest seek {name} --to table` reads the missing records again. If you can, bring the table back to its newest state "
            "first.",
        )


def _kinds(schema: str) -> dict[str, str]:
    """The type of each column whose values can be compared."""
    return {each["name"]: each["type"] for each in read_json(schema)["fields"] if isinstance(each["type"], str)}


def _value(kind: str, value: Any) -> Any:
    """A bound from JSON as a Python value of the column's type; None if Python cannot express it, such as the year 10,000."""
    try:
        if value is None or kind == "string":
            return value
        if kind == "date":
            return date.fromisoformat(value)
        if kind.startswith("timestamp"):
            return datetime.fromisoformat(value)
        if kind.startswith("decimal"):
            return Decimal(value)
        return float(value) if kind in ("float", "double") else value
    except (ValueError, TypeError, ArithmeticError):
        return None


def place(table: str, uri: str) -> str:
    """The place of a file of the log: its URI is relative to the table, or absolute (PROTOCOL.md, Add File). Raises DIRECT_UNFIT."""
    scheme = urlparse(uri).scheme
    if scheme == "file":
        return str(local_path(uri))
    if scheme and "://" in uri:  # else a colon in a relative path
        raise unfit(table, f"has files in another store ({scheme}://)")
    return unquote(uri)


def _not_cut(greatest: dict[str, Any]) -> dict[str, Any]:
    """The greatest values that no value exceeds: Delta in Spark cuts those of times to the millisecond."""
    found = {}
    for name, value in greatest.items():
        if not isinstance(value, datetime):
            found[name] = value
        elif value.replace(tzinfo=None) <= datetime.max - MILLISECOND:  # the last one of the calendar has no value after it
            found[name] = value + MILLISECOND
    return found


def _texts(path: str, values: Mapping[str, Any]) -> dict[str, str | None]:
    """Partition values as text. Raises InvalidInput DIRECT_UNFIT for one without a text, such as bytes that are not UTF-8."""
    try:
        return {name: text_of(value) for name, value in values.items()}
    except ValueError as error:
        raise unfit(path, f"has partition values that have no text: {error}") from error


def files_at(path: str, version: int) -> list[DataFile]:
    """The live files of a version, through deltalake, which reads the log's checkpoint."""
    import pyarrow as pa
    from deltalake import DeltaTable

    rows = pa.table(DeltaTable(str(local_path(path)), version=version).get_add_actions(flatten=False))
    found = []
    columns = {name: rows[name].to_pylist() for name in rows.column_names}
    nothing: Sequence[Any] = [{}] * rows.num_rows
    for at, name in enumerate(columns["path"]):
        least, greatest = ((columns.get(key, nothing)[at] or {}) for key in ("min", "max"))
        found.append(
            DataFile(
                name,
                place(path, name),
                columns["size_bytes"][at],
                columns["num_records"][at],
                _texts(path, columns.get("partition", nothing)[at] or {}),
                {key: value for key, value in least.items() if value is not None and not isinstance(value, dict)},
                _not_cut({key: value for key, value in greatest.items() if value is not None and not isinstance(value, dict)}),
            )
        )
    return found
