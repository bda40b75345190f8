"""A test for each rule that no test of a file looks at: its shortest run, written down with what is decided today.

Every test is played before it is shown: it passes, and it looks at its rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.core.step import compile
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.verify.coverable import runs_to
from engine.verify.replay import NoReplay, replayed
from engine.verify.traces import TraceStep
from engine.verify.verdicts import Budget
from policy_lang.measuring.coverage import Covered, Item, Looks
from policy_lang.measuring.shortest import shortest, texts
from policy_lang.verifying.blocks import block_of
from policy_lang.verifying.written import Testing, Written


class Generated(NamedTuple):
    """A rule that no test looks at, with a test that does, or why there is none."""

    item: Item
    agent: str
    test: Written


def generated(policy: Policy, testing: Testing, covered: Sequence[Covered], budget: Budget) -> Iterator[Generated]:
    """A test for every rule that is missed, in the order of the file."""
    titles = {case.name for case in testing.cases()}
    each = Budget(budget.states, budget.seconds / max(1, len(covered)), budget.open)
    for one in covered:
        missed = [item for item in one.missed if item.kind == "rules"]
        yield from _Agent(policy, testing, one.agent, titles).tests(missed, each) if missed else ()


class _Agent:
    """The runs of one agent, or of the policy itself."""

    def __init__(self, top: Policy, testing: Testing, agent: str, titles: set[str]) -> None:
        self.top, self.testing, self.agent, self.titles = top, testing, agent, titles
        self.policy = top.of_agent(agent) if agent else top
        self.compiled = compile(self.policy)
        self.why: dict[str, str] = {}

    def tests(self, missed: Sequence[Item], budget: Budget) -> Iterator[Generated]:
        titles = {item.key: self._title(item) for item in missed}
        made: dict[str, Written] = {}
        for id, title in titles.items():
            if (test := self._spent(title, id)) is not None:
                made[id] = test
        wanted = set(titles) - set(made)
        for id, trace in runs_to(self.policy, wanted, budget):
            if id in wanted and (test := self._test(titles[id], id, trace)) is not None:
                made[id] = test
                wanted.discard(id)
        for item in missed:
            why = self.why.get(item.key, "no run to it was found in time")
            yield Generated(item, self.agent, made.get(item.key) or Written(titles[item.key], why_not=why))

    def _spent(self, title: str, id: str) -> Written | None:
        """What others have used before a run, or the time that is over before a call, is said by ``given`` alone."""
        event, _, name = id.partition(".")
        for plan in plans_of(self.policy):
            amount = quantity(RESOURCES[plan.resource].unit, plan.maximum)
            scope = plan.limit.scope
            if (event, name) == ("start", f"spent.{plan.name}"):
                lines = [f"given {plan.resource} {amount} per {scope}", f"expect stop because {plan.resource}"]
            elif (event, name) == ("call", f"late.{plan.name}"):
                lines = [f"given {plan.resource} {amount}", "when call", f"expect stop because {plan.resource}"]
            else:
                continue
            text = block_of(title, self.agent, lines)
            return Written(title, text) if self._looks(title, text, id) else None
        return None

    def _title(self, item: Item) -> str:
        """Its words, which tell what to change if it is not what you want; another one of the same gets a number."""
        title = item.what.replace("`", "")
        name, number = title, 1
        while name in self.titles:
            number += 1
            name = f"{title} ({number})"
        self.titles.add(name)
        return name

    def _test(self, title: str, id: str, trace: Sequence[TraceStep]) -> Written | None:
        try:
            played = replayed(self.compiled, trace)
        except NoReplay as problem:
            self.why.setdefault(id, f"a run that was found could not be played: {problem}")
            return None
        why: list[str] = []
        found = list(texts(title, self.agent, played, self.compiled, why))
        best = shortest([text for text in found if self._looks(title, text, id)])
        if not best:
            self.why.setdefault(id, why[0] if why and not found else "a test cannot say a run that comes to it")
        return Written(title, best) if best else None

    def _looks(self, title: str, text: str, id: str) -> bool:
        """Does it pass, and look at the rule?"""
        cases = [case for case in self.testing.cases(f"\n{text}") if case.name == title]
        looks = Looks(self.top)
        (result,) = looks.play(cases[-1:]) or (None,)
        return result is not None and result.failure is None and id in looks.rules.get(self.agent, ())


__all__ = ["Generated", "generated"]
