"""One run's account with the ledger of its tree: what it is shown before it decides, what is booked after.

Called in one act with ``step``, so nothing happens in between. What was journaled already is neither shown nor booked.
"""

from __future__ import annotations

from engine.core import decisions as d
from engine.core import draws
from engine.core import events as e
from engine.core.core import Core
from engine.core.ledger import Ledger
from engine.core.looking import Need, look
from engine.core.messages import Usage
from engine.core.policy import Price
from engine.core.state import ASKED, Pools, State, Used
from engine.core.step import Compiled
from engine.core.switching import in_force
from engine.core.usage import cost, increase
from engine.run.effects import model_key, settles

_KEY, _ASKED = "call", "asked"
"""Keys of what a run holds: for its attempt at a model, and for the tool calls that people are asked about."""

ADMITTING = frozenset(
    (
        e.RunStarted,
        e.CallRequested,
        e.RetryDue,
        e.Resolved,
        e.ModelReplied,
        e.ModelFailed,
        e.ToolRequested,
        e.ApprovalGiven,
        e.ExtensionAnswered,
        e.SpawnRequested,
        e.WakeRequested,
        e.Tick,
    )
)
"""Events on which something may be admitted."""


class Account:
    """See the module. ``used`` is what has been charged for the run so far."""

    def __init__(self, ledger: Ledger, node: str, compiled: Compiled) -> None:
        self._ledger = ledger
        self._node = node
        self._compiled = compiled
        self._core: Core = compiled.core
        self.used = Used()
        self._awaited = ""
        """Key of the attempt that something is held for."""
        self._held = draws.NOTHING
        self._asked = 0
        """About so many tool calls people are asked."""

    def show(self, event: e.AnyEvent, state: State) -> e.PoolsSeen | None:
        """What the ledger shows the run before this event; ``None`` if it needs nothing or knows it already."""
        if event.__class__ not in ADMITTING:
            return None
        if isinstance(event, e.ModelReplied | e.ModelFailed) and settles(event) == self._awaited:
            # What the attempt has used is charged with its event; until then no more than that is held for it.
            self._ledger.hold(self._node, _KEY, self._request(state, _uncharged(event, state)))
        pools = look(self._ledger, self._node, self._need(event, state), event.at)
        known = state.book.pools
        if known is None:
            began = event.at if isinstance(event, e.RunStarted) else state.book.run.started
            if pools in (Pools(), Pools(opened=began)):
                return None
        return None if pools == known else e.PoolsSeen(event.at, pools)

    def book(self, event: e.AnyEvent, decision: d.AnyDecision, state: State) -> None:
        """Book what an event and its decision have used, and hold what an attempt may use."""
        ledger, node = self._ledger, self._node
        used = self._compiled.used(state)
        if self._awaited and (settles(event) == self._awaited or isinstance(decision, d.End)):
            self._awaited = ""
            ledger.release(node, _KEY)
        if used != self.used:
            amount = draws.minus(draws.draw_of(used), draws.draw_of(self.used))
            if self._awaited and isinstance(event, e.UsageReported):
                self._held = draws.less(self._held, amount)
                ledger.hold(node, _KEY, self._held)
            ledger.charge(node, amount)
            self.used = used
        self._hold_asked(state)
        if decision.notes and any(note.kind in ("extended", "granted") for note in decision.notes):
            self.raise_maxima(state)
        if isinstance(decision, d.Call):
            self.hold(state, decision.max_output)

    def resume(self, state: State, call: d.Call | None) -> None:
        """Book all that a run has done in an earlier process, and hold what the ``call`` in flight may use."""
        self.used = self._compiled.used(state)
        self._ledger.charge(self._node, draws.draw_of(self.used))
        self.raise_maxima(state)
        self._hold_asked(state)
        if call is not None:
            self.hold(state, call.max_output)

    def hold(self, state: State, largest: int | None) -> None:
        """Hold what the attempt in hand may use: its estimated input and its largest output."""
        call = state.call
        assert call is not None
        self._awaited = model_key(call.id, call.attempt)
        output = call.max_output if largest is None else largest
        self._held = self._request(state, Usage(call.input_tokens or 0, output or 0))
        self._ledger.hold(self._node, _KEY, self._held)

    def _hold_asked(self, state: State) -> None:
        """What a person is asked about is held: it is used only when it is allowed."""
        asked = sum(call.status == ASKED for call in state.round)
        if asked != self._asked:
            self._asked = asked
            if asked:
                self._ledger.hold(self._node, _ASKED, draws.draw_of(Used(tool_calls=asked)))
            else:
                self._ledger.release(self._node, _ASKED)

    def raise_maxima(self, state: State) -> None:
        """Limits that the run shares with others have been extended: so are their pools."""
        core = self._core
        for plan in core.plans:
            if plan.limit.scope != "run":
                _, maximum = core.standing(plan, state.vars, state.book, state.at)
                self._ledger.raise_to(self._node, plan.limit.id, maximum)

    def _request(self, state: State, usage: Usage) -> draws.Draw:
        price = self._price(state.call.model if state.call else "")
        return draws.request(usage.input, usage.output, cost(price, usage) if price else 0)

    def _need(self, event: e.AnyEvent, state: State) -> Need:
        call = state.call
        if isinstance(event, e.CallRequested):
            other = in_force(state.book, event.client, event.at)
            model, output = (event.model, event.max_output) if other is None else (other.model, other.max_output)
            return Need(event.input_tokens or 0, output, self._price(model))
        if call is None:
            return Need()
        return Need(call.input_tokens or 0, call.max_output, self._price(call.model))

    def _price(self, model: str) -> Price | None:
        return self._core.amounts.price(model)


def _uncharged(event: e.ModelReplied | e.ModelFailed, state: State) -> Usage:
    """What the end of an attempt adds to what was reported of it before."""
    if event.usage is None:
        return Usage()
    charged = state.call.charged if state.call else None
    return event.usage if charged is None else increase(charged, event.usage)
