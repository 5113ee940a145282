"""Effects: whatever happens to a call, it is done once, refused, or held for a person."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from ingest.delivery.database import schema
from ingest.delivery.database.database import connect
from ingest.delivery.effects import Accepted, Answer, Declined, Effects, HttpApi, State, Unknown
from ingest.delivery.effects.effect_report import settle
from ingest.lab.payment_service import PaymentService
from ingest.runtime.errors import InvalidInput, Refused
from tests.database.effects_scene import TIMEOUT_S, Payments, emptied, http_api, request
from tests.polling import until


@pytest.fixture(scope="module")
def shared(new_database: Callable[[], str]) -> Iterator[Engine]:
    made = connect(new_database())
    schema.migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def engine(shared: Engine) -> Engine:
    """One database for this module's tests, empty for each of them."""
    return emptied(shared)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PaymentService]:
    with PaymentService(tmp_path / "charges.jsonl") as running:
        yield running


@pytest.fixture
def payments(engine: Engine, service: PaymentService) -> Payments:
    return Payments(engine, service)


BEFORE = ("error_before", "close_before")
AFTER = ("error_after", "close_after", "hang_after")


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def test_a_call_is_made_once_however_often_its_event_comes(payments: Payments) -> None:
    charge = payments.offers("look-up")
    first = charge.perform("order-1", request("order-1"))
    second = charge.perform("order-1", request("order-1"))
    assert (first.state, first.reference, first.again) == (State.SUCCESS, "ch_1", False)
    assert (second.state, second.reference, second.again) == (State.SUCCESS, "ch_1", True)
    payments.charged_once(["order-1"])
    assert payments.history("order-1") == ["SENDING", "SUCCESS"] and payments.service.requests == {"POST": 1}


@pytest.mark.parametrize(
    ("offers", "fault"),
    [
        *(("look-up", fault) for fault in ("error_before", "hang_after")),
        *(("keys", "close_after"), ("look-up and keys", "error_after")),
        *(slow("look-up", fault) for fault in ("close_before", "error_after", "close_after")),
        *(slow("keys", fault) for fault in (*BEFORE, "error_after", "hang_after")),
        *(slow("look-up and keys", fault) for fault in (*BEFORE, "close_after", "hang_after")),
    ],
)
def test_an_unknown_outcome_is_settled_by_a_look_up_or_by_the_key(payments: Payments, offers: str, fault: str) -> None:
    charge = payments.offers(offers)
    payments.service.fault(fault)
    done = charge.perform("order-1", request("order-1"))
    assert done.state is State.SUCCESS and not done.again
    payments.charged_once(["order-1"])
    assert payments.history("order-1")[:2] == ["SENDING", "UNKNOWN"]
    if offers == "look-up" and fault in AFTER:
        assert payments.history("order-1") == ["SENDING", "UNKNOWN", "SUCCESS"], "found, not sent again"
        assert payments.service.requests["POST"] == 1


@pytest.mark.parametrize("fault", ["close_after", "error_before", *map(slow, ("close_before", "error_after", "hang_after"))])
def test_without_a_look_up_and_without_keys_an_unknown_outcome_is_held_and_never_repeated(payments: Payments, fault: str) -> None:
    charge = payments.offers("neither")
    payments.service.fault(fault)
    done = charge.perform("order-1", request("order-1"))
    assert done.state is State.HELD and "neither a look-up nor idempotency keys" in (done.detail or "")
    assert charge.perform("order-1", request("order-1")).again
    assert charge.reconcile() == {}
    assert payments.service.requests["POST"] == 1 and payments.charges()["order-1"] == (fault in AFTER)


@pytest.mark.parametrize("offers", ["neither", *map(slow, ("look-up", "keys", "look-up and keys"))])
def test_a_call_that_did_not_reach_the_api_is_sent_when_the_api_is_back(payments: Payments, offers: str) -> None:
    charge = payments.offers(offers)
    charge.perform("order-0", request("order-0"))  # leaves an open connection behind
    payments.service.stop()
    with ThreadPoolExecutor() as pool:
        performing = pool.submit(charge.perform, "order-1", request("order-1"))
        until(lambda: payments.states().get("order-1") == "WAITING" and len(payments.history("order-1")) >= 4, "two refused sends", 10)
        payments.service.start()
        assert performing.result().state is State.SUCCESS
    assert payments.charges() == {"order-0": 1, "order-1": 1} and payments.row("order-1").attempts == 1
    assert set(payments.history("order-1")) == {"SENDING", "WAITING", "SUCCESS"}


