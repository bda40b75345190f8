"""Claims as monitors: ghosts and checks over what an outsider sees of a run, as ``laws`` has them for the laws.

A claim never reads a variable of the machine, so that a mistake in the machine cannot hide in the claim's own check.
What a search through all states does not know (``Promise.open``) is read from what is seen of a real run, and decided
against the claim in a search: what such a search proves is true, and what it refutes may not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.core.claims import (
    Always,
    AtMost,
    Claim,
    Compare,
    DeedName,
    Fact,
    Facts,
    LastIs,
    Never,
    PhaseIs,
    Within,
)
from engine.core.machine.claim_amounts import AMOUNTS, Classes, classes_of
from engine.core.machine.expr import FALSE, TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of, any_of
from engine.core.machine.machine import Grant, Set, Spend, Update
from engine.core.machine.monitors import Check, Ghost, Laws, On, holds, more, seen_as
from engine.core.machine.plan import Plan, plans_of
from engine.core.machine.rules import Context
from engine.core.machine.run_laws import RUN_GHOSTS
from engine.core.machine.tool_rules import keeps_time
from engine.core.policy import Policy
from engine.core.vocabulary import DECISIONS, PHASES

COUNTED_BY = {
    "llm_calls": ("call",),
    "llm_attempts": ("call", "attempt"),
    "tool_iterations": ("round",),
    "tool_calls": ("execute", "granted", "hosted"),
    "unknown_tools": ("replied",),
}
"""The observations that count each resource that a search knows."""

UNTOLD = ("continue", "wait", "execute", "ask", "reply", "run_tools", "suspend")
"""Decisions that a search does not tell from one another: those within a round of tools."""

_LAST = {name: index for index, name in enumerate(DECISIONS)}
IDLE, CALLING, FINAL, TOOLS, SUSPENDED, STOPPING, ENDED = range(len(PHASES))

OPEN_TREE = "a search through all states does not count the agents of a run"
OPEN_GIVEN_BACK = "nothing limits `tool_calls`, and a call that was counted may be given back"
OPEN_DECISION = "a search through all states does not tell apart what is decided within a round"


@dataclass(frozen=True, slots=True)
class Promise:
    """A claim ready to be watched.

    ``watched`` are its ghosts and checks for a real run, ``explored`` those for a search through all states; ``open``
    says what such a search does not know. ``amounts`` are the classes that it tells apart of what is used. ``counts``
    is ``tool_calls`` or ``unknown_tools`` where the claim is about how many there are, so that the size of a round
    matters; else empty.
    """

    claim: Claim
    watched: Laws
    explored: Laws
    open: tuple[str, ...]
    counts: str
    amounts: tuple[Classes, ...] = ()

    def vacuous(self, held: Sequence[int]) -> str:
        """What never happened, so that nothing was shown; ``held`` says which premises of ``explored`` did."""
        says = self.claim.says
        if isinstance(says, Always) and says.implies is not None and not any(held):
            return "its premise is never so"
        if isinstance(says, AtMost) and says.n and not any(held):
            return f"no run ever does this: {says.word}"
        if isinstance(says, Never):
            witness = [i for i, check in enumerate(self.explored.checks) if check.demand == TRUE]
            if not any(held[i] for i in witness):
                return f"no run ever does this: {says.after}"
        return ""


def promises_of(
    policy: Policy, claims: Iterable[Claim] | None = None, above: Sequence[Plan] = ()
) -> tuple[Promise, ...]:
    """The claims of a policy, or others, as they are to be watched under it. ``above``: limits of its ancestors, whose
    time is over for it too."""
    return tuple(_promise(claim, policy, above) for claim in (policy.claims if claims is None else claims))


def _promise(claim: Claim, policy: Policy, above: Sequence[Plan]) -> Promise:
    real, search = _Writer(claim, policy, real=True), _Writer(claim, policy, real=False, above=above)
    watched, explored = real.laws(), search.laws()
    return Promise(claim, watched, explored, tuple(dict.fromkeys(search.open)), search.counts, search.amounts)


_UPDATES = {
    "finalized": next(g for g in RUN_GHOSTS if g.name == "finalized"),
    "running": next(g for g in RUN_GHOSTS if g.name == "running"),
    "with_people": next(g for g in RUN_GHOSTS if g.name == "with_people"),
    "falling": Ghost(
        "falling",
        0,
        (
            On("laddered", Set("falling", 1), seen_as("falls", 1)),
            On("laddered", Set("falling", 0)),
            On("call", Set("falling", 0)),
        ),
    ),
    "where": Ghost(
        "where",
        IDLE,
        (
            *(On(seen, Set("where", FINAL), seen_as("final", 1)) for seen in ("call", "attempt")),
            *(On(seen, Set("where", CALLING)) for seen in ("call", "attempt")),
            On("retry", Set("where", FINAL), holds("finalized", 1)),
            On("retry", Set("where", CALLING)),
            On("round", Set("where", TOOLS)),
            On("complete", Set("where", IDLE)),
            On("refused", Set("where", IDLE)),
            On("questioned", Set("where", SUSPENDED)),
            On("stop", Set("where", STOPPING)),
            On("end", Set("where", ENDED)),
            On("decided", Set("where", IDLE), seen_as("idle", 1)),
            On("people", Set("where", SUSPENDED), all_of(seen_as("only", 1), holds("where", TOOLS))),
            On("people", Set("where", TOOLS), all_of(seen_as("only", 0), holds("where", SUSPENDED))),
        ),
    ),
}
"""Ghosts that several kinds of claims need. ``people`` is seen of real runs only."""


@dataclass
class _Writer:
    """Writes the ghosts and checks of one claim; ``real``: for a real run, of which everything is known."""

    claim: Claim
    policy: Policy
    real: bool
    above: Sequence[Plan] = ()
    ghosts: dict[str, Ghost] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    counts: str = ""
    classes: dict[str, Classes] = field(default_factory=dict)

    @property
    def amounts(self) -> tuple[Classes, ...]:
        """The amounts that the claim compares, in one order."""
        return tuple(self.classes[name] for name in AMOUNTS if name in self.classes)

    def laws(self) -> Laws:
        match self.claim.says:
            case Always(claim=premise, implies=None):
                checks = [self._always(TRUE, self._facts(premise, known=FALSE))]
            case Always(claim=premise, implies=conclusion):
                assert conclusion is not None
                if_so, then = self._facts(premise, known=TRUE), self._facts(conclusion, known=FALSE)
                checks = [self._always(if_so, then)]
            case AtMost(n=n, word=word):
                checks = self._at_most(n, word)
            case Never(deed=deed, after=after):
                checks = self._never(deed, after)
            case Within(n=n):
                checks = self._within(n)
        return Laws(tuple(self.ghosts.values()), tuple(checks), plans_of(self.policy))

    def _check(self, seen: str, words: str, demand: Expr, premise: Expr = TRUE) -> Check:
        return Check(self.claim.name, seen, words, demand, premise)

    def _always(self, premise: Expr, demand: Expr) -> Check:
        return self._check("stands", "it is not so here", demand, premise)

    def _at_most(self, n: int, word: DeedName) -> list[Check]:
        if word == "tool_call":
            count = self._used("tool_calls", n, ("execute", "granted"))
            if count is None:
                return [self._check(seen, "it is not known how often", FALSE) for seen, _ in self._deed(word)]
        else:
            count = f"{word}s"
            cases = [On(seen, Grant(count, 1), self._below(count, n + 1, guard)) for seen, guard in self._deed(word)]
            self.ghosts[count] = Ghost(count, 0, tuple(cases))
        room = Le(Var(count), Lit(n - 1))
        return [self._check(seen, f"it is done more than {n} times", room, guard) for seen, guard in self._deed(word)]

    def _never(self, deed: DeedName, after: DeedName) -> list[Check]:
        done = f"done_{after}"
        self.ghosts[done] = Ghost(done, 0, tuple(On(seen, Set(done, 1), guard) for seen, guard in self._deed(after)))
        words = f"{deed} after {after}"
        checks = [self._check(seen, words, holds(done, 0), guard) for seen, guard in self._deed(deed)]
        return checks + [self._check(seen, "", TRUE, guard) for seen, guard in self._deed(after)]

    def _within(self, n: int) -> list[Check]:
        """Attempts count where they were decided on: what a host asks for again by itself is its own affair.

        A search does not follow agents: where the policy speaks of them, every execution counts as one more of them.
        """
        self.counts = "tool_calls"
        agents = not self.real and (self.policy.agents is not None or bool(self.policy.agent))
        if agents:
            self.open.append(OPEN_TREE)
        promised = (On("retry", Set("promised_again", 1)), On("attempt", Set("promised_again", 0)))
        self.ghosts["promised_again"] = Ghost("promised_again", 0, promised)
        tool = 2 if agents else 1
        steps = [("call", TRUE, 1), ("attempt", holds("promised_again", 1), 1), ("execute", TRUE, tool)]
        steps += [("granted", TRUE, tool), *([("spawned", TRUE, 1)] if self.real else [])]
        cases = [On(seen, Grant("admitted", by), self._below("admitted", n + 1, guard)) for seen, guard, by in steps]
        self.ghosts["admitted"] = Ghost("admitted", 0, tuple(cases))
        words = f"more than {n} steps are admitted"
        return [self._check(seen, words, Le(Var("admitted"), Lit(n - by)), guard) for seen, guard, by in steps]

    # ---- what a run does

    def _deed(self, word: DeedName) -> list[tuple[str, Expr]]:
        """The observations that are this deed, each with what must be so besides."""
        match word:
            case "finalize":
                self._need("finalized")
                first = all_of(seen_as("final", 1), holds("finalized", 0))
                return [("call", first), ("attempt", first)]
            case "extend":
                return [("extended", TRUE)]
            case "fallback":
                self._need("falling")
                return [("call", holds("falling", 1))]
            case "retry":
                return [("retry", TRUE)]
            case "call":
                return [("call", TRUE)]
            case "tool_call":
                # What a provider has executed itself is counted too, but nobody has admitted it.
                return [("execute", TRUE), ("granted", TRUE)]

    # ---- facts

    def _facts(self, facts: Facts, known: Expr) -> Expr:
        """``known`` is what a fact counts as that a search does not know."""
        each = [self._fact(fact, known, self._most(fact)) for fact in facts.facts]
        return all_of(*each) if facts.join == "and" else any_of(*each)

    def _most(self, fact: Fact) -> int:
        """The largest amount that a claim compares the fact's resource with."""
        mine = getattr(fact, "resource", "")
        return max((f.amount or 0 for f in self._compared() if f.resource == mine), default=0)

    def _compared(self) -> list[Compare]:
        """The facts of the claim that compare something."""
        says = self.claim.says
        assert isinstance(says, Always)
        every = [*says.claim.facts, *(says.implies.facts if says.implies else ())]
        return [fact for fact in every if isinstance(fact, Compare)]

    def _fact(self, fact: Fact, known: Expr, most: int) -> Expr:
        if isinstance(fact, Compare):
            found = self._compare(fact, most)
        elif isinstance(fact, PhaseIs):
            found = self._phase(fact)
        else:
            found = self._last(fact)
        return known if found is None else found

    def _compare(self, fact: Compare, most: int) -> Expr | None:
        if fact.amount is None:
            return TRUE if fact.holds(0) else FALSE
        value: Expr
        if fact.resource in COUNTED_BY:
            count = self._used(fact.resource, most)
            if count is None:
                return None
            value = Var(count)
        elif self.real:
            value = Field(fact.resource)
        elif fact.resource in AMOUNTS:
            return self._classes(fact.resource).compared(fact.op, fact.amount)
        else:
            self.open.append(OPEN_TREE)
            return None
        at_most, less = Le(value, Lit(fact.amount)), Le(value, Lit(fact.amount - 1))
        same = Eq(value, Lit(fact.amount))
        by_sign: dict[str, Expr] = {
            "<=": at_most,
            "<": less,
            ">=": Not(less),
            ">": Not(at_most),
            "=": same,
            "!=": Not(same),
        }
        return by_sign[fact.op]

    def _classes(self, resource: str) -> Classes:
        """What a search tells apart of an amount: all that the claim names of it, and what limits make of it."""
        if resource not in self.classes:
            amounts = [f.amount for f in self._compared() if f.resource == resource and f.amount is not None]
            self.classes[resource] = classes_of(resource, amounts, self.policy, self._plans(resource))
            ghost = self.classes[resource].ghost()
            self.ghosts[ghost.name] = ghost
        return self.classes[resource]

    def _plans(self, resource: str) -> list[Plan]:
        """The limits that bound it: time is over for all below a node whose time is."""
        shared = [p for p in self.above if p.resource == resource == "wall" and p.limit.scope in ("subtree", "node")]
        return [*plans_of(self.policy), *shared]

    def _phase(self, fact: PhaseIs) -> Expr:
        place = PHASES.index(fact.phase)
        self._need("finalized", "where")
        here = holds("where", place)
        if place in (TOOLS, SUSPENDED):
            self._need("running", "with_people")
            waits = all_of(holds("where", TOOLS), more("with_people"), Eq(Var("running"), Var("with_people")))
            here = any_of(here, waits) if place == SUSPENDED else all_of(here, Not(waits))
        return Not(here) if fact.negated else here

    def _last(self, fact: LastIs) -> Expr | None:
        if not self.real and fact.decision in UNTOLD:
            self.open.append(OPEN_DECISION)
            return None
        name = f"last_is_{fact.decision}"
        is_it = On("decided", Set(name, 1), seen_as("kind", _LAST[fact.decision]))
        self.ghosts[name] = Ghost(name, 0, (is_it, On("decided", Set(name, 0))))
        return holds(name, 0 if fact.negated else 1)

    # ---- ghosts

    def _used(self, resource: str, most: int, seen_by: tuple[str, ...] = ()) -> str | None:
        """The ghost that counts a resource, up to one more than ``most``; none where a search cannot."""
        name = f"claimed_{resource}"
        if resource in ("tool_calls", "unknown_tools"):
            self.counts = resource
        limited = any(p.resource == resource for p in plans_of(self.policy))
        back = resource == "tool_calls"
        if back and not limited and not self.real and self._may_give_back():
            self.open.append(OPEN_GIVEN_BACK)
            return None
        only = seen_as("unknown", 1) if resource == "unknown_tools" else TRUE
        # What may be given back is counted to the end: below a number where counting stopped nothing would be known.
        whole = self.real or (back and self._may_give_back())
        more_of: Update = Grant(name, 1)
        cases = [
            On(seen, more_of, only if whole else self._below(name, most + 1, only)) for seen in COUNTED_BY[resource]
        ]
        if back:
            cases.append(On("unstarted", Spend(name)))
        self.ghosts[name] = Ghost(name, 0, tuple(cases))
        return name

    def _may_give_back(self) -> bool:
        """Can a call that was counted be answered before it has started?"""
        return keeps_time(Context.of(self.policy)) or any(b.apply == "now" for b in self.policy.breakers)

    def _need(self, *names: str) -> None:
        for name in names:
            self.ghosts[name] = _UPDATES[name]

    def _below(self, name: str, most: int, guard: Expr = TRUE) -> Expr:
        return guard if self.real else all_of(guard, Le(Var(name), Lit(most - 1)))
