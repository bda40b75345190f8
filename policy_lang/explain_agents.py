"""What a policy says of trees of agents: how many there may be, and how they draw on what is limited.

One sentence a rule. The rules of one agent are told by ``explain`` like the policy's own; here is only what becomes of
the policy's limits there.
"""

from __future__ import annotations

from typing import Final

from engine.core.policy import Agents, Limit, Policy, TreeLimit
from engine.core.vocabulary import TREE_RESOURCES
from policy_lang.names import quoted

_INHERITED: Final = (
    "An agent has the rules of the policy: limits of one run are counted for it anew, and what the policy limits for a "
    "tree or a thread is limited for all agents together."
)
_REFUSED: Final = (
    "An agent that cannot be spawned is refused: the run that wanted it goes on, and its model is told which limit it "
    "was."
)


def tree(policy: Policy) -> list[tuple[str, str]]:
    """What limits the tree of a policy that speaks of agents, each sentence with its place."""
    if policy.agents is None and not policy.agent:
        return []
    agents = policy.agents or Agents()
    told = [(_limit(limit), str(limit.origin or "")) for limit in agents.limits]
    place = str(agents.origin or "")
    told += [(text, place) for text in _pools(agents)]
    return [*told, (_REFUSED, "default"), (_INHERITED, "default")]


def by_default(policy: Policy) -> str:
    """What limits a tree where the policy writes no limit; empty if it writes all of them."""
    written = {limit.resource for limit in policy.agents.limits} if policy.agents else set()
    told = []
    if "depth" not in written:
        told.append(f"there are at most {TREE_RESOURCES['depth']} levels of agents below a run")
    if "concurrent" not in written:
        told.append(f"at most {TREE_RESOURCES['concurrent']} agents of one parent run at the same time")
    text = ", and ".join(told)
    return f"Where agents are delegated to, {text}." if text else ""


def replacing(limit: Limit, policy: Policy) -> str:
    """What a limit in the block of an agent does to the policy's of the same resource and scope."""
    same = any(other.id == limit.id for other in policy.limits)
    if limit.scope in ("run", None):
        return " It takes the place of the policy's." if same else ""
    return " It holds beside the policy's, which is for the whole tree." if same and limit.scope == "subtree" else ""


def _limit(limit: TreeLimit) -> str:
    text = _unlimited(limit) if limit.max is None else _limited(limit, limit.max)
    return f"{text} It is locked." if limit.locked else text


def _limited(limit: TreeLimit, most: int) -> str:
    agents = f"{most} agent" if most == 1 else f"{most} agents"
    match limit.resource:
        case "children":
            return f"An agent spawns at most {agents}, through all its runs." if most else "No agent spawns others."
        case "live_children":
            verb = "is" if most == 1 else "are"
            return (
                f"At most {agents} of one parent {verb} open at the same time." if most else "No agent spawns others."
            )
        case "depth":
            levels = "is at most 1 level" if most == 1 else f"are at most {most} levels"
            return f"There {levels} of agents below a run." if most else "A run has no agents below it."
        case "concurrent":
            verb = "runs" if most == 1 else "run"
            return f"At most {agents} of one parent {verb} at the same time; others wait, the first of them first."


def _unlimited(limit: TreeLimit) -> str:
    return {
        "children": "An agent spawns any number of agents.",
        "live_children": "Any number of agents may be open at the same time.",
        "depth": "There may be any number of levels of agents below a run.",
        "concurrent": "Any number of agents may run at the same time.",
    }[limit.resource]


def _pools(agents: Agents) -> list[str]:
    told = []
    if agents.share:
        told.append(f"Agents draw on {quoted(agents.share, 'and')} together with those above them.")
    if agents.carve:
        told.append(
            f"What an agent may use of {quoted(agents.carve, 'and')} is set aside for it when it is spawned, and what "
            "is left returns to its parent when it is closed."
        )
    return told