@pytest.mark.parametrize("fault", ["unauthorized", *map(slow, ("unavailable", "too_many"))])
def test_an_api_that_asks_to_come_back_is_called_again_even_without_look_up_and_keys(payments: Payments, fault: str) -> None:
    charge = payments.offers("neither")
    payments.service.fault(fault)
    began = time.monotonic()
    assert charge.perform("order-1", request("order-1")).state is State.SUCCESS
    assert fault == "unauthorized" or time.monotonic() - began >= 1, "not before Retry-After"
    payments.charged_once(["order-1"])
    assert payments.history("order-1") == ["SENDING", "WAITING", "SENDING", "SUCCESS"]


def test_an_earlier_unknown_send_stays_unknown_when_the_next_one_does_not_reach_the_api(payments: Payments) -> None:
    """Else the third send would go out without another look-up, although the first may have been done in the meantime."""
    charge = payments.offers("look-up")
    for fault in ("error_before", "unauthorized"):
        payments.service.fault(fault)
    assert charge.perform("order-1", request("order-1")).state is State.SUCCESS
    states = payments.history("order-1")
    assert states.count("SENDING") == 3 and "WAITING" not in states and states[-2:] == ["SENDING", "SUCCESS"]
    assert payments.row("order-1").attempts == 2, "the refused send does not count"
    payments.charged_once(["order-1"])


def test_a_declined_call_fails_and_is_not_repeated(payments: Payments) -> None:
    payments.service.declines_over_cents = 500
    charge = payments.offers("look-up")
    done = charge.perform("order-1", request("order-1", 501))
    assert done.state is State.FAILED and done.detail is not None and "402" in done.detail and "card declined" in done.detail
    assert charge.perform("order-1", request("order-1", 501)).again and charge.reconcile() == {}
    assert payments.service.requests["POST"] == 1 and payments.charges() == {}


def test_a_decline_whose_answer_was_lost_is_found_by_the_look_up(payments: Payments) -> None:
    payments.service.declines_over_cents = 500
    payments.service.fault("close_after")
    assert payments.offers("look-up").perform("order-1", request("order-1", 501)).state is State.FAILED
    assert payments.service.requests["POST"] == 1


def test_a_look_up_that_fails_is_repeated_and_nothing_is_sent_meanwhile(payments: Payments) -> None:
    charge = payments.offers("look-up and keys")
    payments.service.fault("close_after")
    payments.service.fault("look_up_error", 3)
    assert charge.perform("order-1", request("order-1")).state is State.SUCCESS
    assert payments.history("order-1") == ["SENDING", *["UNKNOWN"] * 4, "SUCCESS"] and payments.service.requests["POST"] == 1


def test_a_look_up_that_forgets_does_no_harm_if_the_api_honours_keys(payments: Payments) -> None:
    charge = payments.offers("look-up and keys")
    payments.service.forgets = True
    payments.service.fault("close_after")
    assert charge.perform("order-1", request("order-1")).state is State.SUCCESS
    assert payments.service.requests["POST"] == 2, "sent twice under one key"
    payments.charged_once(["order-1"])


def test_limit_a_look_up_that_forgets_doubles_the_call_if_the_api_ignores_keys(payments: Payments) -> None:
    """What no client can prevent: the API denies what it did, and does it again."""
    charge = payments.offers("look-up")
    payments.service.forgets = True
    payments.service.fault("close_after")
    assert charge.perform("order-1", request("order-1")).state is State.SUCCESS
    assert payments.charges() == {"order-1": 2}


@pytest.mark.parametrize(("settle_s", "charges"), [slow(3.0, 1), (0.1, 2)], ids=["long enough", "limit: too short"])
def test_settle_s_keeps_a_slow_first_request_from_being_overtaken_by_a_second(payments: Payments, settle_s: float, charges: int) -> None:
    """The service charges after 1.5 s, and the client gives up after 0.6 s. `settle_s` promises how long that can take at most."""
    charge = payments.offers("look-up", settle_s=settle_s)
    payments.service.slow_s = 1.5
    payments.service.fault("slow_before")
    assert charge.perform("order-1", request("order-1")).state is State.SUCCESS
    until(lambda: payments.charges()["order-1"] == charges, f"{charges} charge(s)", 5)
    assert payments.service.requests["POST"] == charges


