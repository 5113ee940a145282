"""What a display hears of a table besides its batches: repairs, new epochs, and the end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.contract.definition import Contract
from ingest.kafka.kafka_options import KafkaOptions
from ingest.run.application import Application
from ingest.run.display import Display
from ingest.run.table_query import Trigger
from ingest.runtime.errors import IngestError

pytestmark = pytest.mark.unit

COLUMNS = [{"name": "id", "type": "STRING", "nullable": False}]
SOURCE = {"topic": "x", "format": "json"}
CONTRACT = Contract.model_validate({"pipeline": "t", "table": "events", "source": SOURCE, "columns": COLUMNS, "event_id": ["id"]})


class Heard(Display):
    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def note(self, text: str) -> None:
        self.events.append(("note", text))

    def ended(self, table: str, error: IngestError | None) -> None:
        self.events.append(("ended", table, error.code if error else ""))


def job(tmp_path: Path) -> Application:
    return Application([CONTRACT], str(tmp_path / "lake"), str(tmp_path / "c"), KafkaOptions("127.0.0.1:1"), "local", Trigger(once=True))


def test_a_table_that_cannot_start_has_ended_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "_listen", lambda *_, **__: None)
    heard = Heard()
    (result,) = job(tmp_path).execute(heard)
    assert result.error is not None
    assert heard.events == [("ended", "t.events", "BROKER_UNREACHABLE")] == [("ended", result.table, result.error.code)]


def test_repairs_and_new_epochs_are_notes_unless_a_display_shows_them_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.runtime.spark.jvm_exit", lambda _: None)
    heard, query = (
        Heard(),
        SimpleNamespace(contract=CONTRACT, notes=["t.events: rolled back"], maintained=[], reopen=lambda: "A new epoch is opened."),
    )
    session: Any = None
    assert job(tmp_path)._reopened(session, query, heard)  # type: ignore[arg-type]
    assert heard.events == [("note", "A new epoch is opened."), ("note", "t.events: rolled back")]


ABSENT = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")


class Ending:
    """A stream that reads until it is asked to stop, or has ended with `error`, and is finished afterwards."""

    contract = CONTRACT

    def __init__(self, error: Exception | None = None, *, starts: bool = True) -> None:
        self.error, self.starts, self.asked, self.finished = error, starts, False, False
        self.notes: list[str] = []
        self.maintained: list[str] = []

    def start(self, *_: object) -> None:
        if not self.starts:
            raise ABSENT

    def ask_to_stop(self) -> None:
        self.asked = True

    def poll(self) -> bool:
        return self.asked or self.error is not None

    def reopen(self) -> None:
        return None

    def finish(self) -> None:
        self.finished = True
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_module_that_is_not_installed_ends_the_run_after_every_table_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    first, second = Ending(), Ending(starts=False) if at == "start" else Ending(ABSENT)
    monkeypatch.setattr(Application, "_listen", lambda *_, **__: None)
    monkeypatch.setattr(Application, "_prepare", lambda *_: [first, second])
    for name, result in (("start", object()), ("end", None), ("jvm_exit", None)):
        monkeypatch.setattr(f"ingest.runtime.spark.{name}", lambda *_, result=result, **__: result)
    monkeypatch.setattr("ingest.run.platform.ensure", lambda *_: None)
    with pytest.raises(ModuleNotFoundError, match="pyarrow"):
        job(tmp_path).execute(Heard())
    assert (first.asked, first.finished, second.finished) == (True, True, at == "end")
    # After an error that concerns all tables nobody calls `finish`: what works beside the batches would keep the process.
    one = Ending()
    monkeypatch.setattr(Application, "_prepare", lambda *_: [one])
    monkeypatch.setattr(Application, "_watch", lambda *_: (_ for _ in ()).throw(OSError("the JVM is gone")))
    with pytest.raises(OSError, match="gone"):
        job(tmp_path).execute(Heard())
    assert one.asked
