"""Hypothesis strategies for worlds, drawn turn by turn.

What ends a run is rare and late in a world, because a run that ends at once tests nothing.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from engine.core.messages import Usage
from engine.core.state import ClientInfo, Used
from engine.core.vocabulary import REASONS
from engine.testing.scripts import ANSWER, ResolverStatus, Tool, Turn, World

_USAGES = (Usage(3, 2), Usage(0, 0), Usage(9, 1, 9), Usage(1, 9, 0, 1, 4), Usage(20, 20), Usage(0, 5))


def usages() -> st.SearchStrategy[Usage]:
    """A few tokens."""
    return st.sampled_from(_USAGES)


_QUIET_TOOLS = (
    Tool("search"),
    Tool("search", rank=2),
    Tool("fetch", rank=1),
    Tool("fetch", status="failed"),
    Tool("shell"),
    Tool("deploy", status="timed_out", rank=3),
    Tool("deploy", status="cancelled", rank=1),
    Tool("nobody", registered=False),
    Tool("search", problem="not a number"),
)
_ORDINARY_TOOLS = (
    *_QUIET_TOOLS,
    Tool("fetch", status="unknown"),
    Tool("shell", usage=Usage(2, 5), rank=2),
    Tool("search", restarts=1),
    Tool("fetch", restarts=2, rank=1),
    Tool("shell", kind="hosted"),
)
_TOOLS = (
    *_ORDINARY_TOOLS * 3,
    Tool("search", "output"),
    Tool("search", ends="answer"),
    Tool("fetch", ends="stop", rank=1),
)


def tools(*, quiet: bool = False) -> st.SearchStrategy[Tool]:
    """A tool call: most are ordinary; ``quiet``: it never ends the run, uses no tokens, is never asked for twice."""
    return st.sampled_from(_QUIET_TOOLS if quiet else _TOOLS)


_ROUND = Turn(finish="tool_calls")
_QUIET_ROUNDS = (
    _ROUND,
    replace(_ROUND, text=True),
    replace(_ROUND, usage=Usage(9, 1, 9), together=False),
    replace(_ROUND, takes=1),
    replace(_ROUND, takes=7, together=False),
    replace(_ROUND, usage=Usage(20, 20), reports=(Usage(20, 4), Usage(20, 12))),
    replace(_ROUND, usage=Usage(1, 9), reports=(Usage(1, 0),), estimated=True),
)
_ROUNDS = (
    *_QUIET_ROUNDS * 2,
    replace(_ROUND, stubborn=True),
    replace(_ROUND, stubborn=True, text=True),
    replace(_ROUND, lost=1),
    replace(_ROUND, lost=2, takes=1),
    replace(_ROUND, interrupt="tick"),
    replace(_ROUND, interrupt_tools="tick", takes=7),
    replace(_ROUND, interrupt_tools="cancel"),
    replace(_ROUND, interrupt="cancel"),
    replace(_ROUND, usage=None),
    replace(_ROUND, finish="length"),
    replace(_ROUND, finish="pause"),
    replace(_ROUND, retold=True, reports=(Usage(1, 1),)),
    replace(_ROUND, untold=True),
    replace(_ROUND, untold=True, takes=1),
)
_ODD = (
    Turn(finish="pause"),
    Turn(finish="pause", lost=1),
    Turn(),
    Turn(usage=None),
    Turn(retold=True),
    Turn(finish="pause", text=True, retold=True, reports=(Usage(2, 1),)),
    Turn(lost=1, takes=7),
    Turn(finish="length"),
    Turn(finish="content_filter"),
    Turn(text=True, finish="length"),
    Turn(tools=(Tool("shell", kind="hosted"),), finish="pause"),
    Turn(tools=(Tool("shell", kind="hosted"),) * 2, text=True),
)
_FAILURES = tuple(Turn(failure=reason, partial=p) for reason in REASONS for p in ("none", "held", "delivered"))


@st.composite
def turns(draw: st.DrawFn, *, quiet: bool = False) -> Turn:
    """One attempt: most ask for tools; those that fail, or answer, or are odd, are rare."""
    shape = 0 if quiet else draw(st.integers(0, 31))
    if shape == 31:
        return draw(st.sampled_from(_FAILURES))
    if shape >= 28:
        return draw(st.sampled_from(_ODD))
    if shape == 27:
        return replace(ANSWER, usage=draw(usages()))
    turn = draw(st.sampled_from(_QUIET_ROUNDS if quiet else _ROUNDS))
    asked = draw(st.lists(tools(quiet=quiet), min_size=1, max_size=4))
    return replace(turn, tools=tuple(asked))


_BEFORE = (None, None, None, Used(1, 1, 1, 1, 1, 5, 5, cost=9), Used(2, 3, 1, 4, 0, 20, 9), Used(9, 9, 9, 9, 9, 90, 90))


_ERROR_TOOLS = (
    Tool("search", status="failed"),
    Tool("search", status="failed", args="other"),
    Tool("fetch", status="failed", recovers=2),
    Tool("fetch", status="timed_out", rank=1),
    Tool("search", result="same"),
    Tool("search", status="cancelled"),
    Tool("search", answer="refused"),
    Tool("search", answer="expired", rank=1),
    Tool("shell", answer="nobody"),
    Tool("search", status="failed", edited="other"),
    Tool("shell", edited="other"),
)
_WAITS: tuple[tuple[int | None, int], ...] = ((None, 0), (None, 999), (3, 500), (50, 0), (10_000, 1))


def busy_turns() -> tuple[Turn, ...]:
    """Shapes of a turn that asks for tools, odd ones among them."""
    return tuple(turn for turn in _ROUNDS if "cancel" not in (turn.interrupt, turn.interrupt_tools))


def odd_turns() -> tuple[Turn, ...]:
    """Attempts without an answer and without tools of the host: empty, paused, cut short."""
    return _ODD


def busy_tools() -> tuple[Tool, ...]:
    """Tools that end no run: they work, fail, hang, are refused, are not there."""
    return (*_ORDINARY_TOOLS * 2, *_ERROR_TOOLS)


def failing_turns() -> tuple[Turn, ...]:
    """Attempts that fail, for every reason, with a text begun or not."""
    return _FAILURES


ADVICE = ("", "retry", "fallback", "finalize", "extend", "stop", "consult")


@st.composite
def error_worlds(draw: st.DrawFn, *, quiet: bool = False) -> World:
    """A world in which models and tools fail, people answer, and the host has clients."""
    base = draw(worlds(quiet=quiet))
    turns = list(base.turns)
    for place in range(len(turns)):
        shape = draw(st.integers(0, 3))
        if shape == 0:
            after, jitter = draw(st.sampled_from(_WAITS))
            failed = draw(st.sampled_from(_FAILURES))
            turns[place] = replace(failed, retry_after=after, jitter=jitter, usage=turns[place].usage)
        elif shape < 3:
            tools = draw(st.lists(st.sampled_from(_ERROR_TOOLS), min_size=1, max_size=3))
            takes = 0 if quiet else draw(st.sampled_from([0, 0, 3, 7]))
            turns[place] = replace(_ROUND, tools=tuple(tools), takes=takes, patient=draw(st.booleans()))
    known = (ClientInfo("small", "small"), ClientInfo("large", "large", 16))
    advice = draw(st.lists(st.sampled_from(ADVICE), min_size=1, max_size=3))
    return replace(
        base,
        turns=tuple(turns),
        advice=tuple(advice),
        clients=draw(st.sampled_from([known, known, known[1:], ()])),
        retracts=draw(st.booleans()),
    )


@st.composite
def worlds(draw: st.DrawFn, *, quiet: bool = False) -> World:
    """A whole world. ``quiet``: nothing fails, is interrupted, retried or asked for again by the host."""
    statuses: st.SearchStrategy[ResolverStatus] = st.sampled_from(["ok", "ok", "empty", "failed", "timed_out"])
    return World(
        turns=tuple(draw(st.lists(turns(quiet=quiet), min_size=2, max_size=12))),
        resolver=tuple(draw(st.lists(statuses, min_size=1, max_size=2))),
        model="small",
        input_tokens=draw(st.sampled_from([None, 0, 5, 30])),
        max_output=draw(st.sampled_from([None, 8])),
        before=None if quiet else draw(st.sampled_from(_BEFORE)),
        stuck=not quiet and draw(st.booleans()),
        early=not quiet and draw(st.integers(0, 4)) == 4,
    )