def test_a_key_that_the_api_may_have_forgotten_by_now_is_not_sent_again(payments: Payments) -> None:
    api = http_api(payments.service.url, "keys")
    api.key_valid_s = 3.0  # no longer than the lease: the request could arrive after the key was forgotten
    payments.service.fault("close_after")
    done = payments.effects(api).perform("order-1", request("order-1"))
    assert done.state is State.HELD and "for that long" in (done.detail or "") and payments.charges() == {"order-1": 1}


def test_a_key_that_was_forgotten_while_the_call_waited_for_its_turn_is_not_sent_again(payments: Payments) -> None:
    """It may be sent for 1 s (its validity less the lease), and the rate lets the next call through after 2 s."""
    api = http_api(payments.service.url, "keys")
    api.key_valid_s = 2.2
    payments.service.fault("close_after")
    done = payments.effects(api, lease_s=1.2, rate_per_s=0.5).perform("order-1", request("order-1"))
    assert done.state is State.HELD and "for that long" in (done.detail or "")
    assert payments.service.requests["POST"] == 1 and payments.charges() == {"order-1": 1}
    history = payments.history("order-1")  # a stalled machine may not get as far as a second SENDING
    assert history[:2] == ["SENDING", "UNKNOWN"] and history[-1] == "HELD"


def test_a_key_that_was_forgotten_during_the_look_up_is_not_sent_again(payments: Payments) -> None:
    class SlowLookUp(HttpApi):
        def look_up(self, key: str) -> Accepted | Declined | Unknown | None:
            found = super().look_up(key)
            time.sleep(1.2)
            return found

    payments.service.forgets = True
    payments.service.fault("close_after")
    api = SlowLookUp(
        payments.service.url, look_up_url=payments.service.url + "?key={key}", key_valid_s=2.2, settle_s=600, timeout_s=TIMEOUT_S
    )
    charge = payments.effects(api, lease_s=1.2)
    payments.left_open(charge, ["order-1"])
    until(lambda: charge.reconcile() == {State.UNKNOWN: 1}, "the call is due, and looked up", 10)
    assert payments.service.requests["POST"] == 1 and "still be under way" in payments.row("order-1").detail


def test_a_databases_clock_that_was_set_back_does_not_prolong_the_validity_of_a_key(
    payments: Payments, caplog: pytest.LogCaptureFixture
) -> None:
    """The row is 25 hours old. A database that was set back by two hours says 23, and its clock is compared with the worker's."""
    api = http_api(payments.service.url, "keys")
    api.key_valid_s = 86_400.0
    payments.service.fault("close_after")
    charge = payments.effects(api)
    payments.left_open(charge, ["order-1"])
    payments.as_if("begun_at = now() - interval '25 hours', created_at = now() - interval '23 hours', next_at = now()")
    assert charge.reconcile() == {State.HELD: 1} and payments.service.requests["POST"] == 1
    assert "the database's clock was set back by 7,200 s" in payments.row("order-1").detail and "set back by 7,200 s" in caplog.text


def test_a_databases_clock_that_was_set_ahead_does_not_shorten_the_wait_for_a_request_under_way(payments: Payments) -> None:
    """The request was sent a minute ago. A database that was set ahead by two hours says two hours."""
    charge = payments.offers("look-up", settle_s=600)
    payments.service.fault("close_before")
    payments.left_open(charge, ["order-1"])
    ahead = "now() - interval '2 hours 1 minute'"
    payments.as_if(f"begun_at = now() - interval '1 minute', created_at = {ahead}, lease_until = {ahead}, next_at = now()")
    assert charge.reconcile() == {State.UNKNOWN: 1} and payments.service.requests["POST"] == 1
    assert "the database's clock was set ahead by 7,200 s" in payments.row("order-1").detail


def test_a_call_that_stays_unknown_is_held_after_its_attempts(payments: Payments) -> None:
    charge = payments.offers("keys", attempts=3)
    payments.service.fault("error_before", 10)
    done = charge.perform("order-1", request("order-1"))
    assert done.state is State.HELD and "sent 3 times" in (done.detail or "") and "500" in (done.detail or "")
    assert payments.service.requests["POST"] == 3 and payments.row("order-1").attempts == 3


def held(payments: Payments) -> Effects:
    charge = payments.offers("neither")
    payments.service.fault("close_before")
    assert charge.perform("order-1", request("order-1")).state is State.HELD
    return charge


