"""``Policy`` to ``Machine``: which variables, which events, and which rules in which order.

The rules of one event read top to bottom as the semantics' sections do. Nothing here knows
numbers, texts or time: ``step`` turns those into the few fields the rules look at.
"""

from __future__ import annotations

from engine.core.machine.expr import TRUE, And, Eq, Expr, Field, Le, Lit, Not, Var, all_of, any_of
from engine.core.machine.machine import (
    Count,
    Effect,
    EventKind,
    FieldDef,
    Grant,
    Machine,
    Phase,
    Refill,
    Rule,
    Set,
    Sort,
    Spend,
    Update,
    Variable,
    check,
)
from engine.core.machine.plan import DRAWN_BY_CALLS, ENOUGH, NOTHING, RESERVE, Plan, plans_of
from engine.core.policy import Extend, Finalize, Policy, Stop

METERS = ("llm_calls", "llm_attempts", "tool_iterations", "tool_calls", "unknown_tools")
"""What is counted by the machine, limited or not."""

NONE = Eq(Var("reason"), Lit(0))
"""No finalization has happened."""


def build(policy: Policy) -> Machine:
    """The machine of a policy; equal policies (by canonical form) give equal machines but for origins."""
    machine = _Builder(policy).machine()
    check(machine)
    return machine


def meter(resource: str) -> str:
    """The variable that counts what was used of a counted resource."""
    return f"used_{resource}"


