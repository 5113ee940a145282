"""Ready questions: SQL that an analyst asks of any table of a project, in the dialect that both engines share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ingest.contract.columns import event_id_columns
from ingest.contract.definition import Contract
from ingest.contract.problem import one_of
from ingest.runtime.errors import InvalidInput
from ingest.sql.catalog import KINDS, Catalog

FOLDER = Path(__file__).parent / "questions"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Question:
    """A file of ingest/sql/questions: its first comment line is the title, the others explain it in plain words.

    `sql` may contain `{target}`, `{quarantine}`, `{ledger}`, `{quality}`, `{event_time}`, `{event_id}` and `{since}`.
    """

    name: str
    title: str
    explanation: str
    sql: str

    @property
    def needs(self) -> frozenset[str]:
        """The placeholders in its SQL."""
        return frozenset(_PLACEHOLDER.findall(self.sql))

    def filled(self, values: Mapping[str, str]) -> str:
        """The SQL with every placeholder replaced. Raises KeyError for one without a value."""
        return _PLACEHOLDER.sub(lambda found: values[found.group(1)], self.sql)

    def of(self, contract: Contract, catalog: Catalog, since: datetime) -> str:
        """The SQL for one contract's tables. Raises InvalidInput QUESTION_UNFIT if a table or the event time is missing."""
        values = {"since": f"TIMESTAMP '{since.astimezone(UTC).replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"}
        for kind in KINDS:
            if name := catalog.name_of(contract, kind):
                values[kind] = _quoted(name)
        if contract.event_time:
            values["event_time"] = _quoted(contract.event_time)
        values["event_id"] = ", ".join(_quoted(name) for name in event_id_columns(contract))
        if missing := sorted(self.needs - values.keys()):
            words = {"event_time": "event_time in its contract"}
            remedies = {
                "event_time": "name a column as event_time in the contract",
                "quality": f"run `ingest check {contract.name}` first (docs/how-to/quality.md)",
            }
            remedy = remedies.get(missing[0], f"run `ingest run {contract.name}` first, or name the right --lake")
            raise InvalidInput(
                "QUESTION_UNFIT",
                f"{contract.name} has no {' and no '.join(words.get(each, f'table {each} in the lake') for each in missing)}.",
                expected=f"all tables and columns that the question {self.name} reads.",
                remedy=f"{remedy}; or ask another question (`ingest sql --questions`), or another table with --table.",
            )
        return self.filled(values)


def questions() -> dict[str, Question]:
    """Every ready question by name, ordered by name."""
    return {path.stem: _read(path) for path in sorted(FOLDER.glob("*.sql"))}


def question(name: str) -> Question:
    """The question of this name. Raises InvalidInput QUESTION_UNKNOWN."""
    known = questions()
    if name not in known:
        raise InvalidInput(
            "QUESTION_UNKNOWN",
            f"there is no question '{name}'.",
            expected=f"{one_of(known, name)}.",
            remedy="`ingest sql --questions` lists them.",
        )
    return known[name]


def contract_named(contracts: Sequence[Contract], table: str | None) -> Contract:
    """The contract named `table` or `pipeline.table`, or the only one there is. Raises InvalidInput SQL_TABLE_NEEDED."""
    named = [contract for contract in contracts if table in (None, contract.table, contract.name)]
    if len(named) != 1:
        found = f"no contract is named {table}." if not named else f"{len(named)} tables could be meant."
        expected = f"{one_of([contract.name for contract in named or contracts], table)}."
        raise InvalidInput("SQL_TABLE_NEEDED", found, expected=expected, remedy="name one of them with --table.")
    return named[0]


def _read(path: Path) -> Question:
    lines = path.read_text(encoding="utf-8").splitlines()
    head = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    body = [line for line in lines if not line.startswith("--")]
    return Question(path.stem, head[0], "\n".join(head[1:]), "\n".join(body).strip())


def _quoted(name: str) -> str:
    """A name in backticks, which both engines accept: `` `shop`.`orders` ``."""
    return ".".join(f"`{part}`" for part in name.split("."))