@pytest.mark.parametrize(("decision", "state"), [("success", State.SUCCESS), slow("failed", State.FAILED)])
def test_a_person_says_what_became_of_a_held_call(payments: Payments, decision: str, state: State) -> None:
    charge = held(payments)
    settle(payments.engine, "charge", "order-1", decision, "asked the bank", "ann")  # type: ignore[arg-type]
    assert charge.perform("order-1", request("order-1")).state is state and charge.reconcile() == {}
    assert payments.history("order-1") == ["SENDING", "UNKNOWN", "HELD", state] and payments.service.requests["POST"] == 1
    row = payments.row("order-1")
    assert (row.worker, row.detail) == ("person ann", "asked the bank")


@pytest.mark.parametrize("first", ["HELD", slow("FAILED")])
def test_a_person_sends_a_call_again_and_the_reconciler_does_it(payments: Payments, first: str) -> None:
    charge = held(payments)
    if first == "FAILED":
        settle(payments.engine, "charge", "order-1", "failed", "a mistake", "ann")
    settle(payments.engine, "charge", "order-1", "send-again", "not on the statement", "ann")
    assert payments.charges() == {} and charge.reconcile() == {State.SUCCESS: 1}
    payments.charged_once(["order-1"])
    assert payments.history("order-1")[-3:] == ["WAITING", "SENDING", "SUCCESS"]


def test_a_person_cannot_change_a_call_that_has_succeeded_is_under_way_or_does_not_exist(payments: Payments) -> None:
    def decide() -> None:
        settle(payments.engine, "charge", "order-1", "failed", "why not", "ann")

    with pytest.raises(InvalidInput, match="EFFECT_UNKNOWN"):
        decide()
    refused: list[Refused] = []

    def on_step(step: str) -> None:
        if step == "called":
            with pytest.raises(Refused, match="EFFECT_BUSY") as error:
                decide()
            refused.append(error.value)

    payments.offers("look-up", on_step=on_step).perform("order-1", request("order-1"))
    with pytest.raises(Refused, match="EFFECT_DONE"):
        decide()
    assert len(refused) == 1 and payments.states() == {"order-1": "SUCCESS"}


def test_two_workers_with_several_threads_make_each_call_once(payments: Payments) -> None:
    events = [f"order-{number}" for number in range(20)]
    workers = [payments.offers("look-up", worker=f"w{number}") for number in range(2)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda at: workers[at % 2].perform(events[at // 4], request(events[at // 4])), range(80)))
    assert Counter(each.state for each in done) == {State.SUCCESS: 80}
    payments.charged_once(events)
    assert payments.service.requests == {"POST": 20}


def test_two_reconcilers_share_the_open_calls_and_repeat_none(payments: Payments) -> None:
    events = [f"order-{number}" for number in range(20)]
    charge = payments.offers("look-up", settle_s=0)
    for fault in ("close_before", "close_after"):
        payments.service.fault(fault, 10)
    payments.left_open(charge, events)
    assert payments.states() == dict.fromkeys(events, "UNKNOWN")
    gate = threading.Barrier(2)

    def reconcile(number: int) -> int:
        reconciler, settled = payments.offers("look-up", settle_s=0, worker=f"r{number}"), 0
        gate.wait()
        while set(payments.states().values()) != {"SUCCESS"}:
            settled += reconciler.reconcile()[State.SUCCESS]
        return settled

    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(reconcile, range(2)))
    assert sum(shares) == 20 and min(shares) > 0
    payments.charged_once(events)
    assert payments.service.requests == {"POST": 30, "GET": 20}


def test_a_worker_that_was_paused_beyond_its_lease_does_not_call(payments: Payments) -> None:
    """It finds out right before the call. Another worker has settled the row by then."""
    other = payments.offers("look-up")

    def on_step(step: str) -> None:
        if step == "sending":
            until(lambda: other.reconcile() == {State.SUCCESS: 1}, "another worker has taken over", 20)

    paused = payments.offers("look-up", lease_s=2.0, on_step=on_step)
    done = paused.perform("order-1", request("order-1"))
    assert done.state is State.SUCCESS and payments.service.requests["POST"] == 1
    payments.charged_once(["order-1"])
    assert payments.history("order-1").count("SENDING") == 2


def test_a_worker_that_was_paused_beyond_its_lease_and_not_missed_calls_with_a_new_one(payments: Payments) -> None:
    def on_step(step: str) -> None:
        if step == "sending" and payments.row("order-1").step == 1:
            until(lambda: payments.row("order-1").lease_until < datetime.now(UTC), "the lease has ended", 20)

    done = payments.offers("neither", lease_s=2.0, on_step=on_step).perform("order-1", request("order-1"))
    assert done.state is State.SUCCESS
    assert payments.history("order-1") == ["SENDING", "WAITING", "SENDING", "SUCCESS"], "certainly not sent, so not held"


def test_calls_are_spaced_by_the_rate_over_all_threads(payments: Payments) -> None:
    charge = payments.offers("look-up", rate_per_s=10)
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: charge.perform(f"order-{number}", request(f"order-{number}")), range(8)))
    assert time.monotonic() - began >= 0.7
    assert len(payments.charges()) == 8


