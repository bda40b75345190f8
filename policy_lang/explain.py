"""A policy in plain English: one sentence for each rule, with the line it stands on.

Takes a ``Policy``, from a file or from Python. Says what the rules mean, defaults included; says
nothing that ``step`` does not do. Layout is fixed, so that the same policy always reads the same.
"""

from __future__ import annotations

import textwrap
from typing import Final

from engine.core.machine.plan import plans_of
from engine.core.policy import AgentRules, Ask, FailureRule, Finalize, Limit, Origin, Policy, Price, Threshold, ToolRule
from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS, DEFAULT_GRACE_MS, DEFAULT_INSTRUCTION, RESOURCES
from policy_lang import explain_agents, explain_breakers, explain_failures
from policy_lang.explain_failures import retries
from policy_lang.explain_limits import attempt_wall, final_step, finalizes, sentence, unlimited
from policy_lang.explain_words import NOUNS, amount, ended
from policy_lang.names import listed
from policy_lang.quantities import duration_text, money_text
from policy_lang.texts import quote

WIDTH: Final = 110
_DEFAULT = "default"

_ONCE: Final = (
    "A run has at most one final call, and no tool runs after it; if the model asks for tools in it all the same, "
    "the run fails (`finalization_disobeyed`)."
)

Sentence = tuple[str, str]
"""What a rule means, and where it stands."""


def explain(policy: Policy) -> str:
    """The reading of a policy, without a final newline."""
    parts = [f"The policy {quote(policy.name)}"]
    parts += [_section(title, sentences) for title, sentences in sections(policy)]
    return "\n\n".join(parts)


def sections(policy: Policy) -> list[tuple[str, list[Sentence]]]:
    """The same as data: headings, each with what stands below it."""
    told = (
        ("Limits", _limits(policy, policy.limits)),
        ("The final call", _final_call(policy)),
        ("Failed model calls", _failures(policy)),
        ("Thresholds", [_threshold(t) for t in policy.thresholds]),
        ("Breakers", _breakers(policy)),
        ("Tools", [(_tool(rule), _place(rule.origin)) for rule in policy.tools]),
        ("Agents", explain_agents.tree(policy)),
        *((f"The agent {quote(rules.name)}", _agent(rules, policy)) for rules in policy.agent),
        ("Prices", [_price(price) for price in policy.prices]),
        ("Where the policy says nothing", _defaults(policy)),
    )
    return [(title, sentences) for title, sentences in told if sentences]


def _section(title: str, sentences: list[Sentence]) -> str:
    return "\n".join([title, *(_bullet(text, place) for text, place in sentences)])


