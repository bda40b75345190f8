"""LangChain's `create_agent` with its middleware, and LangGraph's `recursion_limit`.

Counted there: `recursion_limit` counts super-steps of the graph. A model call is one and a round of tools is one,
and so is every hook of a middleware before or after the model; an answer that comes with the last step is thrown
away. The limits of calls and tools count what their names say, but a retry or a fallback inside a call is not
counted.
"""

from __future__ import annotations

from typing import Final

from policy_lang.importing.draft import Clause, Limit, fallback
from policy_lang.importing.framework import Framework, Handler, Import
from policy_lang.importing.keys import inside, keep, lost, names
from policy_lang.importing.retries import Waits, retry_step
from policy_lang.importing.values import Value, Wrong, snake
from policy_lang.quantities import count_text

STEPS: Final = {
    "model_call_limit": 2,
    "tool_call_limit": 1,
    "human_in_the_loop": 1,
    "summarization": 1,
    "todo_list": 1,
    "pii": 2,
    "model_fallback": 0,
    "model_retry": 0,
    "tool_retry": 0,
    "context_editing": 0,
    "llm_tool_selector": 0,
    "llm_tool_emulator": 0,
}
"""Middlewares, and the nodes that each adds to every round of the graph: its hooks before and after the model."""

_ENDS: Final = ("end", "error", "throw")


# ---- limits of middlewares


def _model_calls(value: Value, into: Import) -> None:
    settings = into.mapping(value)
    canned = "there a canned message stands in the answer's place"
    if behaviour := settings.get("exit_behavior"):
        said = into.text(behaviour, _ENDS)
        canned = canned if said == "end" else "there `ModelCallLimitExceededError` is raised"
        into.same(behaviour, "the run ends at the limit")
    why = (
        f"model calls. There as here the tools of the last one run, and then the run ends without an answer; {canned}."
    )
    for key, scope in (("run_limit", ""), ("thread_limit", "thread")):
        most = _most(settings.get(key), into)
        if most is not None:
            into.limit(settings[key], Limit("llm_calls", most, scope), why)
    _rest(settings, ("run_limit", "thread_limit", "exit_behavior"), into)


def _tool_calls(value: Value, into: Import) -> None:
    for one in value.items or [value]:
        settings = into.mapping(one)
        behaviour = settings.get("exit_behavior")
        exits = into.text(behaviour, ("continue", *_ENDS)) if behaviour else "continue"
        tool = into.text(settings["tool_name"]) if "tool_name" in settings else None
        if tool:
            _one_tool(settings, tool, exits or "", into)
        elif exits:
            _all_tools(settings, exits, into)
        _rest(settings, ("run_limit", "thread_limit", "exit_behavior", "tool_name"), into)


def _one_tool(settings: dict[str, Value], tool: str, exits: str, into: Import) -> None:
    if "*" in tool or "?" in tool:
        into.lose(settings["tool_name"], "`*` and `?` stand for other signs in a tool rule")
        return
    into.same(settings["tool_name"], "it is the name of the rule")
    most = _most(settings.get("run_limit"), into)
    if most is not None:
        clause = Clause("limit", count_text(most), most)
        into.tool(settings["run_limit"], tool, clause, "executions of this tool in a run. Further calls are answered.")
    if thread := settings.get("thread_limit"):
        into.lose(thread, "a limit of one tool is for a run here, not for a thread")
    if behaviour := settings.get("exit_behavior"):
        if exits in _ENDS:
            into.lose(behaviour, "a limit of one tool answers further calls here, and never ends the run")
        else:
            into.same(behaviour, "further calls are answered, and the run goes on")


