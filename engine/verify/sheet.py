"""The worst case of a policy in numbers: the most that a run can use of everything, and which line bounds it.

What is counted is the longest way through all states. A line *bounds* a number if without it the number would be
larger. Amounts are their limits; what replies in flight may take beyond them is said by how many there are. Data only:
how it is shown is others' business.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.core.ladders import Ask, Fallback, Retry
from engine.core.machine.build import build
from engine.core.machine.plan import Plan, plans_of
from engine.core.policy import Agents, Policy
from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS
from engine.verify.graph import Longest, longest
from engine.verify.verdicts import Budget
from engine.verify.world import World, around

_RUN = World(ancestors=False, clients=True, pauses=False)
"""A run by itself, whose driver goes to each client once, as for its length."""

COUNTED = (
    ("calls", "model calls", "llm_calls"),
    ("requests", "requests to models", "llm_attempts"),
    ("rounds", "rounds of tools", "tool_iterations"),
    ("tools", "tool executions", "tool_calls"),
)
AMOUNTS = ("tokens", "input_tokens", "output_tokens", "cost")


@dataclass(frozen=True, slots=True)
class Line:
    """At most ``most`` of ``what`` (in the ``resource``'s unit; ``None``: unbounded). ``by``: the lines that bound it.

    ``why`` says what is behind the number, or why there is none.
    """

    what: str
    resource: str
    most: int | None
    by: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """``agent``: whose runs, empty for the policy's own. ``tree`` is about the agents below a run, if there may be any.

    ``in_flight``: replies that may be under way when an amount is used up, in the run and in all its tree; what they
    take beyond it is overshoot. ``cut`` says why the counts are the limits' own numbers and not the longest run's;
    empty where they are.
    """

    agent: str
    run: tuple[Line, ...]
    clients: tuple[Line, ...]
    tree: tuple[Line, ...]
    in_flight: tuple[int, int | None]
    states: int
    cut: str = ""


def sheet(policy: Policy, budget: Budget | None = None, *, agent: str = "") -> Sheet:
    """The worst case of one run under the policy, or of one run of an agent below it."""
    return _Sheet(policy.of_agent(agent) if agent else policy, budget or Budget(), agent).whole()


class _Sheet:
    def __init__(self, policy: Policy, budget: Budget, agent: str) -> None:
        self.policy, self.budget, self.agent = policy, budget, agent
        self.until = time.perf_counter() + budget.seconds
        self.plans = plans_of(policy)

    def whole(self) -> Sheet:
        far = self._longest(self.policy)
        counted = list(self._counted(far))
        requests = next(line for line in counted if line.resource == "llm_attempts")
        rounds = next(line for line in counted if line.resource == "tool_iterations")
        run = (*counted, *map(self._amount, AMOUNTS), self._wall(requests, rounds))
        clients = tuple(self._clients(requests))
        tree = tuple(self._tree())
        others = next((line.most for line in tree if line.what == _AT_ONCE), 0)
        in_flight = (1, None if others is None else others + 1)
        return Sheet(self.agent, run, clients, tree, in_flight, far.states, far.cut)

    def _longest(self, policy: Policy) -> Longest:
        machine = around(build(policy), policy, _RUN)
        seconds, b = max(0.0, self.until - time.perf_counter()), self.budget
        return longest(machine, plans_of(policy), max_states=b.states, max_seconds=seconds, max_open=b.open)

    # ---- what is counted

    def _counted(self, far: Longest) -> Iterator[Line]:
        looser = {} if far.cut else {plan: self._longest(self._without(plan)) for plan in self.plans if plan.counted}
        for key, what, resource in COUNTED:
            own = [plan for plan in self.plans if plan.resource == resource]
            if far.cut or (key == "tools" and not own):
                yield self._of_limits(what, resource, own)
                continue
            again = self._tried_again() if key == "tools" else ""
            most, told = far.most[key], self._of_limits(what, resource, own)
            if told.most is not None and (most is None or most > told.most):
                # A search counts executions, too, that are given back before they start.
                yield told
                continue
            by = [plan.origin for plan, other in looser.items() if _larger(other, key, most)]
            if most is not None and not by:
                # Several lines bound it alike: without one of them the others still do.
                by = [plan.origin for plan in own] or [plan.origin for plan in self.plans if plan.counted]
            why = again if most is not None else self._unbounded(resource)
            yield Line(what, resource, most, tuple(dict.fromkeys(by)) if most is not None else (), why)

    def _of_limits(self, what: str, resource: str, plans: list[Plan]) -> Line:
        """The smallest limit's own number, or what so many calls may come to."""
        own = [Line(what, resource, _allowed(p), (p.origin,)) for p in plans]
        if resource == "tool_calls":
            why = "a reply may ask for any number of tools: a limit of `tool_calls` would bound it"
            own = [replace(line, why=self._tried_again()) for line in own] or [Line(what, resource, None, why=why)]
        elif calls := [plan for plan in self.plans if plan.resource == "llm_calls"]:
            plan, each = min(calls, key=_allowed), self._attempts() if resource == "llm_attempts" else 1
            why = f"at most {each} for each call" if each > 1 else ""
            own.append(Line(what, resource, _allowed(plan) * each, (plan.origin,), why))
        if not own:
            return Line(what, resource, None, why=self._unbounded(resource))
        return min(own, key=lambda line: _ENDLESS if line.most is None else line.most)

    def _attempts(self) -> int:
        """Attempts of one call, with every further one that some failure or an empty answer may bring."""
        retries = [step.times for rule in self.policy.failures for step in rule.then if isinstance(step, Retry)]
        return 1 + sum(retries) + self.policy.finalization.empty_retries

    def _tried_again(self) -> str:
        """A further attempt of an execution is counted by nobody."""
        rule = max(
            (r for r in self.policy.tools if r.retry), key=lambda r: r.retry.times if r.retry else 0, default=None
        )
        if rule is None or rule.retry is None:
            return ""
        return f"one that fails may be tried {rule.retry.times} times more ({rule.origin or f'tool {rule.glob}'})"

    def _unbounded(self, resource: str) -> str:
        """A call takes a token at least; but that is known only where it is told."""
        told = next((plan.origin for plan in self.plans if plan.resource in AMOUNTS and plan.resource != "cost"), "")
        where = f", or every reply that tells its tokens ({told})" if told else ""
        return f"nothing that is counted bounds it: a limit of `{resource}` would{where}"

    def _without(self, plan: Plan) -> Policy:
        return self.policy.model_copy(update={"limits": tuple(x for x in self.policy.limits if x is not plan.limit)})

    # ---- amounts

    def _amount(self, resource: str) -> Line:
        plans = [plan for plan in self.plans if plan.resource == resource]
        if plans:
            plan = min(plans, key=_allowed)
            return Line(_AMOUNT[resource], resource, _allowed(plan), (plan.origin,))
        tokens = [plan for plan in self.plans if plan.resource == "tokens"]
        if tokens and resource in ("input_tokens", "output_tokens"):
            whole = self._amount("tokens")
            return replace(whole, what=_AMOUNT[resource], resource=resource, why="as many as there are tokens")
        if tokens and resource == "cost" and self.policy.prices:
            return self._priced(self._amount("tokens"))
        return Line(_AMOUNT[resource], resource, None, why=f"a limit of `{resource}` would bound it")

    def _priced(self, tokens: Line) -> Line:
        """Every token at the highest price."""
        assert tokens.most is not None
        dearest = max(max(price.input, price.output) for price in self.policy.prices)
        cost = -(-tokens.most * dearest // 1_000_000)
        return Line(_AMOUNT["cost"], "cost", cost, tokens.by, "all tokens at the highest price")

    # ---- time

    def _wall(self, requests: Line, rounds: Line) -> Line:
        plans = [plan for plan in self.plans if plan.resource == "wall"]
        if plans:
            plan = min(plans, key=_allowed)
            why = "and 5s to cancel what is in flight"
            if self._people() and not plan.limit.counting_approvals:
                why += "; it stands still while only people are awaited"
            return Line("time", "wall", _allowed(plan), (plan.origin,), why)
        waits = [step.most for rule in self.policy.failures for step in rule.then if isinstance(step, Retry)]
        tools = [rule.timeout for rule in self.policy.tools if rule.timeout is not None and rule.glob == "*"]
        asks = self._people() or self.policy.resolvers() or self.policy.consultants()
        if requests.most is None or rounds.most is None or (rounds.most and not tools) or asks or self._retried_tools():
            return Line("time", "wall", None, why=self._endless(requests, rounds, tools=bool(tools)))
        attempt = next((x.max for x in self.policy.limits if x.resource == "attempt_wall"), DEFAULT_ATTEMPT_WALL_MS)
        if attempt is None:
            return Line("time", "wall", None, why="one attempt may take any time: `attempt_wall` is unlimited")
        most = requests.most * (attempt + max(waits, default=0)) + rounds.most * min(tools, default=0)
        return Line("time", "wall", most, requests.by, "every request and tool as long as it may take")

    def _people(self) -> bool:
        """May somebody be asked, about a tool or a limit?"""
        ladders = [step for limit in self.policy.limits for step in limit.then]
        return any(rule.ask for rule in self.policy.tools) or any(isinstance(step, Ask) for step in ladders)

    def _retried_tools(self) -> bool:
        return any(rule.retry is not None for rule in self.policy.tools)

    def _endless(self, requests: Line, rounds: Line, *, tools: bool) -> str:
        if requests.most is None or rounds.most is None:
            return "nothing bounds how often the model is asked; a limit of `wall` would bound the time"
        if not tools:
            return 'a tool may take any time: a limit of `wall`, or `tool "*" timeout`, would bound it'
        return "people, functions of the host, or tools that are tried again, may take any time: `wall` would bound it"

    # ---- clients

    def _clients(self, requests: Line) -> Iterator[Line]:
        """The client that a run begins with answers first, so that another one has a request less."""
        names = dict.fromkeys(
            client
            for rule in self.policy.failures
            for step in rule.then
            if isinstance(step, Fallback)
            for client in step.clients
        )
        names |= dict.fromkeys(t.client for t in self.policy.thresholds if t.client is not None)
        if names:
            yield Line("requests to its own client", "llm_attempts", requests.most, requests.by, requests.why)
        for name in names:
            most = None if requests.most is None else max(0, requests.most - 1)
            yield Line(f"requests to {name}", "llm_attempts", most, requests.by, requests.why)

    # ---- trees

    def _tree(self) -> Iterator[Line]:
        if self.policy.agents is None and not self.policy.agent:
            return
        agents = self.policy.agents or Agents()
        origins = {str(x.resource): str(x.origin or f"limit {x.resource}") for x in agents.limits}
        depth, children, beside = agents.of("depth"), agents.of("children"), agents.of("concurrent")
        lines = (
            ("levels of agents below a run", "depth", depth),
            ("agents that one run spawns", "children", children),
            ("agents of one run at the same time", "concurrent", beside),
        )
        for what, resource, most in lines:
            why = "" if most is not None else f"a limit of `{resource}` in `agents` would bound it"
            yield Line(what, resource, most, _known(origins, resource) if most is not None else (), why)
        yield Line(_AT_ONCE, "concurrent", _levels(depth, beside), _known(origins, "depth", "concurrent"))
        ever = _levels(depth, children)
        why = "" if ever is not None else "nothing bounds how many are spawned one after another"
        yield Line(
            "agents of a tree in all", "children", ever, _known(origins, "depth", "children") if ever else (), why
        )


_AT_ONCE = "agents of a tree at the same time"


def _known(origins: dict[str, str], *resources: str) -> tuple[str, ...]:
    """The lines of limits on the tree, or that it is the default."""
    return tuple(dict.fromkeys(origins.get(resource, f"default: {resource}") for resource in resources))


_AMOUNT = {"tokens": "tokens", "input_tokens": "input tokens", "output_tokens": "output tokens", "cost": "cost"}


def _larger(other: Longest, key: str, most: int | None) -> bool:
    """Would the number be larger without the line?"""
    if most is None or other.cut:
        return False
    without = other.most[key]
    return without is None or without > most


def _allowed(plan: Plan) -> int:
    """What a limit allows in all, with everything that its ladder may grant."""
    extension, asked = plan.extension(), plan.question()
    return plan.maximum + (extension[1] if extension else 0) + (plan.up_to() * asked[1].times if asked else 0)


def _levels(depth: int | None, width: int | None) -> int | None:
    """Agents of a tree with so many levels below its root, each with so many children."""
    if depth == 0 or width == 0:
        return 0
    if depth is None or width is None:
        return None
    return sum(width**level for level in range(1, depth + 1)) if depth <= _DEEP else None


_ENDLESS = 1 << 62
"""More than any number that a policy can have."""

_DEEP = 64
"""Deeper trees have more agents than a number is of use for."""
