"""The summary of a table: every figure equals what the small lake was given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ingest.delta.batch_commit import BatchId, Replay, State
from ingest.delta.posting import Key, Posting
from ingest.kafka.offsets import OffsetRange
from ingest.kafka.topic_state import TopicState
from ingest.observe.report import ledger_figures, quarantine_reasons, recent_batches
from ingest.observe.report import summary as module
from ingest.observe.report.evidence import LastProof
from ingest.observe.report.open_tables import OpenTables
from ingest.observe.report.summary import Summary
from ingest.quality.audited_version import AuditState
from ingest.recovery.state_reader import read_start_state
from ingest.runtime.errors import IngestError
from ingest.runtime.places import Places, pages_folder
from ingest.verify.proof.proof_file import sha256
from tests.unit.observe.report.report_lake import SILENT, ReportLake
from tests.unit.verify.proof_lake import CONTRACT, TOPIC, sums

pytestmark = pytest.mark.unit


@pytest.fixture
def lake(tmp_path: Path) -> ReportLake:
    return ReportLake(tmp_path)


def two_epochs(lake: ReportLake) -> None:
    """Three batches of epoch 1, ten seconds apart, and one of epoch 2 after a minute."""
    lake.batch_at(0, 0, 10, range(8), [8], gap=1)
    lake.batch_at(10, 10, 20, range(10, 18), duplicates=2)
    lake.batch_at(30, 20, 30, range(20, 30))
    lake.start()
    lake.batch_at(90, 30, 40, range(30, 40))


def test_the_sums_equal_those_of_verify(lake: ReportLake) -> None:
    two_epochs(lake)
    found, verified = lake.summary(), lake.verified()
    assert found.figures.total == verified.total
    assert (found.figures.total.batches, found.figures.epochs, found.late, found.rows) == (4, 2, 0, 36)
    assert found.figures.gap_accepted == 0


def test_offsets_that_a_seek_left_out_are_not_among_the_gaps_of_batches(lake: ReportLake) -> None:
    lake.batch(0, 10, range(9), gap=1)
    lake.seek(15, gaps=[(10, 15)])
    lake.batch(15, 20, range(15, 20))
    found = lake.summary()
    assert (found.figures.total.gap, found.figures.gap_accepted) == (1, 5)
    assert [(each.epoch, each.why, each.batches) for each in found.figures.begins] == [(2, "seek", 1), (1, "start", 1)]


def test_replayed_records_are_counted_apart_and_a_rebuild_starts_the_sums_again(lake: ReportLake) -> None:
    two_epochs(lake)
    lake.start()
    key, row = Key(3, 1, 0, 0), sums(BatchId(3, 1), 0, [9], [9])
    postings = Posting(key, "start", OffsetRange(0, 50, 50)), Posting(key, "replay", OffsetRange(0, 9, 10), 1, row)
    lake.rows([9], batch_commit=lake.batch_commit(Replay("ada"), 1, *postings))
    found = lake.summary().figures
    assert (found.total.batches, found.total.inserted, found.total.replayed) == (4, 36, 1)
    lake.swap(0, 50)
    found = lake.summary(hours=100_000).figures
    assert (found.total.batches, found.total.inserted, found.total.replayed, found.epochs) == (1, 50, 0, 5)
    begins = [(each.epoch, each.why, each.batches) for each in found.begins]
    assert begins == [(5, "start", 0), (4, "rebuild", 1), (3, "start", 0), (2, "start", 1), (1, "start", 3)]
    assert sum(each.batches for each in found.buckets) == 5, "the charts show what was done"


def test_lines_that_the_ledger_lacks_are_in_the_figures_too(lake: ReportLake) -> None:
    lake.batch_at(0, 0, 10, range(9), [9])
    lake.start()
    lake.batch(10, 20, range(10, 18), gap=2)
    lake.erase(3)
    found = lake.summary(keep=False)
    assert (found.late, found.late_left_out) == (1, False)
    whole = lake.summary()
    assert (found.figures.total, whole.late) == (whole.figures.total, 0)
    assert [(each.epoch, each.why) for each in found.figures.begins] == [(2, "start"), (1, "start")]
    lake.ledger.delete()
    assert lake.summary(keep=False).figures.total == whole.figures.total, "an empty ledger"
    lake.keep()
    lake.ledger.delete("epoch = 1")
    assert lake.summary(keep=False).figures.total == whole.figures.total, "a ledger that has some of the lines"


def test_a_batch_whose_rows_only_the_log_has_yet_is_one_batch(lake: ReportLake) -> None:
    """Delta in Spark says it with the next commit."""
    lake.batch(0, 10, range(6), [8, 9], duplicates=1, opened=True)
    lake.keep()
    said = Posting(Key(1, 2, 0, 0), "batch", target=sums(BatchId(1, 2), 0, range(6), range(6)), present=1)
    lake.rows((), batch_commit=lake.batch_commit(State(), lake.number, said))
    lake.number += 1
    total = lake.summary(keep=False).figures.total
    assert (total.batches, total.inserted) == (1, 6)


def test_a_batch_that_says_only_later_what_it_inserted_is_one_batch(lake: ReportLake) -> None:
    lake.batch(0, 10, range(6), [8, 9], duplicates=1, opened=True)
    said = Posting(Key(1, 2, 0, 0), "batch", target=sums(BatchId(1, 2), 0, range(6), range(6)), present=1)
    lake.rows((), batch_commit=lake.batch_commit(State(), lake.number, said))
    lake.number += 1
    for keep in (False, True):
        total = lake.summary(keep=keep).figures.total
        assert (total.batches, total.read, total.inserted, total.present, total.duplicate, total.quarantined) == (1, 10, 6, 1, 1, 2)


def test_too_many_batches_without_the_ledger_are_counted_but_not_summed_up(lake: ReportLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.batch_at(0, 0, 10, range(10))
    lake.batch(10, 20, range(10, 20))
    lake.batch(20, 30, range(20, 30))
    monkeypatch.setattr(module, "LATE_MAX", 1)
    found = lake.summary(keep=False)
    assert (found.late_left_out, found.figures.total.inserted) == (True, 10)


def test_buckets_have_a_round_width_no_hole_and_the_times_between_commits(lake: ReportLake) -> None:
    two_epochs(lake)
    buckets = lake.summary().figures.buckets
    assert {each.seconds for each in buckets} == {2}
    assert len(buckets) == 46 and (buckets[0].at, buckets[-1].at) == ("2026-03-01T12:00:00.000Z", "2026-03-01T12:01:30.000Z")
    with_batches = [each for each in buckets if each.batches]
    assert [(each.at[14:19], each.records_read, each.inserted, each.duplicate, each.quarantined, each.gap) for each in with_batches] == [
        ("00:00", 9, 8, 0, 1, 1),
        ("00:10", 10, 8, 2, 0, 0),
        ("00:30", 10, 10, 0, 0, 0),
        ("01:30", 10, 10, 0, 0, 0),
    ]
    # The first batch of an epoch follows none: between two epochs nobody was running.
    assert [each.interval_longest_s for each in with_batches] == [None, 10.0, 20.0, None]


def test_buckets_cover_the_hours_before_the_newest_commit_only(lake: ReportLake) -> None:
    lake.batch_at(0, 0, 10, range(10))
    lake.batch_at(7200, 10, 20, range(10, 20))
    assert sum(each.inserted for each in lake.summary(hours=24).figures.buckets) == 20
    found = lake.summary(hours=1).figures
    assert (sum(each.inserted for each in found.buckets), found.total.inserted) == (10, 20)


def test_latency_is_from_the_kafka_timestamp_and_batch_time_from_the_plan_to_the_commit(lake: ReportLake) -> None:
    for number, (took_s, old_s) in enumerate([(1, 2), (3, 5), (2, 9)]):
        lake.took_s, lake.old_s = took_s, old_s
        lake.batch_at(60 * number, 10 * number, 10 * number + 10, range(10 * number, 10 * number + 10))
    recent = lake.summary().recent
    assert recent is not None
    assert [(each.id, each.rows, each.batch_s, each.latency_median_s) for each in recent.batches] == [
        ("1/2", 10, 1.0, 2.0),
        ("1/3", 10, 3.0, 5.0),
        ("1/4", 10, 2.0, 9.0),
    ]
    assert (recent.latency_median_s, recent.batch_median_s, recent.batch_longest_s) == (5.0, 2.0, 3.0)
    assert recent.latency_p99_s == 9.0
    assert recent.records_per_s == 30 / 6


def test_only_the_newest_batches_are_timed(lake: ReportLake, monkeypatch: pytest.MonkeyPatch) -> None:
    two_epochs(lake)
    monkeypatch.setattr(recent_batches, "ROWS_MAX", 19)
    recent = lake.summary().recent
    assert recent is not None and [each.id for each in recent.batches] == ["2/2"]
    monkeypatch.setattr(recent_batches, "ROWS_MAX", 20)
    recent = lake.summary().recent
    assert recent is not None and [each.id for each in recent.batches] == ["1/4", "2/2"]


def test_reasons_are_counted_by_state_with_samples_of_open_records_only(lake: ReportLake) -> None:
    lake.batch(0, 10, (), range(10))
    lake.reason, lake.value = "bad_timestamp", b"\xff<script>\x1b[31m" + b"x" * 500
    lake.batch(10, 12, (), [10, 11])
    lake.set_state("replayed", 10)
    lake.set_state("dropped", *range(7))
    found = lake.summary()
    assert [(each.code, each.open, each.replayed, each.dropped) for each in found.quarantine] == [
        ("malformed_json", 3, 0, 7),
        ("bad_timestamp", 1, 1, 0),
    ]
    assert found.quarantined_open == 4
    assert [sample.offset for sample in found.quarantine[0].samples] == [7, 8, 9]
    (sample,) = found.quarantine[1].samples
    assert (sample.offset, sample.bytes) == (11, 514)
    assert sample.value is not None and sample.value.startswith(r"\xff<script>·[31mxxx") and sample.value.endswith("x…")
    assert len(sample.value) < 300 and sample.topic is None
    several = CONTRACT.source.model_copy(update={"topic": "", "topics": ("orders", "returns")})
    (sample,) = lake.summary(CONTRACT.model_copy(update={"source": several})).quarantine[1].samples
    assert sample.topic == "orders"


def test_no_sample_quotes_a_value_if_the_contract_has_a_sensitive_column(lake: ReportLake) -> None:
    lake.value, lake.detail = b'{"name": "Ada"}', "Ada is no number"
    lake.batch(0, 10, range(9), [9])
    open_contract = CONTRACT.model_dump(mode="json", exclude_defaults=True)
    open_contract["columns"] = [{**open_contract["columns"][0], "sensitive": True}]
    found = lake.summary(CONTRACT.model_validate(open_contract))
    assert found.samples_hidden and "Ada" not in str(found.as_dict())
    (sample,) = found.quarantine[0].samples
    assert (sample.offset, sample.bytes, sample.value, sample.detail) == (9, 15, None, None)


def test_validation_runs_are_newest_first_with_their_page_if_it_exists(lake: ReportLake) -> None:
    lake.batch(0, 10, range(10))
    page = pages_folder(lake.places) / "validations" / "b.html"
    page.parent.mkdir(parents=True)
    page.write_text("page")
    lake.quality("a", 0, None, "critical", "warning", page="/gone/validations/a.html")
    lake.quality("b", 60, None, None, page="/moved/docs/shop/orders/validations/b.html")
    first, second = lake.summary().quality
    assert (first.run_id, first.expectations, first.failed, first.critical, first.page) == ("b", 2, 0, 0, "validations/b.html")
    assert (second.run_id, second.expectations, second.failed, second.critical, second.page) == ("a", 3, 2, 1, None)


def test_a_page_outside_of_the_data_docs_is_no_link(lake: ReportLake, tmp_path: Path) -> None:
    (tmp_path / "secret.html").write_text("secret")
    lake.batch(0, 10, range(10))
    lake.quality("a", 0, None, page=str(tmp_path / "secret.html"))
    lake.quality("b", 1, None, page=f"validations/../../../../../{tmp_path.name}/secret.html")
    assert [run.page for run in lake.summary().quality] == [None, None]


def test_the_newest_proof_file_is_read_and_an_altered_one_proves_nothing(lake: ReportLake) -> None:
    lake.batch(0, 10, range(10))
    assert lake.summary().proof is None
    lake.proven()
    lake.take(3)
    path = lake.proven()
    made_at = json.loads(path.read_bytes())["made_at"]
    path.with_name("7.json").write_text("{}")
    assert lake.summary().proof == LastProof(2, made_at, False, str(path), sha256(path.read_bytes()), True)
    path.write_bytes(path.read_bytes().replace(b'"ok":false', b'"ok":true'))
    assert lake.summary().proof == LastProof(2, "", None, str(path), sha256(path.read_bytes()), False)


def test_a_proof_is_chained_only_to_the_file_that_it_names(lake: ReportLake) -> None:
    lake.batch(0, 10, range(10))
    first = lake.proven()
    assert chained(lake)
    lake.proven()
    assert chained(lake)
    genuine = first.read_bytes()
    first.write_bytes(genuine + b" ")
    assert not chained(lake)
    first.unlink()
    assert not chained(lake)


def chained(lake: ReportLake) -> bool:
    found = lake.summary().proof
    assert found is not None and found.ok is True
    return found.chained


def test_the_summary_has_the_audited_version_and_its_hold(lake: ReportLake) -> None:
    lake.batch(0, 10, range(10))
    assert lake.summary().audit == AuditState()
    lake.held()
    found = lake.summary().as_dict()["audit"]
    assert found["audited"]["version"] == found["held"]["version"] == lake.target.version()


def test_batches_that_a_run_adds_to_the_ledger_meanwhile_are_counted_once(lake: ReportLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.batch_at(0, 0, 10, range(10))
    lake.batch(10, 20, range(10, 20))

    def meanwhile(*words: Any) -> Any:
        lake.keep()
        return read_start_state(*words)

    monkeypatch.setattr(module, "read_start_state", meanwhile)
    found = lake.summary(keep=False)
    assert (found.figures.total.inserted, found.late) == (20, 1)


def test_the_status_is_the_one_of_ingest_status(lake: ReportLake) -> None:
    two_epochs(lake)
    bounds = {0: (0, 55)}
    status = lake.summary(answer=(TopicState(TOPIC, bounds),)).status
    assert (status.epoch, status.last_batch, status.ledger_batch, status.target_version) == (2, "2/2", "2/2", 4)
    silent = lake.summary(answer=SILENT).status
    assert silent.lag is None and silent.refusal is not None


def test_stored_files_are_those_of_the_newest_version(lake: ReportLake) -> None:
    two_epochs(lake)
    DeltaTable(lake.places.target).optimize.compact()
    target = next(each for each in lake.summary().stored if each.kind == "target")
    (file,) = DeltaTable(lake.places.target).file_uris()
    assert (target.rows, target.files, target.bytes, target.version) == (36, 1, Path(file).stat().st_size, 5)


def test_a_table_that_no_run_has_created_has_an_empty_summary(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "lake"), str(tmp_path / "checkpoints"), "shop", "orders")
    found = module.summary(CONTRACT, places, SILENT)
    assert (found.stored, found.recent, found.figures.total.batches, found.figures.buckets) == ((), None, 0, ())
    assert found.status.target_version is None


def test_a_table_that_cannot_be_read_is_an_error_and_the_others_are_summed_up(tmp_path: Path, lake: ReportLake) -> None:
    lake.batch(0, 10, range(10))
    lake.keep()
    other = CONTRACT.model_copy(update={"table": "broken"})
    log = Path(lake.places.lake) / "shop/broken/target/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON")
    found = module.summaries([other, CONTRACT], lake.places.lake, lake.places.checkpoints, "127.0.0.1:1", 24, 0)
    assert [each.table for each in found.tables] == ["shop.orders"] and list(found.errors) == ["shop.broken"]
    assert isinstance(found.errors["shop.broken"], IngestError) and found.made_at == "1970-01-01T00:00:00.000Z"


def test_the_summary_is_json(lake: ReportLake) -> None:
    two_epochs(lake)
    found: Summary = lake.summary()
    assert json.loads(json.dumps(found.as_dict(), default=str))["figures"]["total"]["inserted"] == 36


def test_text_in_sql_is_quoted(lake: ReportLake) -> None:
    lake.reason = "it's {odd}"
    lake.batch(0, 10, range(9), [9])
    assert [each.code for each in lake.summary().quarantine] == ["it's {odd}"]
    assert quarantine_reasons.SAMPLES_MAX == 3 and ledger_figures.BUCKETS_MAX == 60
    assert "target" in OpenTables(lake.places)
