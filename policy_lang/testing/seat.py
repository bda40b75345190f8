"""Where in a tree of agents the run of a test has its place: at the top, or as an agent below it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core import draws
from engine.core.budgets import budget_of
from engine.core.ledger import Ledger
from engine.core.narrowing import narrowed
from engine.core.step import Compiled, compile
from policy_lang.cases import Given
from policy_lang.testing.start import by_the_thread

TOP = "run"
"""The run at the top of the tree."""
THREAD = "thread"


def seated(ledger: Ledger, top: Compiled, agent: str, given: Sequence[Given]) -> tuple[str, Compiled]:
    """Open the tree; the id of the run, and the policy that it runs under: as an agent the one its budget leaves."""
    earlier = by_the_thread(given)
    past = draws.NOTHING if earlier is None else draws.draw_of(earlier)
    ledger.open(TOP, budget_of(top.policy), 0, past, thread=THREAD if earlier else "")
    ledger.wake(TOP, 0)
    ledger.begin(TOP)
    if not agent:
        return TOP, top
    policy = top.policy.of_agent(agent)
    run = ledger.next_id(TOP)
    ledger.spawn(TOP, run, agent, budget_of(policy), 0)
    ledger.wake(run, 0)
    ledger.begin(run)
    return run, compile(narrowed(policy, ledger.nodes[run].given), watch=top.watch)
