"""The life of a run as boxes and arrows: what each rule of the machine does, told once, where it happens first.

Goes through the rules of the compiled machine, not through the file: what no run comes to is not told. What every
policy does alike and nobody wrote is left out where it explains nothing: cancelling, pauses, hand-overs, limits of
ancestors.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.ladders import Consult, Extend, FailureStep, Fallback, Finalize, Retry, Stop
from engine.core.machine.build import build
from engine.core.machine.failure_plan import FailurePlan, Occasion
from engine.core.machine.machine import Machine, Phase, Rule
from engine.core.machine.plan import Plan
from engine.core.machine.rules import Context
from engine.core.policy import Origin, Policy, ToolRule
from engine.core.switching import Switching
from engine.core.vocabulary import REASONS, RESOURCES
from policy_lang.graph import words
from policy_lang.graph.picture import Arrow, Box, Item
from policy_lang.graph.searched import Reach

_BOX_OF = {
    "new": "idle",
    "ready": "idle",
    "calling": "calling",
    "waiting": "calling",
    "judging": "tools",
    "tools": "tools",
    "final": "final",
    "resolving": "host",
    "asking": "suspended",
}
"""A place of the search, to the box that stands for it."""

_FIRST = ("idle", "calling", "tools", "final", "suspended", "host")
"""Of several boxes from which one thing can happen, the first tells it."""

_IN_ROUNDS = ("tool_iterations", "tool_calls", "unknown_tools")

Told = tuple[str, str, str]
"""Where an arrow begins (empty: where its rule fires), where it ends, and what it says."""


def life(policy: Policy, reach: Reach) -> tuple[tuple[Box, ...], tuple[Arrow, ...]]:
    """The boxes and arrows of a policy, those of the machine's order first."""
    return _Life(policy, reach).drawn()