def _all_tools(settings: dict[str, Value], exits: str, into: Import) -> None:
    run, thread = (_most(settings.get(key), into) for key in ("run_limit", "thread_limit"))
    if exits in _ENDS:
        why = "executions of tools. A round that does not fit runs none of its calls, there as here, and ends the run."
        for key, most, scope in (("run_limit", run, "run"), ("thread_limit", thread, "thread")):
            if most is not None:
                into.limit(settings[key], Limit("tool_calls", most, scope, option="atomic"), why)
        into.same(settings["exit_behavior"], "the run ends at the limit")
        return
    if run is not None:
        clause = Clause("limit", count_text(run), run)
        why = "executions of all tools together in a run. Further calls are answered, and the run goes on."
        into.tool(settings["run_limit"], "*", clause, why)
    if thread is not None:
        why = (
            "executions of tools in a thread. Calls that do not fit are answered; the next model call is the final one."
        )
        into.limit(settings["thread_limit"], Limit("tool_calls", thread, "thread", then="finalize"), why)
        into.lose(
            settings.get("exit_behavior", settings["thread_limit"]),
            "`continue` for a whole thread: the limit of a thread is `then finalize` here, not an endless refusal",
        )
    elif behaviour := settings.get("exit_behavior"):
        into.same(behaviour, "further calls are answered, and the run goes on")


def _most(value: Value | None, into: Import) -> int | None:
    if value is None:
        return None
    if value.data is None:
        into.same(value, "no limit there, and none here")
        return None
    return into.number(value)


# ---- failures


def _fallback(value: Value, into: Import) -> None:
    names = value
    if isinstance(value.data, dict):
        settings = into.mapping(value)
        first = settings.get("first_model")
        more = settings.get("additional_models") or settings.get("models") or settings.get("fallback_models")
        rows = ([first] if first else []) + (more.items if more and more.items else [])
        names = value._replace(data=rows)
        _rest(settings, ("first_model", "additional_models", "models", "fallback_models"), into)
    models = [text for _, text in into.texts(names)]
    if models:
        why = (
            "the next model for this call alone. A fallback is a call of its own here, and counts; there it does not. "
            "The names are those of the host's clients."
        )
        into.failure(value, "*", [fallback(models, "call")], why)


def _model_retry(value: Value, into: Import) -> None:
    settings = into.mapping(value)
    step = retry_step(into, _waits(settings))
    if step:
        why = "further attempts of the same call, not counted as calls there or here."
        into.failure(value, "*", [step], why)
    if (failure := settings.get("on_failure")) and into.text(failure):
        into.same(failure, "a call that fails for good ends the run")
    if retry_on := settings.get("retry_on"):
        into.lose(retry_on, "which failures are tried again is said by `on llm_failure` rules, by reason")
    _rest(settings, (*_WAITS, "on_failure", "retry_on"), into)


def _tool_retry(value: Value, into: Import) -> None:
    settings = into.mapping(value)
    step = retry_step(into, _waits(settings))
    tools = [text for _, text in into.texts(settings["tools"])] if "tools" in settings else ["*"]
    for tool in tools if step else []:
        clause = Clause("retry", step.removeprefix("retry "), 0)
        into.tool(value, tool, clause, "an execution that fails is tried again; whatever its attempts, it counts once.")
    if failure := settings.get("on_failure"):
        if into.text(failure) in ("error", "raise"):
            into.lose(failure, "a tool that fails is told to the model here; a `breaker` may end the run")
        else:
            into.same(failure, "a tool that fails is told to the model")
    if retry_on := settings.get("retry_on"):
        into.lose(retry_on, "every failure of a tool is tried again here")
    _rest(settings, (*_WAITS, "on_failure", "retry_on", "tools"), into)


_WAITS: Final = ("max_retries", "initial_delay", "max_delay", "backoff_factor", "jitter")


def _waits(settings: dict[str, Value]) -> Waits:
    times, first, longest, factor, jitter = (settings.get(key) for key in _WAITS)
    return Waits(times, first, longest, factor, jitter, 2, 1_000, 60_000, True)


# ---- people


def _people(value: Value, into: Import) -> None:
    settings = into.mapping(value)
    asked = settings.get("interrupt_on")
    for tool, one in asked.mapping.items() if asked else ():  # names of tools, in the case they have
        if one.data is False:
            into.same(one, "it runs without a question")
        elif "*" in tool or "?" in tool:
            into.lose(one, "`*` and `?` stand for other signs in a tool rule")
        else:
            into.tool(one, tool, Clause("ask"), "a person is asked before each execution.")
    _rest(settings, ("interrupt_on", "description_prefix"), into)


