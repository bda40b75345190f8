"""The agents below a run, each with its budget: what all share, what is set aside, what holds for one alone."""

from __future__ import annotations

from engine.core.ladders import Ask, Consult, Extend, Finalize
from engine.core.machine.build import build
from engine.core.machine.plan import Plan, plans_of
from engine.core.policy import AgentRules, Agents, FailureRule, Policy, TreeLimit
from engine.core.vocabulary import POOLABLE
from policy_lang.graph import words
from policy_lang.graph.picture import Box, Item
from policy_lang.graph.searched import Reach
from policy_lang.names import listed


def tree(policy: Policy, reached: dict[str, Reach]) -> tuple[Box, ...]:
    """A box of what the tree shares, then one for each agent that has rules; empty where nothing is said of agents.

    ``reached`` is what the search has found for each agent by name.
    """
    if policy.agents is None and not policy.agent:
        return ()
    agents = policy.agents or Agents()
    return (
        _shared(policy, agents),
        *(_agent(rules, policy, agents, reached.get(rules.name)) for rules in policy.agent),
    )


def _shared(policy: Policy, agents: Agents) -> Box:
    items = [Item(_tree_limit(limit), limit.origin) for limit in agents.limits if limit.max is not None]
    pools = [plan for plan in plans_of(policy) if plan.limit.scope == "subtree"]
    pools.sort(key=lambda plan: (plan.limit.origin.file, plan.limit.origin.line) if plan.limit.origin else ("", 0))
    for plan in pools:
        how = ", a part set aside for each" if plan.resource in agents.carve else " for all together"
        items.append(Item(f"{words.much(plan, plan.maximum)}{how}", plan.limit.origin))
    named = [resource for resource in agents.carve if resource not in {plan.resource for plan in pools}]
    if named:
        items.append(Item(f"set aside for each: {listed(named, 'and')}", agents.origin))
    return Box("agents", "agent", "agents", _bounds(agents), tuple(items))


def _bounds(agents: Agents) -> str:
    """How large a tree may be, where nothing is written."""
    written = {limit.resource for limit in agents.limits}
    told = []
    if "depth" not in written:
        told.append(f"{agents.of('depth')} levels")
    if "concurrent" not in written:
        told.append(f"{agents.of('concurrent')} at the same time")
    return f"at most {', '.join(told)}" if told else ""


def _tree_limit(limit: TreeLimit) -> str:
    match limit.resource:
        case "children":
            return f"at most {limit.max} spawned by one" if limit.max else "none is spawned"
        case "live_children":
            return f"at most {limit.max} open below one"
        case "depth":
            return f"at most {limit.max} {'level' if limit.max == 1 else 'levels'}"
        case "concurrent":
            return f"at most {limit.max} at the same time, others wait"


def _agent(rules: AgentRules, policy: Policy, agents: Agents, reach: Reach | None) -> Box:
    child = policy.of_agent(rules.name)
    own = {limit.id for limit in rules.limits}
    acting = _acting(child, reach)
    items = [
        Item(_budget(plan, agents), plan.limit.origin, sure=plan.name in acting)
        for plan in plans_of(child)
        if plan.limit.id in own and (plan.name in acting or reach is None or not reach.complete)
    ]
    items += [Item(words.threshold(each), each.origin) for each in rules.thresholds]
    items += [Item(_failures(rule, child), rule.origin) for rule in rules.failures]
    items += [Item(words.tool(rule), rule.origin) for rule in rules.tools]
    items.sort(key=lambda item: (item.origin.file, item.origin.line) if item.origin else ("", 0))
    return Box(f"agent {rules.name}", "agent", rules.name, "", tuple(items))


def _acting(child: Policy, reach: Reach | None) -> set[str]:
    """The limits that decide something in some run."""
    if reach is None:
        return set()
    effects = {rule.id: rule.effect for rules in build(child).rules.values() for rule in rules}
    plans = plans_of(child)
    return {plans[effects[rule].limit].name for rule in reach.fired if rule in effects and effects[rule].limit >= 0}


def _budget(plan: Plan, agents: Agents) -> str:
    """What an agent may use, from which pool, and what follows: ``10k tokens of all, then the final call``."""
    pool = ""
    if plan.resource in POOLABLE and plan.limit.scope == "subtree":
        pool = ", set aside" if plan.resource in agents.carve else ", shared"
    steps = []
    for step in plan.steps:
        match step:
            case Finalize():
                steps.append("the final call")
            case Extend():
                steps.append(f"{words.more(plan, step)} more")
            case Ask():
                steps.append("a person is asked")
            case Consult(name=name):
                steps.append(f"{name}() chooses")
    return f"{words.much(plan, plan.maximum)}{pool}{''.join(f', then {step}' for step in steps)}"


def _failures(rule: FailureRule, child: Policy) -> str:
    return f"{words.reasons(rule, child)}: {', then '.join(words.failure_step(step) for step in rule.then)}"
