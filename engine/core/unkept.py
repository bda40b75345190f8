"""What a host cannot keep of a policy, in sentences: for whoever starts runs there."""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.host import ABILITIES, LIMITS, OF_CHILDREN, WORDS, final_needs, missing_laws
from engine.core.ladders import Ask, Fallback, Finalize, Retry
from engine.core.machine.plan import origin_of
from engine.core.policy import AgentRules, Policy

Needed = tuple[str, str, tuple[str, ...]]
"""The word of a statement, its place, and the abilities it needs."""


def unkept(policy: Policy, profile: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence for each statement that a host with this profile cannot honour, and one for the laws it cannot keep.

    They come in the order of the policy's parts, each but once.
    """
    found: dict[str, None] = {}
    for word, place, needs in _needs(policy):
        missing = [ability for ability in needs if ability not in profile]
        if missing:
            where = f" ({place})" if place else ""
            found[f"`{word}`{where} is without effect: needed is a host that {ABILITIES[missing[0]]}"] = None
    laws = [law for law in missing_laws(profile) if law != OF_CHILDREN or policy.agents is not None]
    if laws:
        found[f"nothing keeps {', '.join(laws)} here"] = None
    return tuple(found)


def _needs(policy: Policy) -> Iterator[Needed]:
    final = final_needs(policy.finalization.tools)
    yield from _of_block(policy, final)
    for rules in policy.agent:
        yield from _of_block(rules, final)
    for breaker in policy.breakers:
        yield "breaker", origin_of(breaker.origin, f"breaker {breaker.glob}"), WORDS["breaker"]
    if policy.agents is not None:
        yield "agents", "", WORDS["agents"]


def _of_block(block: Policy | AgentRules, final: tuple[str, ...]) -> Iterator[Needed]:
    for limit in block.limits:
        if limit.max is not None:
            yield (
                limit.resource,
                origin_of(limit.origin, f"limit {limit.id}"),
                ("veto", *LIMITS.get(limit.resource, ())),
            )
            yield from _of_steps(limit.then, origin_of(limit.origin, f"limit {limit.id}"), final)
    for rule in block.failures:
        yield from _of_steps(rule.then, origin_of(rule.origin, "on llm_failure"), final)
    for threshold in block.thresholds:
        if threshold.client:
            yield "use", origin_of(threshold.origin, "threshold"), WORDS["use"]
    for tool in block.tools:
        told = {"deny": tool.deny, "limit": tool.limit is not None, "tool ask": tool.ask}
        told |= {"timeout": tool.timeout is not None, "tool retry": tool.retry is not None}
        yield from (
            (word, origin_of(tool.origin, f"tool {tool.glob}"), WORDS[word]) for word, said in told.items() if said
        )


def _of_steps(steps: tuple[object, ...], place: str, final: tuple[str, ...]) -> Iterator[Needed]:
    for step in steps:
        if isinstance(step, Finalize):
            yield "finalize", place, final
        elif isinstance(step, Ask):
            yield "ask", place, WORDS["ask"]
        elif isinstance(step, Retry):
            yield "retry", place, WORDS["retry"]
        elif isinstance(step, Fallback):
            yield "fallback", place, WORDS["fallback"]