def _rest(settings: dict[str, Value], known: tuple[str, ...], into: Import) -> None:
    for key, one in settings.items():
        if key in known or key in ("type", "name", "class", "_target_", "kind"):
            continue
        into.lose(one, "no setting of this middleware that this import knows")


# ---- the list of middlewares, and the graph's steps

_KINDS: Final = {
    "model_call_limit": _model_calls,
    "tool_call_limit": _tool_calls,
    "model_fallback": _fallback,
    "model_retry": _model_retry,
    "tool_retry": _tool_retry,
    "human_in_the_loop": _people,
}


def _middleware(value: Value, into: Import) -> None:
    into.kept["middleware"] = value
    for one in value.items or [value]:
        kind, settings = _named(one)
        if kind in _KINDS and isinstance(one.data, str):
            into.lose(one, "its settings are not in the file")
        elif kind in _KINDS:
            _KINDS[kind](settings, into)
        else:
            into.lose(one, "this middleware sets no limit that this import knows")


def _named(value: Value) -> tuple[str, Value]:
    """The kind of one middleware and its settings: `{type: NAME, …}`, `{NAME: {…}}`, or the name alone."""
    if isinstance(value.data, str):
        return _kind(value.data), value._replace(data={})
    for key in ("type", "name", "class", "_target_", "kind"):
        if key in value.mapping and isinstance(value.mapping[key].data, str):
            return _kind(value.mapping[key].data), value
    if len(value.mapping) == 1:
        key, settings = next(iter(value.mapping.items()))
        return _kind(key), settings
    return "", value


def _kind(name: str) -> str:
    return snake(name.rpartition(".")[2]).removesuffix("_middleware")


def _flat(value: Value, into: Import) -> None:
    help = "put it under `ModelCallLimitMiddleware` or `ToolCallLimitMiddleware`"
    into.wrong(value, Wrong("both model calls and tool calls have such a setting", help))


def _finish(into: Import) -> None:
    value = into.kept.get("recursion_limit")
    if value is None or value.data is None:
        return
    most = into.number(value, 1)
    if most is None:
        return
    present = [_named(one)[0] for one in into.kept["middleware"].items] if "middleware" in into.kept else []
    present += [kind for kind in into.kept if kind in STEPS]
    if strangers := [kind for kind in present if kind not in STEPS]:
        into.lose(value, f"how many steps a round takes depends on the hooks of `{strangers[0] or 'a middleware'}`")
        return
    a_round = 2 + sum(STEPS[kind] for kind in present)
    calls = most // a_round
    hooks = "" if a_round == 2 else f", and {a_round - 2} by hooks of the middleware"
    why = (
        f"steps of create_agent's graph: one by the model and one by its tools{hooks}, so {a_round} a round. {most} of "
        f"them let {calls} model calls be of use, as an answer in the last step is thrown away; then "
        "`GraphRecursionError` is raised. In a graph of your own a step may be anything, and this number wrong."
    )
    into.limit(value, Limit("llm_calls", calls), why)


def _remembered(kind: str) -> Handler:
    """A middleware that stands under its own name: noted, because its hooks are steps of the graph."""

    def translate(value: Value, into: Import) -> None:
        into.kept[kind] = value
        _KINDS[kind](value, into)

    return translate


_TABLE: Final = {name: _remembered(kind) for kind in _KINDS for name in (kind, f"{kind}_middleware")}

FRAMEWORK: Final = Framework(
    name="langchain",
    title="LangChain and LangGraph",
    version="langchain 1.5.2, langgraph 1.2.24",
    keys={
        "recursion_limit": keep("recursion_limit"),
        "middleware": _middleware,
        **_TABLE,
        "run_limit": _flat,
        "thread_limit": _flat,
        "config": inside,
        "max_concurrency": lost("how many steps of a graph run at once is the host's business"),
    },
    words=frozenset(name for kind in STEPS for name in (kind, f"{kind}_middleware")) | {"exit_behavior"},
    shared=frozenset({"config", "max_concurrency"}),
    beside=names(
        "type class kind _target_ model tools system_prompt response_format state_schema context_schema checkpointer "
        "store name debug tags metadata run_name run_id callbacks configurable interrupt_before interrupt_after cache"
    ),
    finish=_finish,
)
