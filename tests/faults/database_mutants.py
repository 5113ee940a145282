"""Mutants of outbox, database sink and effects: name, test that fails, guarantee, file, and alternating old and new text."""

from __future__ import annotations

RELAYS = "database/test_relay_killed.py::test_"
CALLS = "database/test_effects.py::test_"
SEND = "self.api.send(row.request, idempotency_key(self.name, row.event_id))"

DATABASE_MUTANTS = (
    (
        "the event is not in the transaction of its row",
        "database/test_outbox_event.py::test_order_and_event_are_committed_together_or_not_at_all",
        "I10",
        "delivery/outbox/event.py",
        "        core.execute(_STORE",
        '        core.engine.connect().execution_options(isolation_level="AUTOCOMMIT").execute(_STORE',
    ),
    (
        "an event takes no lock of its aggregate",
        "database/test_outbox_event.py::test_events_of_an_aggregate_are_numbered_in_the_order_in_which_their_transactions_commit",
        "I10",
        "delivery/outbox/event.py",
        '.select_from(select(_lock).subquery("locked"))',
        "",
    ),
    (
        "a record's key is not its aggregate",
        "database/test_relay.py::test_events_are_published_in_order_as_debezium_would_and_marked_with_their_offsets",
        "I10",
        "delivery/outbox/unpublished.py",
        "self.aggregate_id.encode(), [",
        "self.event_id.encode(), [",
    ),
    (
        "every relay leads",
        f"{RELAYS}of_three_relays_one_leads_and_when_it_dies_another_takes_over",
        "I10",
        "delivery/outbox/leadership.py",
        "            if not taken:",
        "            if False:",
    ),
    (
        "the next leader does not fence the former one",
        f"{RELAYS}a_paused_relay_that_wakes_up_behind_its_successor_publishes_nothing",
        "I10",
        "delivery/outbox/leadership.py",
        'ExactlyOnce(f"oncelake-outbox-{identity}"',
        'ExactlyOnce(f"oncelake-outbox-{identity}-{id(self)}"',
    ),
    (
        "a sink does not compare the epoch of its claim",
        "database/test_sink.py::test_an_owner_that_is_overtaken_in_the_middle_of_its_work_is_fenced_and_nothing_is_doubled",
        "I11",
        "delivery/sink/claims.py",
        "sink_offset.c.epoch == claim.epoch, sink_offset.c.next_offset == claim.next_offset",
        "sink_offset.c.epoch >= 0",
    ),
    (
        "a sink takes every event id for a new one",
        "database/test_sink.py::test_copies_within_a_batch_across_batches_and_across_partitions_are_stored_once_and_counted",
        "I11",
        "delivery/sink/store.py",
        " if row.duplicates == copies[row.event_id]}",
        "}",
    ),
    (
        "each send of a call has another key",
        f"{CALLS}an_unknown_outcome_is_settled_by_a_look_up_or_by_the_key",
        "I12",
        "delivery/effects/calls.py",
        SEND,
        SEND.replace("row.event_id", 'f"{row.event_id}-{row.attempts}"'),
    ),
    (
        "a worker calls although its lease has ended",
        f"{CALLS}a_worker_that_was_paused_beyond_its_lease_does_not_call",
        "I12",
        "delivery/effects/calls.py",
        "        if uptime() > until:",
        "        if False:",
    ),
    (
        "a key is sent although the API may have forgotten it by now",
        f"{CALLS}a_key_that_was_forgotten_while_the_call_waited_for_its_turn_is_not_sent_again",
        "I12",
        "delivery/effects/calls.py",
        "self._send(row, stop, key_until if key_known else math.inf)",
        "self._send(row, stop)",
    ),
    (
        "the database's clock alone says how old a call is",
        f"{CALLS}a_databases_clock_that_was_set_back_does_not_prolong_the_validity_of_a_key",
        "I12",
        "delivery/effects/effect_row.py",
        "age_s + max(moved_s, 0)",
        "age_s",
    ),
    (
        "a record is acknowledged before its call is settled",
        "database/test_effects_consumer.py::test_a_stop_while_the_api_is_down_leaves_records_unacknowledged_for_the_next_run",
        "I12",
        "delivery/effects/effect_consumer.py",
        "                stuck.add(place)",
        "                pass",
    ),
)
