"""The error-control cases in our terms: their configurations as policies, their scripts as lists of events.

The original names a maximum of iterations and counts requests that may ask for tools: the tools of the last one are
not run, and a further request without tools follows. In our words that is one round less, refused with a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from conformance_cases import Case
from conformance_world import limit

from engine.core.canonical import arguments_key
from engine.core.policy import Breaker, FailureRule, Finalization, Policy, Price, ToolRule

MODEL = "scripted"


def script(case: Case) -> Iterator[dict[str, Any]]:
    """The events one by one; the data says ``times`` where one is repeated."""
    for event in case["script"]:
        for _ in range(event.get("times", 1)):
            yield event


def key(args: Any) -> str:
    """The key of a case's arguments; what could not be written as JSON there is no JSON here."""
    text = json.dumps(args)
    return arguments_key("<no JSON>" if "<unserialisable>" in text else text)


def breaker_of(config: dict[str, Any], **more: Any) -> Breaker:
    """One breaker for every tool, as the configuration says; its switched-off detectors are left out."""
    trips = [
        {"kind": kind, "n": config[name]}
        for kind, name in (("same_args", "max_consecutive_same_args"), ("alternating", "pattern_window_size"))
        if config.get(name)
    ]
    seconds = config.get("reset_after_s")
    reset = {"reset": round(seconds * 1000)} if seconds else {}
    return Breaker.model_validate({"glob": "*", "trips": trips, **reset, **more})


def breakers_of(config: dict[str, Any]) -> tuple[Breaker, ...]:
    watched = config.get("max_consecutive_same_args") or config.get("pattern_window_size")
    return (breaker_of(config),) if watched else ()


def rounds_of(config: dict[str, Any]) -> dict[str, Any]:
    """The original's maximum of iterations; none if it is 0, which there means a default of its own."""
    most = config.get("max_iterations")
    if not most:
        return {}
    rounds = limit("tool_iterations", most - 1, "")
    return {"limits": (rounds,), "finalization": Finalization(mode="reactive", text="Not run.")}


def failures_of(config: dict[str, Any]) -> tuple[FailureRule, ...]:
    """Attempts as retries without noticeable waits, then the client to fall back on."""
    steps: list[dict[str, Any]] = []
    if (attempts := config.get("llm_attempts", 1)) > 1:
        steps.append({"do": "retry", "times": attempts - 1, "least": 1, "most": 1})
    if config.get("on_llm_failure") == "fallback_model" or "fallback" in config:
        steps.append({"do": "fallback", "clients": [config.get("fallback") or "nobody"]})
    return (FailureRule.model_validate({"reasons": ["*"], "then": steps}),) if steps else ()


def budget_of(config: dict[str, Any]) -> dict[str, Any]:
    """Limits on tokens and cost, with the prices of one model."""
    limits = []
    if config.get("max_tokens"):
        limits.append(limit("tokens", config["max_tokens"]))
    if config.get("max_cost_usd"):
        limits.append(limit("cost", round(config["max_cost_usd"] * 1_000_000)))
    rates = {name: config.get(f"{word}_usd_per_1m") for name, word in (("input", "prompt"), ("output", "completion"))}
    prices = ()
    if all(rate is not None for rate in rates.values()):
        prices = (Price.model_validate({"model": MODEL, **{k: round(v * 1_000_000) for k, v in rates.items() if v}}),)
    return {"limits": tuple(limits), "prices": prices}


def policy_of_errors(config: dict[str, Any], **more: Any) -> Policy:
    """All of a configuration that concerns one run."""
    asks = (ToolRule(glob="*", ask=True),) if config.get("needs_approval") else ()
    parts = {
        "name": "case",
        "failures": failures_of(config),
        "breakers": breakers_of(config),
        "tools": asks,
        **rounds_of(config),
    }
    return Policy.model_validate({**parts, **more})