class _Life:
    def __init__(self, policy: Policy, reach: Reach) -> None:
        self.policy, self.reach = policy, reach
        self.context = Context.of(policy)
        self.machine: Machine = build(policy)
        self.arrows: dict[tuple[str, str], list[Item]] = {}
        self.told: set[tuple[str, str]] = set()
        self.both: set[tuple[str, str]] = set()
        self.rules_of_tools: tuple[Item, ...] = ()
        self.never = {rule for plan in self.context.plans for rule in never_fires(plan)}

    def drawn(self) -> tuple[tuple[Box, ...], tuple[Arrow, ...]]:
        self._arrow("start", "idle", Item(""))
        for event, rules in self.machine.rules.items():
            for rule in rules:
                self._rule(event, rule)
        if ("calling", "tools") in self.arrows:
            self._tools()
        arrows = [Arrow(*ends, _sorted(ends, items), ends in self.both) for ends, items in self.arrows.items()]
        named = {name for ends in self.arrows for name in ends}
        boxes = tuple(box for box in self._boxes() if box.id in named)
        order = [box.id for box in boxes]
        arrows.sort(key=lambda arrow: (order.index(arrow.source), order.index(arrow.target)))
        return boxes, tuple(arrows)

    # ---- arrows

    def _arrow(self, source: str, target: str, item: Item, *, both: bool = False) -> None:
        """Add what an arrow says, once."""
        if source == "final" and target in ("calling", "idle"):
            target = "final"  # its retries and fallbacks are final too
        if (target, item.text) in self.told:
            return
        self.told.add((target, item.text))
        self.arrows.setdefault((source, target), []).append(item)
        if both:
            self.both.add((source, target))

    def _rule(self, event: str, rule: Rule) -> None:
        fired = self.reach.fired.get(rule.id)
        if not fired and (self.reach.complete or rule.id in self.never):
            return
        places = fired or [Phase.NAMES[phase] for phase in self.machine.events[event].phases]
        sources = sorted({_BOX_OF[place] for place in places if place in _BOX_OF}, key=_FIRST.index)
        for (source, target, text), origin in self._tell(event, rule, sources):
            both = target in ("suspended", "host")
            self._arrow(source or sources[0], target, Item(text, origin, sure=bool(fired)), both=both)

    def _tell(self, event: str, rule: Rule, sources: list[str]) -> Iterator[tuple[Told, Origin | None]]:
        """What is drawn of a rule; of most of them nothing."""
        effect = rule.effect
        if not sources:
            return
        if effect.limit >= 0:
            plan = self.context.plans[effect.limit]
            for told in self._limit(rule, plan):
                yield told, plan.limit.origin
        elif effect.ladder:
            failure = self.context.failures[effect.ladder - 1]
            for told in self._failure(rule, failure, dict(failure.steps())[effect.step]):
                yield told, failure.rule.origin
        elif rule.id.startswith("call.final."):
            occasion = next(o for o in self.context.occasions if o.plan is None and rule.id == f"call.final.{o.name}")
            source = "calling" if occasion.failure else "tools"
            yield (source, "final", words.occasion(occasion, self.policy, 0)), self._origin(occasion)
        elif rule.id.startswith("judged.broken."):
            breaker = self.context.breakers[int(rule.id.rpartition(".")[2]) - 1]
            yield ("tools", "failed", f"{breaker.glob} is switched off and asked for"), breaker.origin
        else:
            yield from self._other(event, rule, sources)

    def _origin(self, occasion: Occasion) -> Origin | None:
        if occasion.failure is not None:
            return occasion.failure.rule.origin
        return self.context.breakers[occasion.breaker].origin if occasion.breaker >= 0 else None

    def _limit(self, rule: Rule, plan: Plan) -> Iterator[Told]:
        kind, word = rule.effect.kind, rule.effect.word
        number = rule.id.rpartition(plan.name)[2]  # of the step, where it is not the first
        place = int(number[1:]) - 1 if number else 0
        step = dict(plan.ladder()).get(place)
        rounds = plan.resource in _IN_ROUNDS
        if kind in ("end", "stop") and word == "incomplete":
            yield "", "incomplete", words.used_up(plan, len(plan.steps))
        elif kind == "final":
            yield "idle", "final", words.last_one(plan, place, reactive=self.context.reactive)
        elif kind == "again" and word == "extended" and (extension := plan.extension()):
            grown = plan.steps[extension[0]]
            assert isinstance(grown, Extend)
            source, target = ("calling", "tools") if rounds else ("idle", "calling")
            yield source, target, words.extended(plan, grown)
        elif kind == "suspend" and (question := plan.question()):
            yield "tools" if rounds else "idle", "suspended", words.asked(plan, *question)
        elif kind == "resolve" and isinstance(step, Consult):
            yield "idle", "host", words.consulted(plan, place, step)

    def _failure(self, rule: Rule, failure: FailurePlan, step: FailureStep) -> Iterator[Told]:
        which = words.reasons(failure.rule, self.policy)
        goes_on = which if rule.effect.step == 0 else f"{which}, still"
        if rule.id.startswith("resolved.") or _behind_stop(failure, rule.effect.step):
            return
        if isinstance(step, Retry):
            yield "", "calling", f"{goes_on}: {words.retried(step)}"
        elif isinstance(step, Fallback):
            yield "", "idle", f"{goes_on}: on with {words.fallback(step)}"
        elif isinstance(step, Consult):
            yield "", "host", f"{goes_on}: {step.name}() chooses"
        elif rule.effect.kind == "end":
            yield "", "failed", which if rule.effect.step == 0 else f"{which}, nothing left to try"

    def _other(self, event: str, rule: Rule, sources: list[str]) -> Iterator[tuple[Told, Origin | None]]:
        """What holds for every policy, as far as it is worth an arrow."""
        final = self.policy.finalization
        match rule.id:
            case "call.admit":
                yield ("idle", "calling", "asks the model"), None
            case "answered.completed" if "calling" in sources:
                yield ("calling", "completed", "the model answers"), None
            case "answered.final":
                yield ("final", "finalized", "the model answers"), None
            case "round.disobeyed":
                yield ("final", "failed", "asks for tools all the same"), None
            case "round.admit":
                yield ("calling", "tools", "asks for tools"), None
            case "judged.complete":
                yield ("tools", "idle", "results"), None
            case "empty.retry":
                often = "once" if final.empty_retries == 1 else f"up to {final.empty_retries} times"
                yield ("", "calling", f"no text: asked again, {often}"), final.origin
            case "empty.stop":
                yield ("", "failed", "answers without text"), final.origin if final.empty_retries else None
            case "failed.stop" if unhandled := self._unhandled():
                yield ("", "failed", unhandled), None
            case "tool.ask":
                for asking in self.policy.tools:
                    if asking.ask:
                        yield ("tools", "suspended", words.tool(asking)), asking.origin
            case "unmetered" if "calling" in sources and self._metered():
                yield ("calling", "failed", "no usage is told"), None
            case "spawn.start" if "tools" in sources and (self.policy.agents or self.policy.agent):
                yield ("tools", "agents", "gives tasks to agents"), None

    def _unhandled(self) -> str:
        if not self.policy.failures:
            return "the call fails"
        switching = Switching(self.policy)
        left = [reason for reason in REASONS if switching.chosen(reason) is None]
        return "" if not left else "the host itself fails" if left == ["host"] else "any other failure"

    def _metered(self) -> bool:
        return any(not plan.counted and RESOURCES[plan.resource].unit != "duration" for plan in self.context.plans)

    # ---- boxes

    def _boxes(self) -> Iterator[Box]:
        tools = "forbidden to use tools" if self.policy.finalization.tools == "forbid" else "without tools"
        thresholds = tuple(Item(words.threshold(each), each.origin) for each in self.policy.thresholds)
        yield Box("start", "start", "")
        yield Box("idle", "phase", "idle", "before a model call", thresholds)
        yield Box("calling", "phase", "calling", "the model works")
        yield Box("tools", "phase", "tools", "the tools run", self.rules_of_tools)
        yield Box("suspended", "wait", "suspended", "a person is asked")
        yield Box("host", "wait", "host", "its function is asked")
        yield Box("final", "final", "final call", f"one call, {tools}")
        yield Box("completed", "good", "completed")
        yield Box("finalized", "good", "finalized")
        yield Box("incomplete", "limit", "incomplete")
        yield Box("failed", "bad", "failed")
        yield Box("agents", "agent", "agents")

    def _tools(self) -> None:
        """What is known of tools stands in their box: they run, or are answered instead, within a round."""
        rules = [Item(words.tool(rule), rule.origin) for rule in self.policy.tools if not _only_asks(rule)]
        self.rules_of_tools = (*rules, *(Item(words.breaker(rule), rule.origin) for rule in self.policy.breakers))


