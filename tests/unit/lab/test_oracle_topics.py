"""How the oracle judges a table of several topics: a topic that joins is read from its beginning, and no record is mistaken for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.lab.oracle_scene import AGAIN, TOPIC_ID, Scene, batch, fence, quarantined, row, seek, transaction, value

JOINED, OTHER = "0b1f7e2c-55aa-4c9c-8f0e-2f1f4f7d9a10", "5f0c1b1e-3f0a-4f0e-9b7d-6a0c6f8a9c11"
BOTH: dict[str, Any] = {"sources": (TOPIC_ID, JOINED)}
# Where the joining topic's partition is in the tables.
MORE = (1, 0)


@pytest.fixture
def joined(good: Scene) -> Scene:
    """After the good run a topic joins, with A again, G, poison and K. The first one has got K, too, in its partition 0.

    Target versions: 4 the fence, 5 the start, 6 the batch of both. Quarantine versions: 2 the fence, 3 the poison.
    """
    good.kafka[0, 9], good.end[0] = value("K"), 10
    good.others[1] = JOINED, {(0, 0): value("A"), (0, 1): value("G"), (0, 2): b"{", (0, 3): value("K")}
    rows = [row((0, 9), "K", AGAIN), row((0, 1), "G", AGAIN, source=1)]
    begin = seek(2, {0: 9, 1: 3, MORE: 0}, **BOTH).alter(kind="start")
    good.target += [fence(2), begin, batch(AGAIN, {0: [9, 10], 1: [3, 3], MORE: [0, 4]}, rows, **BOTH)]
    good.quarantine += [fence(2), batch(AGAIN, {}, [quarantined((0, 2), AGAIN, JOINED, 1)], **BOTH)]
    events = [(name, value(name)) for name in "AGK"]
    good.manifest += [*transaction(4, "committed", ("K", value("K"))), *transaction(5, "committed", *events, topic="topic-1")]
    return good.book()


def test_a_topic_that_joins_is_judged_with_the_first_one(joined: Scene, tmp_path: Path) -> None:
    verdict = joined.judge(tmp_path)
    verdict.assert_clean()
    assert verdict.notes == ()


def at_its_end(scene: Scene) -> None:
    scene.target[5].starts[MORE] = 4
    scene.target[6].ranges[MORE] = [4, 4]
    scene.target[6].rows.pop()
    scene.quarantine.pop()
    scene.book(scene.target[6])


def later_copy(scene: Scene) -> None:
    scene.target[6].rows[0] = row((0, 3), "K", AGAIN, source=1)
    scene.book(scene.target[6])


WRONG: dict[str, tuple[Callable[[Scene], object], str]] = {
    "a record of the joining topic is lost": (
        lambda scene: scene.target[6].rows.pop(),
        "orders: topic topic-1 partition 0 offset 1: id ('G',) was committed and is lost",
    ),
    "the joining topic is read from its end": (at_its_end, "topic topic-1 partition 0 offset 1: id ('G',) was committed and is lost"),
    "its poison is mistaken for that of the first topic": (
        lambda scene: scene.quarantine.pop(),
        "topic topic-1 partition 0 offset 2: no id can be read from the record, and it is not in the quarantine: dropped",
    ),
    "a row names the first topic": (
        lambda scene: scene.target[6].rows[1].update(_source=0),
        "topic orders partition 0 offset 1 is in the target 2 times (b)",
    ),
    "the copy of the later topic becomes the row": (
        later_copy,
        "topic orders partition 0 offset 9: id ('K',) was read by version 6 and passed over; its row is that of a later copy, "
        "topic topic-1 partition 0 offset 3, of version 6 (e)",
    ),
    "its batch loses a row of the other topic": (
        lambda scene: scene.target[6].rows.append(scene.target[2].rows.pop(0)),
        "target version 6 (batch) changes epoch 1 batch 2 in source 0 partition 0 from 1 to 2 rows",
    ),
    "the first topic skips records as the other joins": (
        lambda scene: scene.target[5].starts.update({0: 8}),
        "target version 5 goes on at 8 in topic orders partition 0, which was read to 9 (f)",
    ),
    "the first topic is no longer read": (
        lambda scene: scene.target[6].ranges.pop(0),
        "target version 6: no range for topic orders partition 0, which earlier commits had (f)",
    ),
    "a topic joins without a start": (
        lambda scene: scene.target.pop(5),
        f"target version 5 reads the topic id '{JOINED}', and no start or seek leads there (f)",
    ),
    "the numbers change places": (
        lambda scene: scene.target[6].alter(sources=(JOINED, TOPIC_ID)),
        f"target version 6 means by number 1 the topic id '{TOPIC_ID}', which was '{JOINED}' before (f)",
    ),
    "a recreated topic gets the number of the joining one": (
        lambda scene: scene.target.extend([fence(3), seek(3, {0: 10, 1: 3, MORE: 0}, sources=(TOPIC_ID, OTHER))]),
        f"target version 8 means by number 1 the topic id '{OTHER}', which was '{JOINED}' before (f)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_with_several_topics_is_found(joined: Scene, tmp_path: Path, name: str) -> None:
    change, expected = WRONG[name]
    change(joined)
    found = joined.judge(tmp_path).findings
    assert any(expected in each for each in found), found
