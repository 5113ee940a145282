from __future__ import annotations
import shutil, traceback
from pathlib import Path
import pytest
from kafka import KafkaProducer
from tests.integration.lane import order, two_batches, Record
from tests.integration.records import contract
from tests.integration.refusal import MakeLane, balanced, refused
pytestmark = pytest.mark.integration

def out(*a):
    with open("/tmp/rv/out.log","a") as f: print(*a, file=f)

def opened(one, *values):
    p = KafkaProducer(bootstrap_servers=one.bootstrap_servers, acks="all", transactional_id=f"open-{id(one)}")
    p.init_transactions(); p.begin_transaction()
    for v in values: p.send(one.contract.source.topic, v.encode(), partition=0).get(timeout=30)
    return p

def attempt(what, f):
    try:
        r = f(); out(what, "OK", r); return r
    except BaseException as e:
        out(what, type(e).__name__, getattr(e,"code",""), str(e)[:600]); return e

def test_open_txn_latest(lane: MakeLane) -> None:
    out("== latest under open txn")
    one = lane(); one.send(order("a")); one.run()
    p = opened(one, order("b"))
    attempt("rebase latest", lambda: one.rebase("latest"))
    attempt("rebase latest accept", lambda: one.rebase("latest", accept_gap=True))
    attempt("run", one.run)
    attempt("run2", one.run)
    p.commit_transaction(); p.close()
    attempt("run after commit", one.run)
    attempt("rebase table", lambda: one.rebase("table"))
    attempt("run after rebase", one.run)
    out(one.ids(), [str(f) for f in one.verified().findings], one.verified().gaps_accepted)

def test_isolation(lane: MakeLane) -> None:
    out("== isolation uncommitted -> committed")
    one = lane(source={"isolation_level": "read_uncommitted"}); one.send(order("a")); 
    p = opened(one, order("b"))
    one.run(); out(one.ids())
    raw = one.contract.model_dump(mode="json")
    one.contract = one.contract.model_copy(update={"source": one.contract.source.model_copy(update={"isolation_level":"read_committed"})})
    attempt("run committed, open", one.run)
    attempt("run committed, open again", one.run)
    p.abort_transaction(); p.close()
    one.send(order("c"))
    attempt("run after abort", one.run)
    attempt("rebase table", lambda: one.rebase("table"))
    attempt("run after rebase", one.run)
    out(one.ids(), [str(f) for f in one.verified().findings])

def test_undelete(lane: MakeLane) -> None:
    out("== undelete by INSERT, spark engine too")
    from ingest.delta_sql import Spark
    from ingest.prove.verify import verify
    one = lane(); one.send(*(order(i) for i in "abcdef")); one.run()
    one.sql("DELETE FROM {} WHERE id = 'c'")
    one.sql("INSERT INTO {0} SELECT * FROM {0} VERSION AS OF 1 WHERE id = 'c'")
    for what in ("undeleted", "lost d"):
        out(what, [str(f) for f in one.verified().findings], [str(f) for f in verify(Spark(one.session), one.contract, one.places).findings])
        one.target().where("id <> 'd'").write.format("delta").mode("overwrite").option("replaceWhere","_offset >= 0").save(one.places.target)

def test_ledger_column(lane: MakeLane) -> None:
    out("== ledger column")
    one = two_batches(lane)
    one.sql("ALTER TABLE {} ADD COLUMNS (note STRING)", "ledger")
    one.sql("ALTER TABLE {} ADD COLUMNS (note STRING)", "quarantine")
    one.send(order("x"), "{")
    attempt("run", one.run)
    out([str(f) for f in one.verified().findings])
    attempt("rebase", lambda: one.rebase("earliest")); attempt("run", one.run)
    out([str(f) for f in one.verified().findings])
