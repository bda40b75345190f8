"""Breakers in whole rounds, through ``step``: who is skipped, who is the probe, when outcomes count.

A second implementation of section 7 beside the engine's: which calls of a round start, for random policies, several
tools in a round, ends in any order, people's answers, cancelled and failed probes, and time in all places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import permutations
from typing import Any

from breaker_rounds import Rounds
from hypothesis import given
from hypothesis import strategies as st
from test_breakers_laws import detectors

from engine.core.breakers import position
from engine.core.policy import Breaker, Policy, ToolRule
from engine.verify.reference_breaker import Done, ReferenceBreaker, counted

TOOLS = ("a1", "a1", "a1", "a2", "b")
ASKED = "b"
KEYS = ("1" * 64, "2" * 64)


@st.composite
def rules(draw: st.DrawFn) -> Breaker:
    reset = draw(st.sampled_from([None, 5, 5, 10]))
    return Breaker(
        glob=draw(st.sampled_from(["*", "a*", "a1", "b"])),
        trips=draw(detectors(most=2, windows=(1, 1, 2, 3))),
        reset=reset,
        probe=draw(st.sampled_from([None, 1, 1, 2])) if reset else None,
        when_open=draw(st.sampled_from(["skip", "hide"])),
        count_denied=draw(st.sampled_from(["nothing", "failure", "success"])),
        per_args=draw(st.sampled_from([False, False, True])),
        apply=draw(st.sampled_from(["round_end", "now"])),
    )


@dataclass
class Move:
    """One call of a round, and what becomes of it once it may go on."""

    tool: str
    args: str
    answer: str = "granted"
    edited: str | None = None
    status: str = "ok"
    result: str = ""
    ms: int = 0
    wait: int = 0
    """Time that passes before anything happens to it."""


MOVES = st.builds(
    Move,
    st.sampled_from(TOOLS),
    st.sampled_from(KEYS),
    st.sampled_from(["granted", "granted", "refused", "expired"]),
    st.none() | st.sampled_from(KEYS),
    st.sampled_from(["ok", "failed", "failed", "failed", "timed_out", "cancelled", "denied"]),
    st.sampled_from(["", "r" * 64]),
    st.sampled_from([0, 5]),
    st.sampled_from([0, 0, 5, 10]),
)
ROUNDS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 5, 10]), st.lists(MOVES, min_size=1, max_size=4), st.integers(0, 23), st.booleans()
    ),
    max_size=8,
)


@dataclass
class Table:
    """All breakers of a policy by tool and argument set."""

    rules: tuple[Breaker, ...]
    known: dict[tuple[int, str, str], ReferenceBreaker] = field(default_factory=dict)

    def of(self, tool: str, args: str, apply: str = "") -> list[tuple[int, ReferenceBreaker]]:
        found = []
        for i, rule in enumerate(self.rules):
            if fnmatchcase(tool, rule.glob) and apply in ("", rule.apply):
                key = (i, tool, args if rule.per_args else "")
                found.append((i, self.known.setdefault(key, ReferenceBreaker(rule))))
        return found

    def may_start(self, call: Judged, at: int) -> bool:
        mine = self.of(call.move.tool, call.args)
        return all(i in call.probes or breaker.may_start(at) for i, breaker in mine)

    def start(self, call: Judged, at: int) -> None:
        for i, breaker in self.of(call.move.tool, call.args):
            if i not in call.probes and breaker.start(at):
                call.probes.add(i)

    def give_back(self, call: Judged) -> None:
        for i, breaker in self.of(call.move.tool, call.args):
            if i in call.probes:
                breaker.give_back()
        call.probes.clear()

    def learn(self, call: Judged, at: int, apply: str) -> None:
        for i, breaker in self.of(call.move.tool, call.args, apply):
            failed = counted(breaker.rule, call.outcome)
            if failed is not None:
                done = Done(failed, call.args, call.move.result if call.ran else "", call.took)
                breaker.end(done, at, i in call.probes)
            elif i in call.probes:
                breaker.give_back()

    def hidden(self, at: int) -> tuple[str, ...]:
        found = set()
        for (i, tool, _), breaker in self.known.items():
            rule = self.rules[i]
            if rule.when_open == "hide" and not rule.per_args and not breaker.may_start(at):
                found.add(tool)
        return tuple(sorted(found))


@dataclass
class Judged:
    """A call of the round in hand, as the reference sees it."""

    move: Move
    id: str
    args: str
    probes: set[int] = field(default_factory=set)
    outcome: str = ""
    began: int = 0
    took: int = 0
    ran: bool = False
    skipped: bool = False


class Model:
    """Plays a round twice: through ``step`` and through the reference, and compares every verdict."""

    def __init__(self, breakers: tuple[Breaker, ...]) -> None:
        asks = ToolRule(glob=ASKED, ask=True, ask_within=1_000_000)
        self.rounds = Rounds(Policy(name="drawn", breakers=breakers, tools=(asks,)))
        self.table = Table(breakers)

    def round(self, passed: int, moves: list[Move], order: int, together: bool) -> None:
        run = self.rounds
        run.at += passed
        assert run.call().hidden == self.table.hidden(run.at)
        verdicts = run.propose([(move.tool, move.args) for move in moves])
        calls = []
        for move, (id, verdict) in zip(moves, verdicts, strict=True):
            call = Judged(move, id, move.args)
            calls.append(call)
            call.skipped = not self.table.may_start(call, run.at)
            wanted = "breaker" if call.skipped else "ask" if move.tool == ASKED else "execute"
            assert verdict == wanted
            if not call.skipped:
                self.table.start(call, run.at)
        going = [call for call in calls if not call.skipped]
        orders = list(permutations(going))
        going = list(orders[order % len(orders)])
        if together:
            going = [call for call in going if self.begin(call)]
            for call in going:
                self.finish(call)
        else:
            for call in going:
                if self.begin(call):
                    self.finish(call)
        for call in calls:
            if call.outcome:
                self.table.learn(call, run.at, "round_end")
            elif call.probes:
                self.table.give_back(call)
        self.compare()

    def compare(self) -> None:
        """What the engine remembers of its breakers is what the reference knows."""
        run, at = self.rounds, self.rounds.at
        rules = run.compiled.core.breakers.all
        remembered = {(rules[s.breaker].model_dump_json(), s.key): s for s in run.state.book.breakers}
        for (i, tool, args), breaker in self.table.known.items():
            rule = self.table.rules[i]
            state = remembered.get((rule.model_dump_json(), f"{tool} {args[:16]}" if args else tool))
            if breaker.where(at) == "closed":
                assert state is None or position(rule, state, at) == "closed"
            else:
                assert state is not None
                assert (state.opened, state.probing) == (breaker.opened, breaker.probe_out)

    def begin(self, call: Judged) -> bool:
        """A call that may go on: does it start?"""
        run, move = self.rounds, call.move
        run.at += move.wait
        if move.tool == ASKED and not self.answer(call):
            return False
        may = all(b.may_start(run.at) for i, b in self.table.of(move.tool, call.args, "now") if i not in call.probes)
        assert run.start(call.id) == ("execute" if may else "breaker")
        if may:
            self.table.start(call, run.at)
            call.began = run.at
        return may

    def finish(self, call: Judged) -> None:
        """It ends."""
        run, move = self.rounds, call.move
        run.at += move.ms
        run.end(call.id, move.status, move.result)
        call.outcome, call.ran, call.took = move.status, True, run.at - call.began
        self.table.learn(call, run.at, "now")

    def answer(self, call: Judged) -> bool:
        """A person answers: may the call go on?"""
        run, move = self.rounds, call.move
        edited = move.edited if move.answer == "granted" else None
        said = run.answer(call.id, move.answer, edited)
        if move.answer != "granted":
            assert said == move.answer
            call.outcome = "denied"
            self.table.learn(call, run.at, "now")
            return False
        if edited is not None and edited != call.args:
            self.table.give_back(call)
            call.args = edited
        if not self.table.may_start(call, run.at):
            assert said == "breaker"
            return False
        assert said == "execute"
        self.table.start(call, run.at)
        return True


@given(st.lists(rules(), min_size=1, max_size=3).map(tuple), ROUNDS)
def test_rounds_go_as_the_reference_says(breakers: tuple[Breaker, ...], rounds: list[Any]) -> None:
    model = Model(breakers)
    for passed, moves, order, together in rounds:
        model.round(passed, moves, order, together)