class _Builder:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.plans = plans_of(policy)
        self.reactive = policy.finalization.mode == "reactive"
        self.resolvers = bool(policy.resolvers())

    def machine(self) -> Machine:
        kinds = self._events()
        rules = {name: getattr(self, f"_{name}")() for name in kinds}
        return Machine(self._variables(), kinds, rules)

    # -- variables and events ------------------------------------------------------------------

    def _variables(self) -> tuple[Variable, ...]:
        reasons = len(self.plans) + 1
        out = [
            Variable("phase", Sort.FLAG, Phase.NEW, "where the run is", len(Phase.NAMES)),
            Variable("reason", Sort.FLAG, 0, "why the final call is made: 1 + the limit, 0 while there is none", reasons),
            Variable("pending", Sort.FLAG, 0, "1 + the limit whose finalization waits for the next call", reasons),
            Variable("open", Sort.FUEL, 0, "tool calls whose result is awaited"),
        ]
        if self.resolvers:
            out.append(Variable("asked", Sort.FLAG, 0, "whose text the host was asked for", reasons + 1))
            out.append(Variable("given", Sort.FLAG, 0, "1 once the host has answered", 2))
        if self.policy.finalization.empty_retries:
            left = self.policy.finalization.empty_retries
            out.append(Variable("empties_left", Sort.FUEL, left, "empty answers of this call that may be asked for again"))
        for plan in self.plans:
            if plan.counted:
                out.append(Variable(plan.fuel, Sort.FUEL, plan.maximum, f"what is left of {plan.limit.id}"))
            if plan.step:
                out.append(Variable(plan.step, Sort.FLAG, 0, f"place in the ladder of {plan.limit.id}", len(plan.steps) + 1))
            if plan.resource in ("tool_calls", "unknown_tools"):
                out.append(Variable(plan.over, Sort.FLAG, 0, f"a call of this round did not fit {plan.limit.id}", 2))
        out.extend(Variable(meter(name), Sort.METER, 0, f"{name} used") for name in METERS)
        return tuple(out)

    def _events(self) -> dict[str, EventKind]:
        amounts = tuple(
            FieldDef(p.field, (NOTHING, RESERVE, ENOUGH), f"what {p.limit.id} leaves: nothing, its reserve, enough")
            for p in self.plans
            if not p.counted
        )
        flag = (0, 1)
        before = tuple(
            FieldDef(f"{p.fuel}_spent", tuple(range(p.maximum + 1)), f"what earlier runs of the thread took of {p.limit.id}")
            for p in self.plans
            if p.counted and p.limit.scope == "thread"
        )
        live, ready, calling = Phase.LIVE, frozenset((Phase.READY,)), frozenset((Phase.CALLING,))
        judging, tools = frozenset((Phase.JUDGING,)), frozenset((Phase.TOOLS,))
        again = frozenset((Phase.WAITING, Phase.CALLING))
        cut = FieldDef("cut", flag, "the attempt was cut by the run's own deadline")
        delivered = FieldDef("delivered", flag, "text was shown that cannot be taken back")
        more = FieldDef("more", flag, "a further pause is allowed")
        verdict = tuple(FieldDef(n, flag, d) for n, d in _VERDICT_FIELDS)
        kinds = (
            EventKind("start", amounts + before, frozenset((Phase.NEW,)), "the run begins"),
            EventKind("call", amounts, ready, "a call is requested"),
            EventKind("attempt", amounts, again, "a further attempt of the call is requested"),
            EventKind("resolved", (FieldDef("ok", flag, "the host's function gave a text"),), frozenset((Phase.RESOLVING,)), "the host's function has answered"),
            EventKind("answered", (), calling, "the model answered in text"),
            EventKind("empty", (), calling, "the model answered without visible text"),
            EventKind("paused", (more,), calling, "the provider paused the turn"),
            EventKind("failed", (*amounts, cut, delivered), calling, "the attempt failed"),
            EventKind("unmetered", (), calling, "a reply without usage, where usage is limited"),
            EventKind("unpriced", (), ready, "a model without a price, where cost is limited"),
            EventKind("hosted", (), calling, "the provider executed a tool call by itself"),
            EventKind("round", amounts, calling, "the model asks for tools"),
            EventKind("tool", verdict, judging, "one call of the round", inner=True),
            EventKind("judged", (), judging, "every call of the round that is not running has its result", inner=True),
            EventKind("tool_end", (), tools, "a tool call has its result"),
            EventKind("tool_ends", (FieldDef("answer", flag, "its result is the answer"),), tools, "a tool ends the run"),
            EventKind("cancel", (), live, "somebody wants the run to end"),
            EventKind("tick", amounts, live, "time has passed"),
            EventKind("stopped", (), frozenset((Phase.STOPPING,)), "nothing is in flight any more", inner=True),
        )
        return {kind.name: kind for kind in kinds}

    # -- starting and admitting a call ---------------------------------------------------------

    def _start(self) -> tuple[Rule, ...]:
        spent = tuple(
            Spend(p.fuel, Field(f"{p.fuel}_spent")) for p in self.plans if p.counted and p.limit.scope == "thread"
        )
        begin = (Set("phase", Phase.READY), *spent)
        return (*self._late("start"), Rule("start.begin", TRUE, begin, Effect("continue"), "default: start"))

    def _call(self) -> tuple[Rule, ...]:
        rules = list(self._late("call"))
        for plan in self._drawn():
            rules += self._would_not_fit("call", plan)
        rules += self._lost_finalizations()
        rules += [rule for plan in self._preferred() for rule in self._final_reasons(plan)]
        rules.append(Rule("call.admit", TRUE, self._spend_call(), Effect("call"), "default: call"))
        return tuple(rules)

    def _attempt(self) -> tuple[Rule, ...]:
        rules = list(self._late("attempt"))
        drawn = [plan for plan in self._drawn() if plan.resource != "llm_calls"]
        for plan in drawn:
            rules += self._would_not_fit("attempt", plan)
        spend = self._spend_attempt()
        rules.append(Rule("attempt.final", Not(NONE), spend, Effect("final"), "default: attempt"))
        for plan in self._preferred():
            # Only what moves between two attempts of one call can make the later one final.
            if plan.resource == "llm_attempts" or not plan.counted:
                for position, step in plan.ladder():
                    if isinstance(step, Finalize) and step.using is None:
                        guard = all_of(self._due(plan), plan.at(position))
                        rules.append(self._final("attempt", plan, guard, spend))
        rules.append(Rule("attempt.admit", TRUE, spend, Effect("call"), "default: attempt"))
        return tuple(rules)

    def _resolved(self) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        ready = Set("phase", Phase.READY)
        if self.policy.finalization.using:
            asked = Eq(Var("asked"), Lit(len(self.plans) + 1))
            done = (ready, Set("asked", 0))
            rules.append(Rule("resolved.text", asked, done, Effect("refuse"), self._mode_origin()))
        for plan in self.plans:
            for position, step in plan.ladder():
                if not (isinstance(step, Finalize) and step.using):
                    continue
                asked = all_of(Eq(Var("asked"), Lit(plan.index + 1)), plan.at(position))
                given, failed = all_of(asked, Eq(Field("ok"), Lit(1))), asked
                move = (ready, Set("asked", 0), Set(plan.step or "", position + 1))
                rules.append(self._rule("resolved.ok", plan, given, (ready, Set("given", 1)), "again", "resolved"))
                rules.append(self._rule("resolved.failed", plan, failed, move, "again", "resolver_failed"))
        rules.append(Rule("resolved.other", TRUE, (ready,), Effect("again"), "default: resolve"))
        return tuple(rules)

    def _drawn(self) -> list[Plan]:
        return [plan for plan in self.plans if plan.resource in DRAWN_BY_CALLS]

    def _preferred(self) -> list[Plan]:
        order = self.policy.finalization.order
        return sorted(self.plans, key=lambda plan: (order.index(plan.resource), plan.index))

    def _late(self, event: str, guard: Expr = TRUE, effect: str = "end") -> list[Rule]:
        """A deadline has passed: it comes first, whatever else is true."""
        after = Phase.STOPPING if effect == "stop" else Phase.ENDED
        return [
            self._rule(f"{event}.late", plan, all_of(guard, plan.exhausted()), (Set("phase", after),), effect, "incomplete")
            for plan in self.plans
            if plan.resource == "wall"
        ]

    def _would_not_fit(self, event: str, plan: Plan, guard: Expr = TRUE) -> list[Rule]:
        """Nothing is left: the ladder's extension is taken now, or else the run ends."""
        exhausted = all_of(guard, plan.exhausted())
        end = self._rule(f"{event}.spent", plan, exhausted, (Set("phase", Phase.ENDED),), "end", "incomplete")
        return [*self._extensions(event, plan, exhausted), end]

    def _extensions(self, event: str, plan: Plan, exhausted: Expr) -> list[Rule]:
        extension = plan.extension()
        if extension is None or plan.step is None:
            return []
        position, by = extension
        updates: tuple[Update, ...] = (Set(plan.step, position + 1),)
        if plan.counted:
            updates = (*updates, Grant(plan.fuel, by))
        guard = all_of(exhausted, plan.at(position))
        return [self._rule(f"{event}.extend", plan, guard, updates, "again", "extended")]

    def _due(self, plan: Plan) -> Expr:
        """The next call must be the final one, as far as this limit is concerned."""
        pending = Eq(Var("pending"), Lit(plan.index + 1))
        if plan.resource in ("llm_calls", "llm_attempts"):
            return Eq(Var(plan.fuel), Lit(1))
        if not plan.counted:
            return Eq(Field(plan.field), Lit(RESERVE))
        waits = self.reactive and plan.resource in ("tool_iterations", "tool_calls")
        # A model cannot be kept from naming a tool nobody has: none allowed means that the first one is answered.
        if waits or (plan.resource == "unknown_tools" and plan.maximum == 0):
            return pending
        return any_of(pending, plan.exhausted())

    def _final_reasons(self, plan: Plan) -> list[Rule]:
        rules: list[Rule] = []
        for position, step in plan.ladder():
            if not isinstance(step, Finalize):
                continue
            due = all_of(NONE, self._due(plan), plan.at(position))
            if step.using:
                asked = all_of(Eq(Var("asked"), Lit(plan.index + 1)), Eq(Var("given"), Lit(1)))
                rules.append(self._final("call", plan, all_of(due, asked), self._spend_call()))
                ask = (Set("phase", Phase.RESOLVING), Set("asked", plan.index + 1), Set("given", 0))
                rules.append(self._rule("call.resolve", plan, due, ask, "resolve", "resolve"))
            else:
                rules.append(self._final("call", plan, due, self._spend_call()))
        return rules

    def _lost_finalizations(self) -> list[Rule]:
        """Something did not fit and its finalization could not be made: behind it stands ``stop``."""
        rules = []
        for plan in self.plans:
            if plan.step and plan.resource in ("tool_iterations", "tool_calls", "unknown_tools"):
                for position, step in plan.ladder():
                    if isinstance(step, Stop):
                        guard = all_of(NONE, Eq(Var("pending"), Lit(plan.index + 1)), plan.at(position))
                        end = (Set("phase", Phase.ENDED),)
                        rules.append(self._rule("call.lost", plan, guard, end, "end", "incomplete"))
        return rules

    def _final(self, event: str, plan: Plan, guard: Expr, spend: tuple[Update, ...]) -> Rule:
        return self._rule(f"{event}.final", plan, guard, (*spend, Set("reason", plan.index + 1)), "final", "finalize")

    def _spend_call(self) -> tuple[Update, ...]:
        calls = [Spend(p.fuel) for p in self.plans if p.resource == "llm_calls"]
        empties = self.policy.finalization.empty_retries
        refill = (Refill("empties_left", empties),) if empties else ()
        settle = (Set("asked", 0), Set("given", 0)) if self.resolvers else ()
        return (*self._spend_attempt(), *calls, Count(meter("llm_calls")), *refill, *settle)

    def _spend_attempt(self) -> tuple[Update, ...]:
        attempts = [Spend(p.fuel) for p in self.plans if p.resource == "llm_attempts"]
        return (Set("phase", Phase.CALLING), *attempts, Count(meter("llm_attempts")))

    # -- what comes back -----------------------------------------------------------------------

    def _answered(self) -> tuple[Rule, ...]:
        end = (Set("phase", Phase.ENDED),)
        return (
            Rule("answered.final", Not(NONE), end, Effect("end", word="finalized"), "default: answer"),
            Rule("answered.completed", TRUE, end, Effect("end", word="completed"), "default: answer"),
        )

    def _empty(self) -> tuple[Rule, ...]:
        origin = self._mode_origin()
        rules = []
        if self.policy.finalization.empty_retries:
            guard = all_of(Not(Le(Var("empties_left"), Lit(0))), self._attempts_left())
            updates = (Spend("empties_left"), Set("phase", Phase.WAITING))
            rules.append(Rule("empty.retry", guard, updates, Effect("retry", word="empty"), origin))
        end = (Set("phase", Phase.ENDED),)
        rules.append(Rule("empty.stop", TRUE, end, Effect("end", word="empty_answer"), origin))
        return tuple(rules)

    def _paused(self) -> tuple[Rule, ...]:
        guard = all_of(Eq(Field("more"), Lit(1)), self._attempts_left())
        end = (Set("phase", Phase.ENDED),)
        return (
            Rule("paused.retry", guard, (Set("phase", Phase.WAITING),), Effect("retry", word="pause"), "default: pause"),
            Rule("paused.stop", TRUE, end, Effect("end", word="llm_failure"), "default: llm_failure stop"),
        )

    def _failed(self) -> tuple[Rule, ...]:
        rules = self._late("failed")
        # A call that the run itself cut to keep its reserve is no failure of the model: the final call follows.
        cut = all_of(Eq(Field("cut"), Lit(1)), Eq(Field("delivered"), Lit(0)), NONE)
        ready = (Set("phase", Phase.READY),)
        if any(plan.resource == "wall" for plan in self.plans):
            rules.append(Rule("failed.cut", cut, ready, Effect("continue"), "default: deadline"))
        end = (Set("phase", Phase.ENDED),)
        rules.append(Rule("failed.stop", TRUE, end, Effect("end", word="llm_failure"), "default: llm_failure stop"))
        return tuple(rules)

    def _unmetered(self) -> tuple[Rule, ...]:
        end = (Set("phase", Phase.ENDED),)
        return (Rule("unmetered", TRUE, end, Effect("end", word="usage_unknown"), "default: usage"),)

    def _unpriced(self) -> tuple[Rule, ...]:
        end = (Set("phase", Phase.ENDED),)
        return (Rule("unpriced", TRUE, end, Effect("end", word="price_unknown"), "default: price"),)

    def _attempts_left(self) -> Expr:
        """A further attempt could be admitted, with the extension if one is untaken."""
        parts: list[Expr] = []
        for plan in self.plans:
            if plan.resource == "llm_attempts":
                extension = plan.extension()
                untaken = plan.at(extension[0]) if extension else any_of()
                parts.append(any_of(Not(Le(Var(plan.fuel), Lit(0))), untaken))
        return all_of(*parts)

    # -- rounds and tools ----------------------------------------------------------------------

    def _hosted(self) -> tuple[Rule, ...]:
        pools = [p for p in self.plans if p.resource == "tool_calls"]
        spend = (*(Spend(p.fuel) for p in pools), Count(meter("tool_calls")))
        spent = [
            self._rule("hosted.over", p, p.exhausted(), (*spend, Set(p.over, 1)), "wait", "hosted") for p in pools
        ]
        return (*spent, Rule("hosted", TRUE, spend, Effect("wait"), "default: hosted"))

    def _round(self) -> tuple[Rule, ...]:
        end = (Set("phase", Phase.ENDED),)
        disobeyed = Effect("end", word="finalization_disobeyed")
        rules = [Rule("round.disobeyed", Not(NONE), end, disobeyed, "default: finalization")]
        rules += self._late("round")
        iterations = [p for p in self.plans if p.resource == "tool_iterations"]
        for plan in iterations:
            rules += self._extensions("round", plan, plan.exhausted())
            rules += self._refusals(plan)
            rules.append(self._rule("round.spent", plan, plan.exhausted(), end, "end", "incomplete"))
        spend = (*(Spend(p.fuel) for p in iterations), Count(meter("tool_iterations")))
        admit = (Set("phase", Phase.JUDGING), *spend)
        rules.append(Rule("round.admit", TRUE, admit, Effect("round"), "default: round"))
        return tuple(rules)

    def _refusals(self, plan: Plan) -> list[Rule]:
        """The round does not fit, but a final call can still be made: its calls are answered, it is not counted."""
        using = self.policy.finalization.using
        rules = []
        for position, step in plan.ladder():
            if isinstance(step, Finalize):
                guard, pending = all_of(plan.exhausted(), plan.at(position)), Set("pending", plan.index + 1)
                if using:
                    ask = (pending, Set("phase", Phase.RESOLVING), Set("asked", len(self.plans) + 1), Set("given", 0))
                    rules.append(self._rule("round.resolve", plan, guard, ask, "resolve", "text"))
                else:
                    refuse = (pending, Set("phase", Phase.READY))
                    rules.append(self._rule("round.refuse", plan, guard, refuse, "refuse", "refused"))
        return rules

    def _tool(self) -> tuple[Rule, ...]:
        rules = self._unknown_tools()
        for field, word in (("invalid", "bad_arguments"), ("denied", "denied"), ("limited", "tool_limit")):
            rules.append(Rule(f"tool.{field}", Eq(Field(field), Lit(1)), (), Effect("reply", word=word), f"default: {word}"))
        pools = [plan for plan in self.plans if plan.resource == "tool_calls"]
        for plan in pools:
            exhausted = any_of(plan.exhausted(), Eq(Field("round_refused"), Lit(1))) if plan.limit.atomic else plan.exhausted()
            rules += self._extensions("tool", plan, plan.exhausted())
            rules.append(self._rule("tool.spent", plan, exhausted, (Set(plan.over, 1),), "reply", "tool_calls"))
        spend = (Grant("open", 1), *(Spend(p.fuel) for p in pools), Count(meter("tool_calls")))
        rules.append(Rule("tool.execute", TRUE, spend, Effect("execute"), "default: execute"))
        return tuple(rules)

    def _unknown_tools(self) -> list[Rule]:
        unknown, count = Eq(Field("unknown"), Lit(1)), Count(meter("unknown_tools"))
        plans = [plan for plan in self.plans if plan.resource == "unknown_tools"]
        rules: list[Rule] = []
        for plan in plans:
            exhausted = And((unknown, plan.exhausted()))
            rules += self._extensions("tool", plan, exhausted)
            rules.append(self._rule("tool.unknown", plan, exhausted, (Set(plan.over, 1), count), "reply", "unknown_tool"))
        spend = (*(Spend(p.fuel) for p in plans), count)
        rules.append(Rule("tool.unknown", unknown, spend, Effect("reply", word="unknown_tool"), "default: unknown_tool"))
        return rules

    def _judged(self) -> tuple[Rule, ...]:
        waiting = Not(Le(Var("open"), Lit(0)))
        rules = [Rule("judged.run", waiting, (Set("phase", Phase.TOOLS),), Effect("run"), "default: execute")]
        clear = tuple(Set(p.over, 0) for p in self.plans if p.resource in ("tool_calls", "unknown_tools"))
        for plan in self._preferred():
            if plan.resource in ("tool_calls", "unknown_tools"):
                rules += self._over(plan, clear)
        ready = (Set("phase", Phase.READY), *clear)
        rules.append(Rule("judged.complete", TRUE, ready, Effect("continue"), "default: round"))
        return tuple(rules)

    def _over(self, plan: Plan, clear: tuple[Update, ...]) -> list[Rule]:
        """Something in the round did not fit: the ladder moves now that the round is complete."""
        over = Eq(Var(plan.over), Lit(1))
        rules = []
        for position, step in plan.ladder():
            if isinstance(step, Finalize):
                guard = all_of(over, plan.at(position))
                updates = (Set("phase", Phase.READY), Set("pending", plan.index + 1), *clear)
                rules.append(self._rule("judged.finalize", plan, guard, updates, "continue", "pending"))
        end = (Set("phase", Phase.ENDED), *clear)
        return [*rules, self._rule("judged.stop", plan, over, end, "end", "incomplete")]

    def _tool_end(self) -> tuple[Rule, ...]:
        last = (Spend("open"), Set("phase", Phase.JUDGING))
        return (
            Rule("tool_end.last", Le(Var("open"), Lit(1)), last, Effect("again"), "default: execute"),
            Rule("tool_end.wait", TRUE, (Spend("open"),), Effect("wait"), "default: execute"),
        )

    def _tool_ends(self) -> tuple[Rule, ...]:
        others, answer = Not(Le(Var("open"), Lit(1))), Eq(Field("answer"), Lit(1))
        stop, end = (Spend("open"), Set("phase", Phase.STOPPING)), (Spend("open"), Set("phase", Phase.ENDED))
        origin = "default: tool"
        return (
            Rule("tool_ends.answer_stop", all_of(others, answer), stop, Effect("stop", word="tool_answer"), origin),
            Rule("tool_ends.stop", others, stop, Effect("stop", word="tool_stop"), origin),
            Rule("tool_ends.answer", answer, end, Effect("end", word="tool_answer"), origin),
            Rule("tool_ends.end", TRUE, end, Effect("end", word="tool_stop"), origin),
        )

    # -- ends ----------------------------------------------------------------------------------

    def _cancel(self) -> tuple[Rule, ...]:
        stop, end = (Set("phase", Phase.STOPPING),), (Set("phase", Phase.ENDED),)
        return (
            Rule("cancel.stop", _IN_FLIGHT, stop, Effect("stop", word="cancelled"), "default: cancel"),
            Rule("cancel.end", TRUE, end, Effect("end", word="cancelled"), "default: cancel"),
        )

    def _tick(self) -> tuple[Rule, ...]:
        stops = self._late("tick", _IN_FLIGHT, "stop")
        return (*stops, *self._late("tick"), Rule("tick.wait", TRUE, (), Effect("wait"), "default: tick"))

    def _stopped(self) -> tuple[Rule, ...]:
        return (Rule("stopped", TRUE, (Set("phase", Phase.ENDED),), Effect("end", word="stopped"), "default: stop"),)

    # -- small things --------------------------------------------------------------------------

    def _rule(
        self, id: str, plan: Plan, guard: Expr, updates: tuple[Update, ...], kind: str, word: str
    ) -> Rule:
        return Rule(f"{id}.{plan.name}", guard, updates, Effect(kind, plan.index, word), plan.origin)

    def _mode_origin(self) -> str:
        origin = self.policy.finalization.origin
        return str(origin) if origin else "default: finalization"


_IN_FLIGHT = any_of(Eq(Var("phase"), Lit(Phase.CALLING)), Eq(Var("phase"), Lit(Phase.TOOLS)))

_VERDICT_FIELDS = (
    ("unknown", "nobody registered a tool of this name"),
    ("invalid", "its arguments do not parse or validate"),
    ("denied", "the policy denies it"),
    ("limited", "its own limit is spent"),
    ("round_refused", "an atomic limit refuses the whole round"),
)