def _sorted(ends: tuple[str, str], items: list[Item]) -> tuple[Item, ...]:
    """As they stand in the file. Defaults come last, but for what an arrow of the loop is called."""
    first = ends[1] in ("calling", "tools") and ends[0] != ends[1]

    def place(item: Item) -> tuple[bool, str, int]:
        if item.origin is None:
            return not first, "", 0
        return first, item.origin.file, item.origin.line

    return tuple(sorted(items, key=place))


def never_fires(plan: Plan) -> Iterator[str]:
    """Rules about a limit that no run comes to, known without a search: what stands behind a plain ``finalize``.

    A round that does not fit is then answered, and the last of a run's calls is the final one.
    """
    last = plan.steps[-1] if plan.steps else None
    if isinstance(last, Finalize) and not last.using:
        if plan.resource == "tool_iterations":
            yield f"round.spent.{plan.name}"
        if plan.resource == "llm_calls" and plan.limit.scope == "run" and plan.maximum and len(plan.steps) == 1:
            yield f"call.spent.{plan.name}"


def _behind_stop(failure: FailurePlan, place: int) -> bool:
    """Nothing comes to a step behind a ``stop``, unless a consultant may choose it."""
    before = [step for position, step in failure.steps() if position < place]
    return any(isinstance(step, Stop) for step in before) and not any(isinstance(step, Consult) for step in before)


def _only_asks(rule: ToolRule) -> bool:
    """Its arrow to a person says all of it."""
    more = rule.deny or rule.limit is not None or rule.timeout is not None or rule.retry is not None
    return rule.ask and not more
