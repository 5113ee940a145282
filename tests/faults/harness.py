"""Real drivers in real processes, killed for real: what the fault tests start, strike and ask.

Nothing here sleeps to wait for a state: every wait looks for the state itself, with a deadline. Every process of a test carries
the test's mark in its environment; by it the test proves that none is left, and its end finds what a failed test left behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ingest.local.producer import produce_sample
from ingest.local.sample import ORDERS
from tests.oracle import Run, judge_live
from tests.oracle_sources import Commit, read_log

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "INGEST_TEST_MARK"
# Generous: a start costs 10 s on a quiet machine of two cores, and a loaded one must not fail a test.
DEADLINE_S = 120.0
POLL_S = 0.02

# Few columns, so that a batch takes a moment; rules and limits as contracts have them.
CONTRACT = """\
pipeline: shop
table: {table}
source: {{topic: {topic}, format: json, max_records_per_batch: {batch}, isolation_level: {isolation}}}
columns:
  - {{name: order_id, type: STRING, nullable: false}}
  - {{name: customer_id, type: STRING, nullable: false}}
  - {{name: status, type: STRING, nullable: false}}
  - {{name: currency, type: STRING, nullable: false}}
  - {{name: amount, type: "DECIMAL(18,2)", nullable: false}}
  - {{name: ordered_at, type: TIMESTAMP, nullable: false}}
event_id: [order_id]
event_time: ordered_at
rules:
  - {{name: amount_not_negative, check: amount >= 0}}
  - {{name: status_known, check: "status IN ('placed', 'paid', 'shipped', 'cancelled')"}}
quarantine: {{max_share: {max_share}, min_records: 1000}}
"""
PAYLOAD = ("customer_id", "status", "currency", "amount", "ordered_at")


def until[T](look: Callable[[], T | None], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Poll until `look` returns something true; fails with `what` after the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(POLL_S)
    return found
