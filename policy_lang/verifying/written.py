"""Refutations as tests of their file: made, played before they are shown, and appended to the file if asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.core.claims import Claim
from engine.core.step import Compiled
from engine.verify.replay import Played
from engine.verify.verdicts import Verdict
from policy_lang import stored
from policy_lang.cases import Case
from policy_lang.resolve import resolve
from policy_lang.source import Source
from policy_lang.verifying.blocks import Untellable, block


class Written(NamedTuple):
    """A test as text, or why there is none."""

    title: str
    text: str = ""
    why_not: str = ""


class Testing:
    """The tests of one policy file, and what is added to them."""

    def __init__(self, path: str, top: Compiled, *, root: str | None, params: Mapping[str, Any]) -> None:
        self.path, self.top, self.root, self.params = path, top, root, params

    def of(self, verdict: Verdict, agent: str, compiled: Compiled, claim: Claim | None) -> Written:
        """The test that shows a refutation, played and found to pass."""
        title = f"refutes {verdict.name}" + (f" as {agent}" if agent else "")
        why = ""
        for played in (verdict.simple, verdict.played):
            if not played:
                continue
            try:
                text = block(title, agent, shortened(played), compiled, claim)
            except Untellable as problem:
                why = f"a test cannot say {problem}"
                continue
            if self._passes(title, text):
                return Written(title, text)
            why = "played as a test, the same events are decided otherwise"
        return Written(title, why_not=why)

    def _passes(self, title: str, text: str) -> bool:
        from policy_lang.testing.outcome import run

        cases = [case for case in self.cases(f"\n{text}") if case.name == title]
        return bool(cases) and run(self.top, cases[-1]).failure is None

    def cases(self, more: str = "") -> list[Case]:
        """The tests of the file as it is now, with ``more`` text behind it."""
        file = stored.load(self.path)
        text = file.data.decode("utf-8-sig", "replace") + more
        folder = os.path.realpath(self.root) if self.root is not None else os.path.dirname(file.place)
        return resolve(Source(self.path, text), file.place, folder, self.params, None).cases

    def append(self, tests: Sequence[Written]) -> list[str]:
        """Append those that are not there yet, by name; the names of those that were. Raises ``stored.NotWritten``."""
        known = {case.name for case in self.cases() if not case.imported}
        new = [test for test in tests if test.text and test.title not in known]
        if new:
            file = stored.load(self.path)
            text = file.data.decode("utf-8")
            ends = "\r\n" if "\r\n" in text else "\n"
            more = "".join(f"\n{test.text}" for test in new).replace("\n", ends)
            stored.replace(file, (text.rstrip() + ends + more).encode("utf-8"))
        return [test.title for test in new]


def shortened(played: Sequence[Played]) -> Sequence[Played]:
    """Without what a ledger shows of nothing."""
    return [step for step in played if not _empty(step)]


def _empty(step: Played) -> bool:
    pools = getattr(step.event, "pools", None)
    return pools is not None and pools == type(pools)()
