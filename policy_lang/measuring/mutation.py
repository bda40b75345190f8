"""Which small changes of a policy its own tests notice; for each that they do not, a test that does.

A change that makes no difference in any run is not held against the tests, as far as a search can tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.verify.both import Parted
from engine.verify.compare import Compared, compare
from engine.verify.verdicts import Budget
from policy_lang.cases import Case
from policy_lang.comparing.structure import rows
from policy_lang.measuring.mutants import Mutant, mutants
from policy_lang.measuring.shortest import shortest, texts
from policy_lang.testing.outcome import run
from policy_lang.verifying.written import Testing, Written

Fate = Literal["noticed", "same", "survived"]

Progress = Callable[[int, int], None]
"""Called with how many changes were tried, and how many there are."""

_SECONDS = 5.0
"""For telling one change from the policy."""


class Judged(NamedTuple):
    """One change: a test fails with it, nothing is decided otherwise with it, or neither. ``test`` would notice it."""

    mutant: Mutant
    fate: Fate
    test: Written | None = None


class Mutation(NamedTuple):
    """All changes of a file that were ``tried``, of ``there`` in all: fewer if the time was over. Those that leave no
    policy are not ``judged``."""

    path: str
    judged: list[Judged]
    tried: int
    there: int

    @property
    def noticed(self) -> int:
        return sum(one.fate == "noticed" for one in self.judged)

    @property
    def counted(self) -> int:
        """Those that make a difference."""
        return sum(one.fate != "same" for one in self.judged)

    @property
    def survivors(self) -> list[Judged]:
        return [one for one in self.judged if one.fate == "survived"]


def mutation(
    policy: Policy, testing: Testing, cases: Sequence[Case], seconds: float, progress: Progress = lambda n, of: None
) -> Mutation:
    """Try every change. ``cases`` must pass as the policy is."""
    until = time.monotonic() + seconds
    made = list(mutants(policy, testing.path))
    judged: list[Judged] = []
    for number, make in enumerate(made):
        if time.monotonic() > until:
            return Mutation(testing.path, judged, number, len(made))
        progress(number, len(made))
        if (mutant := make()) is not None:
            judged.append(_Judge(policy, testing, cases, mutant).judge(until))
    return Mutation(testing.path, judged, len(made), len(made))


class _Judge:
    def __init__(self, policy: Policy, testing: Testing, cases: Sequence[Case], mutant: Mutant) -> None:
        self.policy, self.testing, self.cases, self.mutant = policy, testing, cases, mutant
        self.changed = compile(mutant.policy)

    def judge(self, until: float) -> Judged:
        if any(run(self.changed, case).failure is not None for case in self.cases):
            return Judged(self.mutant, "noticed")
        title, why = f"a change is noticed: {self.mutant.what.replace('`', '')}", ""
        for agent in ("", self.mutant.agent) if self.mutant.agent else ("", *(a.name for a in self.policy.agent)):
            if agent == "" and self.mutant.agent:
                continue  # an agent's block decides nothing of the policy's own runs
            old, new = (p.of_agent(agent) if agent else p for p in (self.policy, self.mutant.policy))
            seconds = max(0.5, min(_SECONDS, until - time.monotonic()))
            found = compare(_alone(old), _alone(new), Budget(seconds=seconds), agent=agent)
            if (test := self._test(title, agent, compile(old), found)) is not None:
                return Judged(self.mutant, "survived", test)
            why = why or _unknown(found)
        why = why or self._unsearched()
        if not why:
            return Judged(self.mutant, "same")
        return Judged(self.mutant, "survived", Written(title, why_not=why))

    def _unsearched(self) -> str:
        """What differs, and no search looks at."""
        beside = [
            r.name for r in rows(self.policy, self.mutant.policy) if r.weight != "searched" and r.change != "same"
        ]
        return f"no search looks at `{beside[0]}`" if beside else ""

    def _test(self, title: str, agent: str, compiled: Compiled, found: Compared) -> Written | None:
        good = [text for s in found.shown for text in self._texts(title, agent, compiled, s.run)]
        best = shortest(good)
        return Written(title, best) if best else None

    def _texts(self, title: str, agent: str, compiled: Compiled, run: Parted) -> list[str]:
        return [text for text in texts(title, agent, run.first, compiled, []) if self._notices(title, text)]

    def _notices(self, title: str, text: str) -> bool:
        """Does the test pass as the policy is, and fail with the change?"""
        cases = [case for case in self.testing.cases(f"\n{text}") if case.name == title][-1:]
        passes = bool(cases) and run(self.testing.top, cases[0]).failure is None
        return passes and run(self.changed, cases[0]).failure is not None


def _alone(policy: Policy) -> Policy:
    """What stands in agents' blocks is looked at by itself."""
    return policy.model_copy(update={"agent": (), "agents": None})


def _unknown(found: Compared) -> str:
    """Why no test was made of what was found; empty where there is nothing to be made."""
    if found.result == "equivalent":
        return ""
    return "no test can say a run that tells the two apart" if found.shown else found.why or "nothing tells them apart"


__all__ = ["Judged", "Mutation", "mutation"]