def _bullet(text: str, place: str) -> str:
    whole = f"{ended(text)} [{place}]" if place else ended(text)
    return textwrap.fill(
        whole,
        WIDTH,
        initial_indent="  - ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _place(origin: Origin | None) -> str:
    return str(origin) if origin else ""


# ---- limits and the final call


def _limits(policy: Policy, limits: tuple[Limit, ...]) -> list[Sentence]:
    """Some of the limits of a policy, in the order they were written."""
    plans = {plan.limit.id: plan for plan in plans_of(policy)}
    told = []
    for limit in limits:
        if limit.max is None:
            text = unlimited(limit)
        elif limit.resource == "attempt_wall":
            text = attempt_wall(limit.max)
        else:
            text = sentence(plans[limit.id], policy)
        told.append((f"{text} It is locked." if limit.locked else text, _place(limit.origin)))
    return told


def _final_call(policy: Policy) -> list[Sentence]:
    final, place = policy.finalization, _place(policy.finalization.origin)
    told: list[Sentence] = []
    reasons = _final_reasons(policy)
    agents = [policy.of_agent(rules.name) for rules in policy.agent]
    if reasons or any(_final_reasons(agent) for agent in agents):
        told.append((_ONCE, _DEFAULT))
    if any(any(_asks_default(one)) for one in (policy, *agents)):
        told.append((f"The default instruction is {quote(DEFAULT_INSTRUCTION)}", _DEFAULT))
    if set(policy.resolvers()) - policy.consultants():
        told.append(("A function of the host that returns an empty text stands for the default text.", _DEFAULT))
    if len(reasons) > 1:
        order = listed([f"`{name}`" for name in final.order if name in reasons], "and")
        text = f"Where several reasons make a call the final one, the first of {order} gives reason and instruction."
        told.append((text, place if final.prefer else _DEFAULT))
    if final.mode == "reactive" and reasons & {"tool_iterations", "tool_calls"}:
        told.append((_refusal(policy), place))
    if final.empty_retries:
        times = "once" if final.empty_retries == 1 else f"up to {final.empty_retries} times"
        again = f"An answer without visible text is asked for again, {times} for each call"
        told.append((f"{again}; then the run fails (`empty_answer`).", place))
    return told


def _final_reasons(policy: Policy) -> set[str]:
    """What can make a call the final one."""
    reasons = {plan.resource for plan in plans_of(policy) if finalizes(plan)}
    if any(isinstance(step, Finalize) for rule in policy.failures for step in rule.then):
        reasons.add("llm_failure")
    if any(breaker.when_open == "finalize" for breaker in policy.breakers):
        reasons.add("breaker")
    return reasons


def _asks_default(policy: Policy) -> list[bool]:
    """For each finalization of the policy: is the default instruction its own?"""
    steps: list[object] = [step for plan in plans_of(policy) if finalizes(plan) for step in plan.steps]
    steps += [step for rule in policy.failures for step in rule.then]
    steps += [final_step(breaker) for breaker in policy.breakers if breaker.when_open == "finalize"]
    return [step.text is None and step.using is None for step in steps if isinstance(step, Finalize)]


def _refusal(policy: Policy) -> str:
    final = policy.finalization
    if final.using:
        return (
            f"Each call of a round that does not fit is answered with what the host's function `{final.using}` returns."
        )
    text = quote(final.text) if final.text else "the standard refusal"
    return f"Each tool call that does not fit is answered with {text}"


# ---- failures and breakers


def _failures(policy: Policy) -> list[Sentence]:
    told = _failure_rules(policy, policy.failures)
    return told + [(text, _DEFAULT) for text in explain_failures.general(policy)]


def _failure_rules(policy: Policy, rules: tuple[FailureRule, ...]) -> list[Sentence]:
    return [(explain_failures.sentence(rule, policy), _place(rule.origin)) for rule in rules]


def _breakers(policy: Policy) -> list[Sentence]:
    return [(explain_breakers.sentence(breaker, policy), _place(breaker.origin)) for breaker in policy.breakers]


# ---- agents


def _agent(rules: AgentRules, policy: Policy) -> list[Sentence]:
    """What holds for one agent beside the rules of the policy."""
    child = policy.of_agent(rules.name)
    limits = zip(_limits(child, rules.limits), rules.limits, strict=True)
    told = [(text + explain_agents.replacing(limit, policy), place) for (text, place), limit in limits]
    told += _failure_rules(child, rules.failures)
    told += [_threshold(threshold) for threshold in rules.thresholds]
    return told + [(_tool(rule), _place(rule.origin)) for rule in rules.tools]


# ---- thresholds, tools, prices


def _threshold(threshold: Threshold) -> Sentence:
    resource = threshold.resource
    reached = {"cost": "the money is spent", "wall": "the time has passed"}.get(resource)
    reached = reached or f"the {NOUNS[resource].many} are used"
    when = f"Once {threshold.percent}% of {reached},"
    if threshold.action == "warn":
        return f"{when} a warning is noted, once a run.", _place(threshold.origin)
    if threshold.action == "use":
        return f"{when} later model calls go to `{threshold.client}`.", _place(threshold.origin)
    text = f"{when} the next ordinary call carries the notice {quote(threshold.text or '')}, once a run."
    return text, _place(threshold.origin)


def _tool(rule: ToolRule) -> str:
    many = "*" in rule.glob or "?" in rule.glob
    clauses = []
    if rule.allow:
        clauses.append("is allowed, as an exception to broader rules that deny or ask in the same file")
    if rule.deny:
        clauses.append(f"is denied: a call is answered with {_text(rule.deny_text)}")
    if rule.limit is not None:
        times = "once" if rule.limit == 1 else f"{rule.limit} times"
        shared = " for all of them together" if many else ""
        clauses.append(f"runs at most {times} a run{shared}: a further call is answered with {_text(rule.limit_text)}")
    if rule.timeout is not None:
        clauses.append(f"may take {duration_text(rule.timeout)} for one execution, and is cancelled then")
    if rule.ask:
        within = ""
        if rule.ask_within is not None:
            within = f", who has {duration_text(rule.ask_within)} to answer; no answer in time is a refusal"
        clauses.append(f"runs only if a person allows the call{within}")
    if rule.retry is not None:
        clauses.append(f"is tried again when it fails or times out, {retries(rule.retry)}")
    return f"{explain_breakers.tools(rule.glob)} {'; it '.join(clauses)}"


def _text(text: str | None) -> str:
    return quote(text) if text else "the standard refusal"


def _price(price: Price) -> Sentence:
    cached = "" if price.cached is None else f", {money_text(price.cached)} where it is read from a cache"
    cost = f"{money_text(price.input)} as input{cached}, and {money_text(price.output)} as output"
    return f"A million tokens of `{price.model}` cost {cost}.", _place(price.origin)


# ---- defaults


def _asks(policy: Policy) -> bool:
    """May a run under this policy, or one of its agents, wait for people?"""
    limits = [*policy.limits, *(limit for rules in policy.agent for limit in rules.limits)]
    tools = [*policy.tools, *(rule for rules in policy.agent for rule in rules.tools)]
    return any(rule.ask for rule in tools) or any(isinstance(step, Ask) for limit in limits for step in limit.then)


def _defaults(policy: Policy) -> list[Sentence]:
    limited = {limit.resource for limit in policy.limits}
    free = [f"`{name}`" for name in RESOURCES if name not in limited and name != "attempt_wall"]
    told: list[str] = []
    if free:
        told.append(f"Counted, not limited: {listed(free, 'and')}.")
    if "attempt_wall" not in limited:
        told.append(attempt_wall(DEFAULT_ATTEMPT_WALL_MS))
    if failing := explain_failures.unhandled(policy):
        told.append(failing)
    if not policy.finalization.empty_retries:
        told.append("An answer without visible text fails the run (`empty_answer`).")
    if "unknown_tools" not in limited:
        told.append("A call of a tool that nobody registered is answered with a refusal, however often.")
    if any(limit.resource == "cost" and limit.max is not None for limit in policy.limits):
        told.append("A model without a price ends the run as failed (`price_unknown`).")
    walls = [limit for limit in policy.limits if limit.resource == "wall" and limit.max is not None]
    if _asks(policy) and any(not limit.counting_approvals for limit in walls):
        told.append("The clock of `wall` stands still while only people are awaited.")
    if trees := explain_agents.by_default(policy):
        told.append(trees)
    told.append(
        f"What is in flight when a run must end is cancelled, and has {amount('wall', DEFAULT_GRACE_MS)} to end."
    )
    return [(text, _DEFAULT) for text in told]
