"""Contracts: `tables/*.yml`, one file per table, as frozen and validated values.

A contract maps a topic to a table: columns, event id, row rules, layout. docs/reference/contracts.md describes every key. Every commit
stores the contract's `hash`, which identifies the rules that decoded the batch (I9).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, Strict, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from ingest.contract.checks import PROVENANCE, PROVENANCE_IN_RULES, RAW_COLUMNS, Parts, cross_problems
from ingest.contract.contract_file import ContractFile, read_contract_file
from ingest.contract.parts import (
    EVENT_ID_EXPECTED,
    Column,
    ControlTotal,
    EventId,
    EventIdText,
    Layout,
    Name,
    Part,
    Pipeline,
    QuarantineLimit,
    Rule,
    Suite,
    Text,
    TopicSource,
)
from ingest.contract.problem import ContractInvalid, LocatedProblem, Problem, one_of
from ingest.contract.salvage import parts_of, problems_of
from ingest.contract.sql_type import ddl
from ingest.contract.table_property import Properties, PropertiesText
from ingest.runtime.canonical_json import canonical_json
from ingest.runtime.errors import InvalidInput

__all__ = [
    "PROVENANCE",
    "PROVENANCE_IN_RULES",
    "RAW_COLUMNS",
    "Column",
    "Contract",
    "ContractInvalid",
    "ControlTotal",
    "EventId",
    "Layout",
    "Properties",
    "QuarantineLimit",
    "Rule",
    "TopicSource",
    "check_suites",
    "load_contracts",
]

FOLDER = "tables"
HASH_CHARACTERS = 16  # 64 bits of SHA-256: enough to tell a table's contracts apart, short enough to read
_LIST = Strict(False)  # YAML's lists become tuples


class Contract(Part):
    """One table's contract. Equality and hash ignore the file that it was read from."""

    pipeline: Pipeline = Field(description="a name of a-z, 0-9 and _ that starts with a letter; pipelines share only the command")
    table: Name = Field(description="a name of a-z, 0-9 and _ that starts with a letter, unique in its pipeline")
    description: Text = Field(default="", description="text that becomes the table's comment")
    source: TopicSource = Field(description="a mapping with topic (or topics, topic_pattern) and format")
    columns: Annotated[tuple[Column, ...], _LIST] = Field(
        default=(), description="a list of columns, each {name, type, nullable, comment, sensitive}; none with format raw"
    )
    event_id: EventIdText = Field(description=EVENT_ID_EXPECTED)
    event_time: Text | None = Field(
        default=None, description="the name of a TIMESTAMP, TIMESTAMP_NTZ or DATE column that contains the time of the event"
    )
    mode: Literal["insert"] = Field(default="insert", description="insert (the default, and the only mode so far)")
    rules: Annotated[tuple[Rule, ...], _LIST] = Field(default=(), description="a list of row rules, each {name, check}")
    unknown_fields: Literal["ignore", "keep", "quarantine"] = Field(
        default="ignore", description="ignore (the default), keep (as text in _unknown) or quarantine (the record)"
    )
    conflicts: Literal["batch", "table"] = Field(
        default="batch",
        description="batch (the default) or table: where to look for copies of an event id with a different payload; "
        "the later copy goes to quarantine",
    )
    quarantine: QuarantineLimit = Field(default=QuarantineLimit(), description="a mapping with max_share and min_records")
    layout: Layout = Field(default=Layout(), description="a mapping with partition_by or cluster_by")
    properties: PropertiesText = Field(default_factory=Properties, description="a mapping of Delta table properties")
    suite: Suite | None = Field(default=None, description="a path below the project that ends in .json, such as expectations/orders.json")
    quality: Literal["warn", "hold", "stop", "report"] = Field(
        default="warn",
        description="warn (the default; report is its old name), hold (the audited version stays back until it is released) or stop "
        "(hold, and a run with --check ends): what a failed check does",
    )
    control_totals: Annotated[tuple[ControlTotal, ...], _LIST] = Field(
        default=(), description="a list of control totals, each {name, sum, by, day, tolerance}"
    )

    _path: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if problems := cross_problems(self._parts()):
            details: list[InitErrorDetails] = [{"type": p.as_pydantic(), "loc": p.loc, "input": None} for p in problems]
            raise ValidationError.from_exception_data("Contract", details)
        return self

    def _parts(self) -> Parts:
        return Parts(
            format=self.source.format,
            columns=tuple((index, column.name, column) for index, column in enumerate(self.columns)),
            event_id=self.event_id,
            event_time=self.event_time,
            rules=tuple(enumerate(self.rules)),
            unknown_fields=self.unknown_fields,
            layout=self.layout,
            properties=self.properties,
            control_totals=tuple(enumerate(self.control_totals)),
        )

    @property
    def name(self) -> str:
        """`pipeline.table`."""
        return f"{self.pipeline}.{self.table}"

    @property
    def path(self) -> Path | None:
        """The file that the contract was read from; None for a contract created in Python."""
        return self._path

    @property
    def hash(self) -> str:
        """16 hex digits over the keys that decide which record becomes which row, and no others.

        Included: pipeline, table, topics (their order does not matter), format, isolation level, columns (order, name, type, nullable),
        event id, event time, mode,
        rules, unknown fields, conflicts. Excluded: all comments and descriptions, starting offsets (after the first start the table
        decides), batch size, quarantine limit, layout, properties, suite, sensitive, quality, control totals. A key that a later version
        adds is included only if it differs from its default, so that the hashes of old contracts do not change.
        """
        deciding: dict[str, Any] = {
            "pipeline": self.pipeline,
            "table": self.table,
            "source": [self.source.document, self.source.format, self.source.isolation_level],
            "columns": [[column.name, ddl(column.sql_type, comments=False), column.nullable] for column in self.columns],
            "event_id": self.event_id.document(),
            "event_time": self.event_time,
            "mode": self.mode,
            "rules": [[rule.name, rule.check] for rule in self.rules],
            "unknown_fields": self.unknown_fields,
        }
        if self.conflicts != "batch":
            deciding["conflicts"] = self.conflicts
        return hashlib.sha256(canonical_json(deciding).encode()).hexdigest()[:HASH_CHARACTERS]

    def to_json(self) -> str:
        """The whole contract as canonical JSON (sorted keys, no spaces); equal contracts give equal text."""
        return canonical_json(self.model_dump(mode="json", exclude_none=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contract) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())


