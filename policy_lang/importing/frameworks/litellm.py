"""LiteLLM: reliability settings of the Router and of the proxy's `config.yaml`.

Counted there: `num_retries` further attempts of one request, with waits that double from half a second to eight;
then a fallback to another model group, for this request alone. Cooldowns and budgets are shared by all requests; a
policy is about one run.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.draft import fallback
from policy_lang.importing.framework import Framework, Import
from policy_lang.importing.keys import inside, keep, lost, names, timed
from policy_lang.importing.values import Value
from policy_lang.quantities import duration_text

_REASONS: Final = {
    "rate_limit_error_retries": "rate_limit",
    "timeout_error_retries": "timeout",
    "internal_server_error_retries": "provider",
    "service_unavailable_error_retries": "overloaded",
    "authentication_error_retries": "auth",
    "bad_request_error_retries": "invalid_request",
    "not_found_error_retries": "invalid_request",
    "content_policy_violation_error_retries": "content_filter",
    "default_retries": "*",
}
_FIRST, _LONGEST = 500, 8_000
"""Milliseconds of the first and of the longest wait there."""

_ATTEMPT: Final = "seconds for one attempt; then it has failed with `timeout`, which retries and fallbacks may follow."
_BUDGET: Final = (
    "a budget over all requests of a process or key is not a run's: `cost … per run` or `per thread` limits one"
)


def _finish(into: Import) -> None:
    """Retries first, then the fallbacks: one ladder for each reason that has either."""
    retries = _retries(into)
    chains = _chains(into)
    if wait := into.kept.get("retry_after"):
        into.same(
            wait, "it is the first wait of the retries" if retries else "nothing is tried again, so nothing waits"
        )
    if model := into.kept.get("model"):
        into.left(model, "no limit")
    for reason in sorted(retries.keys() | chains.keys(), key=lambda reason: (reason == "*", reason)):
        if reason in retries:
            value, times = retries[reason]
            into.failure(value, reason, [f"retry {times} {_waits(into)}"], "further attempts of the same request.")
        found = chains.get(reason) or chains.get("*")
        if found:
            value, models = found
            why = (
                "for this call alone, then the first model again. A fallback is a call of its own here, and counts. "
                "The names are those of the host's clients."
            )
            into.failure(value, reason, [fallback(models, "call")], why)


def _retries(into: Import) -> dict[str, tuple[Value, int]]:
    """How often what is tried again, by reason; a reason with 0 has no entry."""
    found: dict[str, tuple[Value, int]] = {}
    if (value := into.kept.get("num_retries")) and value.data is not None and (times := into.number(value)) is not None:
        found["*"] = (value, times)
    policy = into.kept.get("retry_policy")
    for key, value in (into.mapping(policy) if policy else {}).items():
        if key not in _REASONS:
            into.lose(value, "no kind of failure that this import knows")
        elif value.data is not None and (times := into.number(value)) is not None:
            found[_REASONS[key]] = (value, times)
    if "provider" in found and "*" in found:
        found.setdefault("overloaded", found["*"])  # here a kind of `provider`, there of its own
    for reason, (value, times) in list(found.items()):
        if not times:
            del found[reason]
            if reason == "*" or "*" not in found:
                into.same(value, "nothing is tried again unless the policy says so")
            else:
                into.lose(value, f"`{reason}` is not excepted from the rule for all other failures")
    return found


def _waits(into: Import) -> str:
    least = into.kept.get("retry_after")
    first = (into.milliseconds(least) or 0) if least is not None and least.data is not None else 0
    first = min(max(_FIRST, first), _LONGEST)
    return f"every {duration_text(first)}..{duration_text(_LONGEST)} jitter"


def _chains(into: Import) -> dict[str, tuple[Value, list[str]]]:
    """The models to go to, by reason."""
    found: dict[str, tuple[Value, list[str]]] = {}
    keys = {"default_fallbacks": "*", "fallbacks": "*", "context_window_fallbacks": "context_exceeded"}
    for key, reason in {**keys, "content_policy_fallbacks": "content_filter"}.items():
        value = into.kept.get(key)
        models = _chain(value, into) if value is not None and value.data is not None else []
        if value is not None and models:
            found[reason] = (value, models)
    return found


def _chain(value: Value, into: Import) -> list[str]:
    """`[{group: [a, b]}]` of the file's one model, or a plain list. A policy has one chain for a reason."""
    if not value.items or not all(isinstance(one.data, dict) for one in value.items):
        return [text for _, text in into.texts(value)]
    groups = {group: models for one in value.items for group, models in one.mapping.items()}
    own = into.kept.get("model")
    name = own.data if own is not None and isinstance(own.data, str) else None
    if len(groups) > 1 and name not in groups and "*" not in groups:
        into.lose(value, "chains for several models, and the file does not say which one a run begins with")
        return []
    chosen = name if name in groups else "*" if "*" in groups else next(iter(groups))
    return [text for _, text in into.texts(groups[chosen])]


FRAMEWORK: Final = Framework(
    name="litellm",
    title="LiteLLM",
    version="1.110.2",
    keys={
        "num_retries": keep("num_retries"),
        "retry_after": keep("retry_after"),
        "retry_policy": keep("retry_policy"),
        "model_group_retry_policy": lost("retries are the same for all models here; a rule is for a reason"),
        "fallbacks": keep("fallbacks"),
        "default_fallbacks": keep("default_fallbacks"),
        "context_window_fallbacks": keep("context_window_fallbacks"),
        "content_policy_fallbacks": keep("content_policy_fallbacks"),
        "max_fallbacks": lost("the chain is as long as it is written, each client once"),
        "timeout": timed("attempt_wall", _ATTEMPT, then=""),
        "request_timeout": timed("attempt_wall", _ATTEMPT, then=""),
        "stream_timeout": lost("an attempt has one time here, whether it streams or not"),
        "allowed_fails": lost(
            "models are not switched off after failures here; `fallback … for 1m` keeps calls away from one"
        ),
        "allowed_fails_policy": lost("models are not switched off after failures here"),
        "cooldown_time": lost(
            "models are not switched off after failures here; `fallback … for 1m` keeps calls away from one"
        ),
        "disable_cooldowns": lost("models are not switched off after failures here"),
        "max_budget": lost(_BUDGET),
        "budget_duration": lost("a budget by the month or day is for the one who pays; a policy is about a run"),
        "provider_budget_config": lost(_BUDGET),
        "max_parallel_requests": lost("how many requests go on at once is the client's business"),
        "default_max_parallel_requests": lost("how many requests go on at once is the client's business"),
        "rpm": lost("requests a minute are the client's business; a policy limits a run, not a rate"),
        "tpm": lost("tokens a minute are the client's business; a policy limits a run, not a rate"),
        "model": keep("model"),
        "litellm_settings": inside,
        "router_settings": inside,
    },
    words=frozenset({"litellm_params"}),
    shared=frozenset({"timeout", "model", "fallbacks", "retry_policy", "max_parallel_requests", "rpm", "tpm"}),
    beside=names(
        "model_list general_settings routing_strategy routing_strategy_args model_group_alias redis_host redis_port "
        "redis_password redis_url cache_responses cache_kwargs cache cache_params client_ttl polling_interval "
        "set_verbose debug_level enable_pre_call_checks enable_tag_filtering success_callback failure_callback "
        "callbacks drop_params environment_variables json_logs telemetry num_workers"
    ),
    finish=_finish,
)
