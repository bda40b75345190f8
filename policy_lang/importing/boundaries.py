"""Tests for an imported policy: at each limit, one before it and at it.

A test is kept only where it holds. Another setting may act first (a tool that is asked about, a tighter limit), and
then it would not be about the limit that it names. Knows the draft and how tests are written, no framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from policy_lang.importing.draft import Draft, Limit
from policy_lang.quantities import COUNT, text_of
from policy_lang.resolve import resolve
from policy_lang.source import Source
from policy_lang.testing.loading import Suite
from policy_lang.testing.outcome import run
from policy_lang.texts import quote

TOOL: Final = "search"
"""The tool that is asked for where any will do."""
ROUND: Final = ("when call", f'when model asks "{TOOL}"')
RUNS: Final = f'expect run "{TOOL}"'
BATCH: Final = 6
"""A limit of one tool that is larger makes a test nobody wants to read."""

Test = tuple[str, list[str]]
"""A name and its lines."""


def tests(draft: Draft) -> list[str]:
    """The tests that hold, each as a text."""
    written = {name: "\n".join([f"test {quote(name)} {{", *lines, "}", ""]) for name, lines in _all(draft)}
    resolved = resolve(Source("<tests>", draft.text(written.values())), "", None, {})
    if any(finding.is_error for finding in resolved.findings):
        return []
    compiled = Suite("", resolved.policy(), resolved.cases, resolved.sources, []).compiled()
    holds = {case.name for case in resolved.cases if run(compiled, case).failure is None}
    return [text for name, text in written.items() if name in holds]


def _all(draft: Draft) -> Iterator[Test]:
    for limit, _ in draft.limits.values():
        if limit.most and (made := _MAKERS.get(limit.resource)):
            yield from made(limit)
    for reason, (steps, _) in draft.failures.items():
        yield from _failures(reason, steps)
    for pattern, (clauses, _) in draft.tools.items():
        if "*" in pattern or "?" in pattern:
            continue
        name = quote(pattern)
        if "deny" in clauses:
            yield f"{pattern} does not run", ["when call", f"when model asks {name}", f"expect skip {name}"]
        elif "limit" in clauses and 0 < clauses["limit"].size < BATCH:
            yield _one_tool(pattern, clauses["limit"].size)


# ---- limits


def _calls(limit: Limit) -> Iterator[Test]:
    most, scope, of = limit.most, *_scope(limit)
    if limit.then.startswith("finalize"):
        if most > 1 and not scope:
            yield f"tools run after call {most - 1}", [f"given llm_calls {most - 2}", *ROUND, RUNS]
        lines = [f"given llm_calls {most - 1}{scope}", "when call", "expect final because llm_calls"]
        yield f"call {most}{of} is the final one", lines
        return
    if not scope:
        yield f"tools run after call {most}", [f"given llm_calls {most - 1}", *ROUND, RUNS]
    lines = [f"given llm_calls {most}{scope}", "when call", "expect stop because llm_calls"]
    yield f"call {most}{of} is the last", lines


def _rounds(limit: Limit) -> Iterator[Test]:
    """Rounds, or executions of tools."""
    most, scope, of = limit.most, *_scope(limit)
    noun = "tool call" if limit.resource == "tool_calls" else "round"
    if not scope:
        yield f"{noun} {most} runs", [f"given {limit.resource} {most - 1}", *ROUND, RUNS]
    used = [f"given {limit.resource} {most}{scope}"]
    if limit.then.startswith("finalize"):
        yield (
            f"after {noun} {most}{of} comes the final call",
            [*used, "when call", f"expect final because {limit.resource}"],
        )
    else:
        yield (
            f"{noun} {most}{of} is the last",
            [*used, *ROUND, f'expect skip "{TOOL}"', f"expect stop because {limit.resource}"],
        )


def _tokens(limit: Limit) -> Iterator[Test]:
    most, scope, of = limit.most, *_scope(limit)
    told = text_of(most, COUNT)
    if limit.reserve is not None:
        lines = [
            f"given {limit.resource} {most - limit.reserve}{scope}",
            "when call",
            f"expect final because {limit.resource}",
        ]
        yield f"the call that uses the reserve of {limit.resource}{of} is the final one", lines
        return
    if most > 1:
        lines = [f"given {limit.resource} {most - 1}{scope}", "when call", "expect call"]
        yield f"a call starts with one of {told} {limit.resource}{of} left", lines
    lines = [f"given {limit.resource} {most}{scope}", "when call", f"expect stop because {limit.resource}"]
    yield f"none starts with {told} {limit.resource}{of} used", lines


def _wall(limit: Limit) -> Iterator[Test]:
    turn = limit.most - (limit.reserve or 0)
    told, second = text_of(turn, "duration"), 1_000
    if limit.reserve is not None:
        yield f"after {told} comes the final call", [f"given wall {told}", "when call", "expect final because wall"]
    elif turn > second:
        before = text_of(turn - second, "duration")
        yield (
            f"the run ends after {told}",
            [f"given wall {before}", "when call", "when 1s pass", "expect stop because wall"],
        )


def _scope(limit: Limit) -> tuple[str, str]:
    """How `given` says that earlier runs have used it, and how a name does."""
    return (" per thread", " of a thread") if limit.scope == "thread" else ("", "")


_MAKERS: Final[dict[str, Callable[[Limit], Iterator[Test]]]] = {
    "llm_calls": _calls,
    "tool_iterations": _rounds,
    "tool_calls": _rounds,
    "tokens": _tokens,
    "input_tokens": _tokens,
    "output_tokens": _tokens,
    "wall": _wall,
}


# ---- tools and failures


def _one_tool(pattern: str, most: int) -> Test:
    name = quote(pattern)
    batch = ", ".join([name] * (most + 1))
    lines = ["when call", f"when model asks {batch}", f"expect count tool_calls = {most}", f"expect skip {name}"]
    return f"{pattern} runs {_times(most)} at most", lines


def _failures(reason: str, steps: list[str]) -> Iterator[Test]:
    """A failure is tried again as often as it says, and then comes what is behind."""
    reason = "unknown" if reason == "*" else reason
    retries = next((int(step.split()[1]) for step in steps if step.startswith("retry ")), 0)
    chain = next((step.removeprefix("fallback ") for step in steps if step.startswith("fallback ")), "")
    if retries:
        lines = ["when call", f"when model fails {reason}{_repeated(retries)}", "expect retry"]
        yield f"a call that fails with {reason} is tried again {_times(retries)}", lines
    failed = ["when call", f"when model fails {reason}{_repeated(retries + 1)}"]
    if chain:
        client = chain.split(" -> ")[0].split(" for ")[0]
        yield f"then {reason} goes to another client", [*failed, f"expect fallback {client}"]
    elif retries:
        yield f"then {reason} ends the run", [*failed, f"expect stop because {reason}"]


def _repeated(times: int) -> str:
    return f" times {times}" if times > 1 else ""


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
