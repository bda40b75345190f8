"""A policy's laws and claims, each with a verdict: proved, refuted by a run that was played on ``step``, or not known.

The machine and what is to hold go in, verdicts come out; how a policy is written and how a verdict is shown are others'
business. Laws are searched in one go. Each claim has a search of its own, in which only its own ghosts are remembered.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.core.claims import Always, AtMost, Claim, Compare, Within
from engine.core.machine.claim_laws import Promise, promises_of
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import Plan, plans_of
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.verify.assumptions import assumptions
from engine.verify.dead import dead_lines
from engine.verify.explore import Exploration, explore, unheard
from engine.verify.graph import Longest, longest
from engine.verify.promises import ClaimWatch
from engine.verify.replay import NoReplay, Played, replayed
from engine.verify.saying import said
from engine.verify.spending import spending
from engine.verify.traces import TraceStep
from engine.verify.tripping import tripped
from engine.verify.verdicts import LAWS, Budget, Dead, Effort, Proof, Verdict
from engine.verify.wide_round import widest
from engine.verify.world import World, around

Progress = Callable[[str, int, int], None]
"""What is searched for, the states visited so far, and how far they are from the start."""

FREE, ALONE = World(), World(ancestors=False, clients=True, whole=True)
"""Everything may happen; a run with nobody above it, whose driver goes to each client once."""

PLAIN = World(ancestors=False, clients=True, pauses=False, whole=True, plain=True)
"""A run as simple as can be, for a trace that can be played and read."""


def _of_tree(trace: Sequence[TraceStep]) -> bool:
    """Does something above the run have a part in it?"""
    return any(step.fields.get("above") or step.fields.get("late_above") for step in trace)


_WIDEST = 7
"""The largest limit of tools that the rounds of a search are made large enough for."""

_DEAD_SECONDS = 5.0
"""Time to find out from which limit on dead lines would act."""

_SIMPLE = frozenset(
    (
        *("start", "call", "attempt", "round", "tool", "judged", "tool_end", "failed", "answered", "granted"),
        *("withheld", "spent", "passed"),
    )
)
"""What most runs are made of."""


def _simple(step: TraceStep) -> bool:
    """Is this a step as any reader, and any test, has it?"""
    odd = ("invalid", "above", "late_above", "delivered", "cut", "no_time")
    return step.event in _SIMPLE and not any(step.fields.get(name) for name in odd)


def silent(what: str, states: int, depth: int) -> None:
    """Nobody wants to know of progress."""


class Prover:
    """All that is proved about one policy. ``compiled`` decides when a run is played; ``agent`` is whose runs they are,
    empty for those of the policy itself."""

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        *,
        compiled: Compiled | None = None,
        agent: str = "",
        lines: frozenset[str] | None = None,
        above: Sequence[Plan] = (),
        progress: Progress = silent,
    ) -> None:
        self.above = above
        """The limits of the policy that the agent's runs are below of."""
        self.lines = lines
        """The lines that may be told to be dead; ``None``: all of them."""
        self.policy, self.budget, self.agent, self.progress = policy, budget, agent, progress
        self.compiled = compiled or compile(policy)
        self.plans = plans_of(policy)
        self.until = time.perf_counter() + budget.seconds
        self.sampled: set[str] = set()
        self.fired: dict[str, int] | None = None
        """How often each rule of the machine fired, if every state was visited."""
        self._longest: Longest | None = None
        self.cut = False
        """Whether states were left out when the laws were looked at."""

    def prove(self, claims: Sequence[Claim], *, laws: bool = True) -> Proof:
        """Verdicts about the laws, the end of every run, and these claims."""
        began = time.perf_counter()
        verdicts: list[Verdict] = []
        effort = Effort()
        if laws:
            found, effort = self.laws()
            verdicts += [*found, self._end()]
        promises = promises_of(self.policy, claims, self.above)
        verdicts += [self._claim(promise) for promise in promises]
        seconds = time.perf_counter() - began
        whole = Effort(effort.states, effort.transitions, effort.depth, seconds)
        assumed = assumptions(self.policy, self.plans, self.budget.open, self.sampled, verdicts, promises)
        return Proof(self.agent, tuple(verdicts), assumed, self._dead(), whole)

    # ---- laws

    def laws(self) -> tuple[list[Verdict], Effort]:
        """Verdicts about all laws, from one search."""
        laws = laws_of(self.policy)
        found = self._explore("laws", around(self.compiled.machine, self.policy, FREE), laws)
        self.cut = bool(found.cut)
        if not found.cut:
            self.fired = found.fired
        effort = _effort(found)
        names = [law for law in LAWS if any(check.law == law for check in laws.checks)]
        verdicts = [self._law(law, laws, found, effort) for law in names]
        return [*verdicts, self._origins(effort)], effort

    def _law(self, law: str, laws: Laws, found: Exploration, effort: Effort) -> Verdict:
        says = LAWS[law]
        broken = next((b for b in found.broken if b.law == law), None)
        if broken is not None:
            about = Verdict("law", law, "unknown", says, broken.words, effort=effort)
            return self._refuted(about, broken.trace, laws, None)
        if found.cut:
            return Verdict("law", law, "unknown", says, found.cut, effort=effort)
        mine = [held for check, held in zip(laws.checks, found.held, strict=True) if check.law == law]
        forbids = any(check.forbids for check in laws.checks if check.law == law)
        vacuous = "" if any(mine) or forbids else "nothing that it speaks of ever happens"
        return Verdict("law", law, "proved", says, vacuous=vacuous, effort=effort)

    def _origins(self, effort: Effort) -> Verdict:
        """Every rule of the machine names where it comes from; that is seen without a search."""
        rules = [rule for rules in self.compiled.machine.rules.values() for rule in rules]
        nameless = next((rule.id for rule in rules if not rule.origin), "")
        why = f"{nameless} names no line and no default" if nameless else ""
        return Verdict("law", "L15", "refuted" if nameless else "proved", LAWS["L15"], why, effort=effort)

    def _dead(self) -> tuple[Dead, ...]:
        """Lines that never act; only known where every state was visited."""
        if self.fired is None:
            return ()
        budget = replace(self.budget, seconds=min(self._seconds(), _DEAD_SECONDS))
        self.progress("dead lines", 0, 0)
        return dead_lines(self.policy, self.compiled.machine, self.fired, budget, self.lines)

    # ---- the end

    def far(self) -> Longest:
        """How much a run can spend at most."""
        if self._longest is None:
            machine = around(self.compiled.machine, self.policy, World(ancestors=False, clients=True, pauses=False))
            self.progress("the longest run", 0, 0)
            b = self.budget
            self._longest = longest(
                machine, self.plans, max_states=b.states, max_seconds=self._seconds(), max_open=b.open
            )
        return self._longest

    def _end(self) -> Verdict:
        began = time.perf_counter()
        far = self.far()
        effort = Effort(far.states, seconds=time.perf_counter() - began)
        says = "every run ends"
        if far.cut:
            return Verdict("end", "end", "unknown", says, far.cut, effort=effort)
        most = far.most
        for what, line in (("calls", "llm_calls"), ("rounds", "tool_iterations"), ("attempts", "llm_attempts")):
            if most[what] is None:
                why = f"nothing that is counted bounds its {_SPELT[what]}: a limit of `{line}` would"
                return Verdict("end", "end", "unknown", says, why, effort=effort)
        spelt = (("calls", "model call"), ("attempts", "further attempt"), ("rounds", "round"), ("tools", "tool call"))
        tools = self._tools(far)
        counted = [_many(n, word) for what, word in spelt if (n := tools if what == "tools" else most[what])]
        if tools is not None:
            says = f"{says} after at most {_listed(counted)}" if counted else f"{says} before its first call"
        else:
            bound = "; in a round there may be any number of tools, unless `tool_calls` is limited"
            says = f"{says} after at most {_listed(counted)}{bound}"
        return Verdict("end", "end", "proved", says, effort=effort)

    def _tools(self, far: Longest) -> int | None:
        """How many tools a run can have, whatever the size of its rounds."""
        if far.most["tools"] == 0:
            return 0
        most = self._most("tool_calls")
        return None if most is None else max(most, far.most["tools"] or 0)

    def _most(self, resource: str) -> int | None:
        """How many tools a run can have at most, by its tightest limit with all grants; ``None``: any number.

        Nobody can keep a model from naming tools that are not there, however many are allowed.
        """
        totals = [plan.utmost() for plan in self.plans if plan.resource == resource == "tool_calls"]
        return min(totals, default=None)

    # ---- claims

    def _claim(self, promise: Promise) -> Verdict:
        claim, says = promise.claim, said(promise.claim)
        if isinstance(claim.says, Within) and (short := self._short(claim, says)):
            return short
        if promise.counts and (wide := widest(self.compiled, claim)):
            why = f"nothing limits `{promise.counts}`, so that one round may have any number of tools"
            why = "" if self._most(promise.counts) is not None else why
            return Verdict("claim", claim.name, "refuted", says, why, played=tuple(wide), origin=claim.origin)
        world = World(clients=True, pauses=not isinstance(claim.says, Within))
        size = self._round_size(promise)
        found = self._explore(claim.name, self._machine(world, promise), promise.explored, size)
        about = Verdict("claim", claim.name, "unknown", says, origin=claim.origin, effort=_effort(found))
        if found.broken:
            return self._refuted(about, found.broken[0].trace, promise.explored, promise)
        if found.cut:
            return replace(about, why=found.cut)
        if promise.counts and not self._any_size(promise, size):
            return replace(about, why=f"it is so for rounds of at most {size} tools; larger ones were not tried")
        return replace(about, result="proved", vacuous=promise.vacuous(found.held))

    def _round_size(self, promise: Promise) -> int:
        """How many tools the rounds of a search have: enough to pass a small limit, where the claim counts them."""
        most = self._most(promise.counts)
        return self.budget.open if most is None or most >= _WIDEST else max(self.budget.open, most + 1)

    def _any_size(self, promise: Promise, size: int) -> bool:
        """Does what was found for rounds of that size hold for larger ones? It does where a limit is passed by one
        round already, or says itself what is claimed."""
        most, says = self._most(promise.counts), promise.claim.says
        if most is None or most < size:
            return most is not None
        if isinstance(says, AtMost):
            return most <= says.n
        facts = says.claim.facts if isinstance(says, Always) and says.implies is None else ()
        return bool(facts) and all(
            isinstance(f, Compare) and f.resource == "tool_calls" and f.op == "<=" and (f.amount or 0) >= most
            for f in facts
        )

    def _short(self, claim: Claim, says: str) -> Verdict | None:
        """The longest run is short enough: then no search has to count."""
        assert isinstance(claim.says, Within)
        began = time.perf_counter()
        far = self.far()
        calls, attempts, tools = far.most["calls"], far.most["attempts"], self._tools(far)
        if far.cut or calls is None or attempts is None or tools is None:
            return None
        agents = self.policy.agents is not None or bool(self.policy.agent)
        steps = calls + attempts + tools * (2 if agents else 1)
        if steps > claim.says.n:
            return None
        effort = Effort(far.states, seconds=time.perf_counter() - began)
        why = f"no run has more than {steps}"
        return Verdict("claim", claim.name, "proved", says, why, origin=claim.origin, effort=effort)

    # ---- runs

    def _refuted(self, about: Verdict, found: tuple[TraceStep, ...], laws: Laws, promise: Promise | None) -> Verdict:
        """What a search has found, if it happens on ``step``: the run itself, else one as simple as can be."""
        played, problem = self._play(found, about.name, promise)
        simple: tuple[Played, ...] = ()
        for world in (ALONE, PLAIN):
            if played and (all(map(_simple, found)) or (world is ALONE and not _of_tree(found))):
                continue
            for trace in self._others(world, about.name, laws, promise):
                run, _ = self._play(trace, about.name, promise)
                if run and (not played or len(trace) <= len(found) or _of_tree(found)):
                    found, played = trace, run
                else:
                    simple = run
        if played:
            why = self._used_by_then(played, promise) or about.why
            return replace(about, result="refuted", why=why, trace=found, played=played, simple=simple)
        opened = [run for run, _ in (self._broken(r, about.name, promise) for r in tripped(self.compiled)) if run]
        if opened:
            why = f"{about.why}; " if about.why else ""
            shortest = min(opened, key=len)
            return replace(about, result="refuted", why=f"{why}a breaker is open there", trace=found, played=shortest)
        if promise is not None and promise.open:
            return replace(about, result="unknown", why="; ".join(promise.open))
        words = f"{about.why}: " if about.why else ""
        why = f"{words}a search has found a run that could not be played: {problem}"
        return replace(about, result="unknown", why=why, trace=found)

    def _others(self, world: World, name: str, laws: Laws, promise: Promise | None) -> list[tuple[TraceStep, ...]]:
        """A shortest run of a simpler world that breaks it too, if there is one."""
        found = self._explore(name, self._machine(world, promise), laws)
        return [b.trace for b in found.broken if b.law == name][:1]

    def _machine(self, world: World, promise: Promise | None) -> Machine:
        """The machine in a world, which uses the amounts that a claim compares."""
        amounts = promise.amounts if promise else ()
        return around(spending(self.compiled.machine, amounts, self.policy), self.policy, world)

    def _play(self, trace: tuple[TraceStep, ...], name: str, promise: Promise | None) -> tuple[tuple[Played, ...], str]:
        """The run on ``step``, if it breaks what is said there too; or why not. Usage comes with replies if it can."""
        problem = ""
        ways = itertools.product((False, True), repeat=2 if any(step.event == "spent" for step in trace) else 0)
        for reports, asked in [way or (False, False) for way in ways]:
            try:
                run = replayed(self.compiled, trace, reports=reports, asked=asked)
                played, problem = self._broken(run, name, promise)
            except NoReplay as failed:
                problem = str(failed)
                continue
            if played:
                return played, ""
        return (), problem

    def _used_by_then(self, played: Sequence[Played], promise: Promise | None) -> str:
        """The amounts that the claim compares, as they are at the end of the run."""
        if promise is None or not promise.amounts:
            return ""
        watch = ClaimWatch(self.policy, [promise.claim])
        for step in played:
            watch.see(step.event, step.decision)
        used = watch.amounts()
        told = [f"{c.resource} {quantity(RESOURCES[c.resource].unit, used[c.resource])}" for c in promise.amounts]
        return f"there it has used {_listed(told)}"

    def _broken(self, played: list[Played], name: str, promise: Promise | None) -> tuple[tuple[Played, ...], str]:
        """The run up to where it breaks what is said; or what it does instead."""
        watch = ClaimWatch(self.policy, [promise.claim] if promise else [])
        for number, step in enumerate(played, 1):
            watch.see(step.event, step.decision)
            if name in watch.refuted if promise else any(b.startswith(f"{name}:") for b in watch.broken):
                return tuple(played[:number]), ""
        other = f"; it breaks {watch.broken[0]}" if watch.broken else ""
        return (), f"what `step` decides on the same events does not break it{other}"

    # ---- searches

    def _explore(self, what: str, machine: Machine, laws: Laws, size: int = 0) -> Exploration:
        told = self.progress

        def heard(states: int, depth: int) -> None:
            told(what, states, depth)

        found = explore(
            machine,
            laws,
            max_states=self.budget.states,
            max_seconds=self._seconds(),
            max_open=size or self.budget.open,
            progress=unheard if told is silent else heard,
        )
        self.sampled.update(found.sampled)
        return found

    def _seconds(self) -> float:
        return max(0.0, self.until - time.perf_counter())


def prove(
    policy: Policy,
    budget: Budget | None = None,
    *,
    claims: Sequence[Claim] | None = None,
    compiled: Compiled | None = None,
    progress: Progress = silent,
) -> Proof:
    """Laws, the end of every run, and the policy's claims (or ``claims``)."""
    prover = Prover(policy, budget or Budget(), compiled=compiled, progress=progress)
    return prover.prove(policy.claims if claims is None else claims)


def _effort(found: Exploration) -> Effort:
    return Effort(found.states, found.transitions, found.depth, found.seconds)


_SPELT = {"calls": "model calls", "rounds": "rounds", "attempts": "attempts"}


def _listed(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), *words[-1:]])


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
