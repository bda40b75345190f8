"""Which rules of a policy's machine fire, and where a run is then: asked of a process that can be ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property

import policy_lang
from engine.core.policy import Policy

LONGEST = 60.0
"""Seconds after which the search is given up. It is bounded in itself; this is for what nobody thought of."""


@dataclass(frozen=True)
class Reach:
    """``fired``: rules by id, and the places where they fire. ``cut``: why others may fire too."""

    fired: dict[str, list[str]]
    cut: str

    @cached_property
    def complete(self) -> bool:
        return not self.cut


def reach(policies: list[Policy]) -> list[Reach]:
    """Search the states of each policy."""
    # The directory it is called from may have an `engine` of its own: -P leaves it out.
    command = [sys.executable, "-P", "-m", "engine.verify.passages"]
    here = os.path.dirname(os.path.dirname(os.path.abspath(policy_lang.__file__)))
    paths = [here, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    request = json.dumps({"policies": [policy.model_dump(mode="json") for policy in policies]})
    try:
        done = subprocess.run(
            command, input=request, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return [Reach({}, "stopped because its time was over")] * len(policies)
    if done.returncode:
        return [Reach({}, "the search failed")] * len(policies)
    return [Reach(answer["rules"], answer["cut"]) for answer in json.loads(done.stdout)]
