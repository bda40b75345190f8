"""What is seen of a run, and the laws looking at it: everything that is remembered from one event to the next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.laws import Laws, laws_of
from engine.core.machine.monitors import watch
from engine.core.machine.plan import NOTHING, RESERVE, Plan
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.state import Outcome
from engine.verify.breakers import Breakers
from engine.verify.failures import Clients, Failed, Ladders
from engine.verify.ledger import Ledger
from engine.verify.observe import Observation


@dataclass(frozen=True)
class Question:
    """A person is asked about a limit, until a time; ``reply``: the calls of a reply wait for it, not a call."""

    index: int
    until: int
    reply: bool


class Tool:
    """A tool call of the round in hand: may it run, how often was it started, how many results has it got?"""

    def __init__(self, call: e.Proposed) -> None:
        self.call, self.runs, self.attempt, self.results = call, False, 0, 0
        self.name, self.args = call.name, call.args
        self.asks = self.asked = self.granted = self.away = False
        self.watched = call.kind != "agent"
        self.probes: set[int] = set()
        self.outcome = self.result = ""
        self.started = self.took = 0
        self.lost: set[int] = set()
        """Attempts that were given up before they had ended."""

    @property
    def pending(self) -> bool:
        """A person was asked and has not answered."""
        return self.asked and not self.granted and not self.results


class Sight:
    """What is known of one run so far; ``broken`` says in words which laws do not hold."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.laws: Laws = laws_of(policy)
        self.ghosts = self.laws.initial
        self.ledger = Ledger(policy, self.laws)
        self.breakers = Breakers(policy)
        self.ladders = Ladders(policy)
        self.clients = Clients()
        self._failed: Failed | None = None
        self._falls = False
        self._awaited: tuple[Failed, Clients] | None = None
        """While a fallback waits for an answer: where its ladder goes on without it, and where calls go then."""
        self.broken: list[str] = []
        self.held: set[int] = set()
        self.outcome: Outcome | None = None
        self._at = 0
        self._begun = False
        self._stopping = False
        self._request = e.CallRequested(0, "")
        self._attempt = 0
        self._flying = False
        self._known: list[tuple[str, int]] = []
        self._of = ""
        self._rounds = True
        self._retracts = True
        self._implied = False
        self._refused = False
        self._resolve: d.Resolve | None = None
        self._grants: list[int] = []
        self._passed: list[int] = []
        self._tools: dict[str, Tool] = {}
        self._question: Question | None = None
        self._paused: int | None = None
        self._tools_above = -1
        """How many executions the limits of ancestors leave; below 0: any number."""

    def _observe(self, kind: str, fields: dict[str, int]) -> None:
        observation: Observation = (kind, fields)
        self.ghosts, broken, held = watch(self.laws, self.ghosts, *observation)
        self.held.update(held)
        for index in broken:
            check = self.laws.checks[index]
            self._break(f"{check.law}: {check.broken}")

    def _break(self, words: str) -> None:
        self.broken.append(words)

    def _plan(self, resource: str, because: str) -> int:
        """The limit that a decision is about, by index; -1 for none."""
        found = [p.index for p in self.laws.plans if p.resource == resource and p.origin == because]
        return found[0] if found else -1

    def _about(self, index: int) -> dict[str, int]:
        if index < 0:
            return {"limit": 0, "gone": 0, "tight": 0}
        plan = self.laws.plans[index]
        left = RESERVE + 1 if plan.counted else self._state(plan)
        return {"limit": index + 1, "gone": int(left == NOTHING), "tight": int(left <= RESERVE)}

    def _grant(self, resource: str) -> None:
        """A note says that the limit was extended: it was, as soon as something of the resource did not fit."""
        names = [g.name for g in self.laws.ghosts]
        for index in list(self._grants):
            plan = self.laws.plans[index]
            if plan.resource == resource and self.ghosts[names.index(f"left_of_{plan.name}")] == 0:
                self._grants.remove(index)
                self._extend(index)

    def _grant_all(self) -> None:
        grants, self._grants = self._grants, []
        for index in grants:
            self._extend(index)

    def _extend(self, index: int) -> None:
        self._observe("extended", self._about(index))
        self.ledger.extend(self.laws.plans[index])
        self._overdrawn(self.laws.plans[index])

    def _overdrawn(self, plan: Plan) -> None:
        """What others have taken beyond the maximum is taken from what it grows by."""
        if plan.counted and plan.limit.scope != "run":
            asked = sum(tool.asked and tool.pending for tool in self._tools.values())
            for _ in range(self._ghost(f"left_of_{plan.name}") - self.ledger.counted_left(plan, asked)):
                self._observe("others_took", {"limit": plan.index + 1})

    def _ghost(self, name: str) -> int:
        return self.ghosts[[g.name for g in self.laws.ghosts].index(name)]

    def _deadline(self) -> int:
        return self.ledger.deadline(final=self._ghost("finalized") > 0)

    def _state(self, plan: Plan) -> int:
        return self.ledger.state(plan, self._at, self._model(), self._request.input_tokens or 0)

    def _model(self) -> str:
        if self.clients.now == self._request.client:
            return self._request.model
        return self.clients.known[self.clients.now].model

    def _follows(self, call: str) -> None:
        """What earlier attempts used may be told until the call after next; an empty name is one not yet known."""
        if self._of and call != self._of:
            self._known = [known for known in self._known if known[0] == self._of]
        self._of = call

    def _usage(self, call: str, attempt: int, usage: Usage) -> None:
        known = self.ledger.attempts.get((call, attempt))
        # The core keeps what was charged for the last attempts: reports about earlier ones come too late.
        if known is not None and (call, attempt) in self._known:
            known.report(usage)

    def _close(self, replies: Iterable[d.Reply]) -> None:
        for reply in replies:
            self._result(reply.id)

    def _result(self, id: str) -> None:
        tool = self._tools.get(id)
        if tool is None:
            self._break(f"L3: a result for {id}, which no reply asked for")
            return
        tool.results += 1
        if tool.results > 1:
            self._break(f"L3: a second result for the tool call {id}")
