"""What a rule of the machine, a step of a ladder and a place beside a limit are called, in sentences of their own."""

from __future__ import annotations

from engine.core.machine.failure_plan import failure_plans
from engine.core.machine.machine import Effect, Rule
from engine.core.machine.plan import Plan
from engine.core.policy import Policy
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES
from engine.verify.coverable import Point

_ON = {
    "start": "at the start",
    "call": "on a call",
    "attempt": "on a further attempt",
    "round": "on a reply that asks for tools",
    "tool": "on a tool call",
    "judged": "once a round is judged",
    "failed": "on a failed attempt",
    "tick": "as time passes",
    "empty": "on an empty reply",
    "resolved": "on an answer of the host's function",
    "extension": "on a person's answer",
    "withheld": "on a refusal",
}

_WHAT = {
    ("end", "incomplete"): "the run ends because of {limit}",
    ("end", "llm_failure"): "the run ends",
    ("end", "empty_answer"): "the run ends without an answer",
    ("end", "breaker"): "the run ends because of the breaker",
    ("stop", "incomplete"): "what is in flight is cancelled because of {limit}",
    ("final", "finalize"): "it is the final call, because of {limit}",
    ("refuse", "refused"): "the round is refused because of {limit}",
    ("again", "extended"): "{limit} is extended",
    ("suspend", "ask"): "a person is asked for more of {limit}",
    ("again", "all"): "all that was asked for of {limit} is granted",
    ("again", "part"): "a part of what was asked for of {limit} is granted",
    ("again", "ungranted"): "nothing more of {limit} is granted",
    ("resolve", "resolve"): "the host's function is asked for the instruction",
    ("resolve", "consult"): "the host's function is asked for the next step",
    ("again", "resolved"): "its text is the instruction of the final call",
    ("again", "resolver_failed"): "it has failed, and the default instruction is sent",
    ("retry", "retry"): "the call is tried again",
    ("retry", "empty"): "the call is tried again",
    ("fallback", "fallback"): "another client is asked",
    ("continue", "pending"): "the next call is to be the final one",
    ("reply", "breaker"): "it is skipped, for its breaker is open",
    ("reply", "tool_calls"): "it is skipped because of {limit}",
    ("reply", "unknown_tool"): "the tool is not known",
}

_STEPS = {
    ("final", "finalize"): "finalize",
    ("again", "extended"): "extend",
    ("suspend", "ask"): "ask",
    ("resolve", "consult"): "consult",
    ("end", "incomplete"): "stop",
}


class Words:
    """The words for one policy (of one agent, where it has its own)."""

    def __init__(self, policy: Policy, plans: tuple[Plan, ...]) -> None:
        self.plans = plans
        self.ladders = {plan.index: plan for plan in failure_plans(policy)}

    def rule(self, rule: Rule) -> str:
        """``on a call: the run ends because of `llm_calls` ``."""
        event, effect = rule.id.partition(".")[0], rule.effect
        on = _ON.get(event, f"on `{event}`")
        if effect.ladder:
            on = f"{on} ({self._reasons(effect)}, step {effect.step + 1})"
        what = _WHAT.get((effect.kind, effect.word), " ".join(filter(None, (effect.kind, effect.word))))
        return f"{on}: {what.format(limit=self._limit(rule))}"

    def step(self, rule: Rule) -> str:
        """The step of a ladder that a rule takes: ``step `extend` of `llm_calls` ``; empty if it takes none."""
        effect = rule.effect
        if effect.ladder and effect.step < len(self.ladders[effect.ladder].rule.then):
            verb = self.ladders[effect.ladder].rule.then[effect.step].do
            return f"step {effect.step + 1}, `{verb}`, of `on llm_failure {self._reasons(effect)}`"
        word = _STEPS.get((effect.kind, effect.word), "")
        return f"step `{word}` of {self._limit(rule)}" if word and effect.limit >= 0 else ""

    def point(self, point: Point) -> str:
        """``with 18 of 20 `llm_calls` used``."""
        plan = self.plan(point.limit)
        unit = RESOURCES[plan.limit.resource].unit
        if not plan.counted:
            left = {2: "enough", 1: "only the reserve", 0: "nothing"}[point.left]
            return f"with {left} left of `{point.limit}` ({quantity(unit, plan.maximum)})"
        return f"with {plan.maximum - point.left} of {plan.maximum} `{point.limit}` used"

    def plan(self, limit: str) -> Plan:
        return next(plan for plan in self.plans if plan.limit.id == limit)

    def _limit(self, rule: Rule) -> str:
        if rule.effect.limit >= 0:
            return f"`{self.plans[rule.effect.limit].limit.id}`"
        return "the breaker" if "breaker" in rule.id else "a failure" if "failure" in rule.id else "the policy"

    def _reasons(self, effect: Effect) -> str:
        return ", ".join(self.ladders[effect.ladder].rule.reasons)