def load_contracts(project: Path, names: Sequence[str] = ()) -> tuple[Contract, ...]:
    """The contracts in `project`/tables, ordered by pipeline and table: all, or those named `table` or `pipeline.table`.

    Raises ContractInvalid (an InvalidInput) with every problem of every requested file: CONTRACT_INVALID, or CONTRACT_DUPLICATE for two
    contracts of one table. Raises InvalidInput CONTRACT_NOT_FOUND for a missing folder or name, and CONTRACT_AMBIGUOUS for a table name
    that two pipelines have. A broken file that was not requested raises nothing.
    """
    folder = project / FOLDER
    paths = sorted(p for p in folder.glob("*") if p.suffix in (".yml", ".yaml"))
    if not paths:
        found = f"{FOLDER}/ contains no contract." if folder.is_dir() else f"the project has no folder {FOLDER}/."
        expected = f"one file {FOLDER}/<table>.yml for each table."
        raise InvalidInput(
            "CONTRACT_NOT_FOUND",
            found,
            expected=expected,
            remedy="write one (docs/reference/contracts.md), or name the project's folder with --project.",
        )
    read = [_read(path) for path in paths]
    contracts = [contract for _, contract in read if contract]
    broken = [file for file, contract in read if not contract]
    wanted = [file for file in broken if not names or set(names) & _names_of(file)]
    unknown = [name for name in names if not any(name in (c.table, c.name) for c in contracts)]
    if unknown and not wanted:
        wanted = [file for file in broken if not file.data]  # one of these unreadable files may be the requested contract
    problems = [file.located(problem) for file in wanted for problem in file.problems]
    if problems:
        raise ContractInvalid(problems)
    _refuse_duplicates(contracts)
    _refuse_names(names, unknown, contracts)
    chosen = [c for c in contracts if not names or {c.table, c.name} & set(names)]
    return tuple(sorted(chosen, key=lambda c: (c.pipeline, c.table)))


def _read(path: Path) -> tuple[ContractFile, Contract | None]:
    file = read_contract_file(path, f"{FOLDER}/{path.name}")
    if path.suffix == ".yaml":
        return file.stop(1, "the file's name ends in .yaml", f"{FOLDER}/{path.stem}.yml"), None
    contract = None
    if file.data is not None:
        try:
            contract = Contract.model_validate(file.data)
            contract._path = path
        except ValidationError as error:
            found = [*problems_of(error, Contract), *cross_problems(parts_of(file.data))]
            noted = {problem.loc for problem in file.problems}  # ambiguous text is already reported
            file.problems += [problem for problem in dict.fromkeys(found) if problem.loc not in noted]
    return file, None if file.problems else contract


def _names_of(file: ContractFile) -> set[str]:
    """The names under which the user may have requested a file that is not a valid contract."""
    data = file.data or {}
    table, stem = str(data.get("table")), Path(file.shown_as).stem
    return {table, f"{data.get('pipeline')}.{table}", stem}


def _refuse_duplicates(contracts: Iterable[Contract]) -> None:
    first: dict[str, str] = {}
    problems: list[LocatedProblem] = []
    for contract in contracts:
        file = ContractFile(f"{FOLDER}/{contract.path.name if contract.path else '?'}")
        if contract.name in first:
            found = f"{contract.name} is already described in {first[contract.name]}"
            file.lines = {(): 1}
            problems.append(file.located(Problem((), found, "one contract per table: two would write to the same table")))
        first.setdefault(contract.name, file.shown_as)
    if problems:
        raise ContractInvalid(problems, code="CONTRACT_DUPLICATE")


def _refuse_names(names: Sequence[str], unknown: Sequence[str], contracts: Sequence[Contract]) -> None:
    every = [contract.name for contract in contracts]
    if unknown:
        found = f"no contract named {', '.join(unknown)} in {FOLDER}/."
        expected = f"{one_of([c.table for c in contracts], unknown[0])}."
        raise InvalidInput("CONTRACT_NOT_FOUND", found, expected=expected, remedy=f"name one of them, or write {FOLDER}/{unknown[0]}.yml.")
    for name in names:
        same = [full for full in every if full.partition(".")[2] == name]
        if len(same) > 1:
            expected = f"one of {', '.join(same)}."
            raise InvalidInput(
                "CONTRACT_AMBIGUOUS", f"{len(same)} pipelines have a table {name}.", expected=expected, remedy="name pipeline.table."
            )


def check_suites(project: Path, contracts: Iterable[Contract]) -> None:
    """Raises InvalidInput SUITE_NOT_FOUND if a contract names an expectation suite whose file does not exist."""
    missing = [f"{c.name}: {c.suite}" for c in contracts if c.suite and not (project / c.suite).is_file()]
    if missing:
        remedy = "write the suite (docs/reference/contracts.md), or remove the key suite from the contract."
        raise InvalidInput(
            "SUITE_NOT_FOUND",
            f"no file for the suite of {', '.join(missing)}.",
            expected="an existing file below the project.",
            remedy=remedy,
        )