def test_the_wait_for_the_rate_ends_when_the_worker_is_stopped_and_leaves_the_call_to_the_next_one(payments: Payments) -> None:
    """The rate lets the second call through after 20 s."""
    slow, asked = payments.offers("look-up", rate_per_s=0.05, lease_s=60), list[float]()
    payments.left_open(slow, ["order-1"])

    def stop() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 1

    payments.service.fault("error_before")
    payments.left_open(payments.offers("look-up"), ["order-2"])
    for event_id in ("order-2", "order-3"):
        asked.clear()
        began = time.monotonic()
        done = slow.perform(event_id, request(event_id), stop=stop)
        assert done.state in (State.UNKNOWN, State.WAITING) and time.monotonic() - began < 10
    assert payments.states() == {"order-1": "SUCCESS", "order-2": "UNKNOWN"}, "a call that nobody has begun has no row"
    began = time.monotonic()
    assert payments.offers("look-up", lease_s=60).perform("order-2", request("order-2")).state is State.SUCCESS
    assert time.monotonic() - began < 30, "the row is due at once, not after the lease"


@pytest.mark.parametrize("event_id", ["a" * 255, "€ & ? # / \r\n %41", "\u202e日本語" * 50])
def test_every_event_id_has_a_key_that_headers_and_urls_carry(payments: Payments, event_id: str) -> None:
    charge = payments.offers("look-up")
    payments.service.fault("close_after")
    assert charge.perform(event_id, request(event_id)).state is State.SUCCESS
    payments.charged_once([event_id])


@pytest.mark.parametrize("event_id", ["", "a" * 256, "a\0b", "\ud800"])
def test_an_event_id_that_cannot_be_stored_is_refused(payments: Payments, event_id: str) -> None:
    with pytest.raises(InvalidInput, match="EFFECT_EVENT_ID"):
        payments.offers("look-up").perform(event_id, b"{}")
    assert payments.states() == {}


class OddApi:
    """An API of one's own: it fails in an unforeseen way, and then declines in words that PostgreSQL cannot store."""

    key_valid_s, has_look_up, settle_s, timeout_s = float("inf"), False, 0.0, 1.0

    def __init__(self) -> None:
        self.calls = 0

    def send(self, request: bytes, key: str) -> Answer:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("NUL \0")
        return Declined("NUL \0 and half a pair \ud83d")

    def look_up(self, key: str) -> Accepted | Declined | Unknown | None:
        raise NotImplementedError


def test_an_exception_of_an_api_is_an_unknown_outcome_and_nul_in_its_words_is_replaced(payments: Payments) -> None:
    done = payments.effects(OddApi()).perform("order-1", b"{}")
    assert (done.state, done.detail) == (State.FAILED, "NUL ? and half a pair ?")
    assert payments.history("order-1") == ["SENDING", "UNKNOWN", "SENDING", "FAILED"]


def test_an_event_that_comes_with_another_request_keeps_its_first_one(payments: Payments, caplog: pytest.LogCaptureFixture) -> None:
    charge = payments.offers("look-up")
    charge.perform("order-1", request("order-1", 100))
    assert charge.perform("order-1", request("order-1", 200)).again
    assert [each["amount_cents"] for each in payments.service.charges] == [100] and "another request" in caplog.text


def test_wrong_options_and_missing_tables_are_refused(payments: Payments, new_database: Callable[[], str]) -> None:
    api = http_api(payments.service.url)
    for wrong in ({"attempts": 0}, {"lease_s": 1.0}, {"rate_per_s": 0}, {"backoff_s": 0}):
        with pytest.raises(InvalidInput, match="EFFECT_OPTION"):
            payments.effects(api, **wrong)
    with pytest.raises(InvalidInput, match="EFFECT_OPTION"):
        Effects("a:b", api, payments.engine)
    with pytest.raises(Refused, match="SCHEMA_MISSING"):
        Effects("charge", api, connect(new_database()))
