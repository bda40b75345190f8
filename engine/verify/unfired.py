"""What a policy's limits and failure ladders ever decide, found by visiting every state. A process of its own:

    python -m engine.verify.unfired < request > answer

The request is ``{"policy": …, "seconds": …}`` in JSON, the answer that of ``decided``. Whoever asks can end the process
when it has waited long enough: writing the search itself takes time too, and nothing else bounds that.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from engine.core.machine.build import build
from engine.core.machine.failure_plan import failure_plans
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.verify.explore import explore


def decided(policy: Policy, seconds: float) -> dict[str, Any]:
    """``limits``: the id of each limit, to the kinds of effects it ever has (``machine.Effect``). ``ladders``: for each
    failure rule, in the order of the policy, the places of the steps that are ever taken.

    ``cut`` says why not everything was seen. Where it is empty, what is missing never happens in any run whose rounds
    have at most two tools.
    """
    machine = build(policy)
    plans = plans_of(policy)
    found = explore(machine, Laws((), (), plans), max_seconds=seconds)
    limits: dict[str, set[str]] = {plan.limit.id: set() for plan in plans}
    steps: dict[int, set[int]] = {plan.index: set() for plan in failure_plans(policy)}
    for rules in machine.rules.values():
        for effect in (rule.effect for rule in rules if found.fired[rule.id]):
            if effect.limit >= 0:
                limits[plans[effect.limit].limit.id].add(effect.kind)
            if effect.ladder:
                steps[effect.ladder].add(effect.step)
    places = {id(plan.rule): sorted(steps[plan.index]) for plan in failure_plans(policy)}
    return {
        "cut": found.cut or (f"not every value of {', '.join(found.sampled)} was tried" if found.sampled else ""),
        "limits": {name: sorted(kinds) for name, kinds in limits.items()},
        "ladders": [places[id(rule)] for rule in policy.failures],
    }


def main() -> None:
    request = json.load(sys.stdin)
    json.dump(decided(Policy.model_validate(request["policy"]), request["seconds"]), sys.stdout)


if __name__ == "__main__":
    main()
