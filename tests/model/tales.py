"""Random tales of a lake, and whether `ingest verify` tells them true: `python -m tests.model.tales --mode harm --seed 7 --stories 10000`.

Exit code 1 if it said that a lake balances which has lost something (LIE), or named one that is whole (FALSE ALARM), and not within a limit
that is known. Story n of a seed is the tale `seed * 1_000_003 + n`, as in explore; `--only n` plays that one again. What is judged is its
end; one that is shown is shown up to the first step at which it was judged so.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

from ingest.delta_sql import At, Unreadable
from ingest.prove import verify as prove
from ingest.prove.balance import Finding
from tests.model.contracts import contract
from tests.model.deeds import MODES, Deeds
from tests.model.delta import ModelLog, Row
from tests.model.explore import SPREAD, counted, parser_of
from tests.model.lake import Lake
from tests.model.ours import Ours
from tests.model.patched import patched
from tests.model.proof import Answers
from tests.model.world import HOME

LIE, ALARM = "LIE", "FALSE ALARM"
TARGET = ("id", "_topic_id", "_partition", "_offset")
QUARANTINE = ("topic_id", "partition", "offset", "query_id", "batch_id", "state")
# What may be said of a lake that is whole. A record that a looser contract has made a row stands open in quarantine too, until somebody
# settles it; and rows that a RESTORE or an overwrite kept, without the batches that wrote them, are of no batch until they are read again.
MEANT, LEFT_OUT = {"IN_BOTH"}, {"IN_BOTH", "ROWS_OF_NO_BATCH"}


class Tale:
    """A tale of this mode and seed, told step by step."""

    def __init__(self, mode: str, seed: int) -> None:
        self.mode, self.dice = mode, random.Random(seed)
        self.lake = Lake(self.dice)
        self.topic = [[each and (offset, *each) for offset, each in enumerate(log)] for log in self.lake.topic.partitions]
        self.ours = Ours(self.lake, self.dice)
        self.deeds = Deeds(self.lake, self.ours, self.dice)
        self.length = self.dice.randint(4, 16)
        self.told: list[str] = []

    def step(self) -> None:
        """One thing more happens: the first that there is something to do it to."""
        weights = MODES[self.mode]
        deeds, told = list(weights), ""
        while not told:
            (deed,) = self.dice.choices(deeds, list(weights.values()))
            told = deed(self.deeds)
        self.told.append(told)

    def played(self) -> Tale:
        for _ in range(self.length):
            self.step()
        return self

    def findings(self) -> Sequence[Finding]:
        """What `ingest verify` says now."""
        done = self.ours.query, self.ours.number - 1
        files = SimpleNamespace(world=self.lake)
        stands = [(prove, "files_of", lambda *_: files), (prove, "DeltaLog", ModelLog), (prove, "done_of", lambda *_: done)]
        with patched(stands):
            return prove.verify(LakeAnswers(self.lake), contract("batch", False), HOME).findings

    def judged(self) -> str:
        """LIE, or FALSE ALARM with its codes; empty if verify is right. Once harm was done it may well say more than what is lost."""
        lost, codes = self.lake.lost(), {each.code for each in self.findings()}
        if lost and not codes:
            return LIE
        false = not lost and not self.deeds.harmed and codes - (LEFT_OUT if self.ours.left_out else MEANT)
        return f"{ALARM} {', '.join(sorted(codes))}" if false else ""

    def known(self, verdict: str) -> str:
        """The limit of verify that this is put down to (docs/model.md); empty if it is none that is known.

        vacuumed: VACUUM has taken the files that would tell which rows went, of which only numbers are known. compacted: what Kafka had
        compacted when it was read again stands, and the batch that has not counted it takes it for what it has lost. cut-off: a record that
        stands in quarantine by a batch that was killed there or left out since, and whose row, of a batch before, a DELETE has taken: the
        DELETE is not counted.
        """
        codes = set(verdict.removeprefix(ALARM).strip().split(", ")) - MEANT
        if self.lake.vacuumed and (verdict == LIE or codes <= {"ROWS_DIFFER", "RECORDS_MISSING"}):
            return "vacuumed"
        compacted = {p for p in self.lake.sent if self.lake.topic.partitions[p[1]][p[2]] is None}
        if verdict == LIE and self.ours.epoch and compacted & {*self.lake.positions, *self.lake.records}:
            return "compacted"
        cut_off = {row[2] for row in self.lake.records.values()} - self.ours.in_force()
        return "cut-off" if cut_off and codes - {"ROWS_OF_NO_BATCH"} == {"ROWS_DIFFER"} else ""

    def __str__(self) -> str:
        lines = [f"topic: {log}" for log in self.topic]
        lines += [*self.told, f"lost: {self.lake.lost()}", *map(str, self.findings())]
        return "\n".join(lines)


class LakeAnswers(Answers):
    """The rows of a lake's tables, as far as VACUUM has left them."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self.lake = lake

    def _content(self, at: At) -> tuple[Sequence[str], list[Row]]:
        table = self.lake.tables[at.path]
        version = table.number if at.version is None else at.version
        if not self.lake.readable(at.path, version):
            raise Unreadable(f"{at.path} version {version}")
        rows = table.versions[version].rows.values()
        if at.path == HOME.target:
            return TARGET, [(id, *position) for id, _, position in rows]
        return QUARANTINE, [(*position, id.query_id, id.number, state) for position, _, id, state in rows]


def up_to_the_first(mode: str, seed: int, verdict: str) -> Tale:
    """The tale up to where it is judged so for the first time."""
    tale = Tale(mode, seed)
    for _ in range(tale.length):
        tale.step()
        if tale.judged() == verdict:
            break
    return tale


def main() -> int:
    """Play, and print what verify did not tell true."""
    parser = parser_of(__doc__, "stories", show="how many tales are shown (default 3)")
    parser.add_argument("--mode", choices=MODES, default="harm")
    options = parser.parse_args()
    numbers = range(options.stories) if options.only is None else [options.only]
    found: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    lost = 0
    began = time.monotonic()
    for number in numbers:
        seed = options.seed * SPREAD + number
        tale = Tale(options.mode, seed).played()
        lost += bool(tale.lake.lost())
        verdict = tale.judged()
        if verdict and (name := tale.known(verdict)) and options.only is None:
            seen[name] += 1
        elif verdict:
            found[verdict] += 1
            if sum(found.values()) <= options.show:
                print(f"story {number} of seed {options.seed}: {verdict}\n{up_to_the_first(options.mode, seed, verdict)}\n", flush=True)
    if seen:
        print("known: " + counted(seen))
    told = counted(found) or "all told true"
    took = time.monotonic() - began
    print(f"{options.mode}, seed {options.seed}: {len(numbers)} stories, {lost} of them with a loss, {took:.0f} s: {told}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
