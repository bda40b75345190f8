"""Hypothesis strategies for the events of hosts that break the protocol."""

from __future__ import annotations

from typing import Any, Literal, get_args

from hypothesis import strategies as st

from engine.core import events as e
from engine.core.host import FULL
from engine.core.messages import Finish
from engine.core.state import NO_TIME, ClientInfo, LimitHit, Pools, Refusal
from engine.core.vocabulary import REASONS
from engine.testing.drawn_worlds import ADVICE, usages

_CALLS = st.sampled_from(["1", "2", "3", "9"])
_TOOL_IDS = st.sampled_from(["1.0", "1.1", "2.0", "2.1", "x"])
_ATTEMPTS = st.integers(0, 3)
_TIMES = st.sampled_from([0, 1, 2, 10, 50, 5_000, 5_100])


_LIMIT_IDS = st.sampled_from(["tool_iterations", "tool_calls", "tokens", "llm_attempts", "unknown_tools", "cost", "x"])
_KINDS: list[Literal["function", "output", "hosted", "external", "handoff", "agent"]] = [
    *("function", "function", "function", "function", "hosted", "output"),
    *("external", "handoff", "agent"),
]


_REFUSED = st.sampled_from([None, None, Refusal(LimitHit("tokens", "subtree", "r", 9, 9), "above.policy:1")])
_POOLS = st.builds(
    Pools,
    others=st.lists(st.tuples(_LIMIT_IDS, st.integers(-1, 9)), max_size=2).map(tuple),
    refused=_REFUSED,
    rounds=_REFUSED,
    tools=st.sampled_from([None, None, 0, 2]),
    tools_limit=_REFUSED,
    output=st.sampled_from([None, 1, 50]),
    deadline=st.sampled_from([NO_TIME, NO_TIME, 5, 5_000]),
    wall=_REFUSED,
    opened=st.sampled_from([None, 0, 5]),
)
"""What no ledger shows too: a deadline of nobody, tools that nobody limits."""


@st.composite
def proposals(draw: st.DrawFn) -> e.Proposed:
    """One proposed call with an id from a small pool, perhaps one that was used before."""
    kind = draw(st.sampled_from(_KINDS))
    name, known = draw(st.sampled_from([("search", True), ("shell", True), ("nobody", False)]))
    return e.Proposed(draw(_TOOL_IDS), name, "", kind, known, draw(st.sampled_from(["", "", "", "bad"])))


def hostile_events() -> st.SearchStrategy[e.AnyEvent]:
    """Any event about anything, at any time: most of them illegal wherever they come."""
    usage = st.one_of(st.none(), usages())
    answered = st.lists(_TOOL_IDS, max_size=3).map(tuple)
    replied = st.builds(
        e.ModelReplied,
        at=_TIMES,
        call=_CALLS,
        attempt=_ATTEMPTS,
        finish=st.sampled_from(get_args(Finish)),
        text=st.booleans(),
        calls=st.lists(proposals(), max_size=3, unique_by=lambda p: p.id).map(tuple),
        usage=usage,
    )
    failed = st.builds(
        e.ModelFailed,
        at=_TIMES,
        call=_CALLS,
        attempt=_ATTEMPTS,
        reason=st.sampled_from([*REASONS, "?"]),
        partial=st.sampled_from(["none", "none", "delivered"]),
        retry_after=st.sampled_from([None, 7]),
        usage=usage,
    )
    answers: st.SearchStrategy[Any] = st.sampled_from(["granted", "granted", "refused", "expired", "nobody"])
    statuses: st.SearchStrategy[Any] = st.sampled_from(["failed", "timed_out", "cancelled", "denied", "deferred"])
    ends: st.SearchStrategy[Any] = st.sampled_from(["", "", "answer", "stop"])
    return st.one_of(
        st.builds(
            e.RunStarted,
            at=_TIMES,
            run=st.sampled_from(["run", "other"]),
            profile=st.sampled_from([FULL, ()]),
            clients=st.sampled_from([(), (ClientInfo("large", "large"),)]),
        ),
        st.builds(e.CallRequested, at=_TIMES, call=_CALLS, model=st.sampled_from(["small", "?"]), answered=answered),
        st.builds(e.Resolved, at=_TIMES, name=st.just("ending"), status=st.sampled_from(["ok", "failed"])),
        replied,
        failed,
        st.builds(e.RetryDue, at=_TIMES, call=_CALLS),
        st.builds(e.ToolRequested, at=_TIMES, id=_TOOL_IDS),
        st.builds(e.ToolEnded, at=_TIMES, id=_TOOL_IDS, attempt=_ATTEMPTS, ends=ends, usage=usage),
        st.builds(e.UsageReported, at=_TIMES, call=_CALLS, attempt=_ATTEMPTS, usage=usages()),
        st.builds(e.Resolved, at=_TIMES, name=st.just("who"), step=st.sampled_from(ADVICE)),
        st.builds(
            e.ApprovalGiven, at=_TIMES, id=_TOOL_IDS, answer=answers, args=st.sampled_from([None, None, "other"])
        ),
        st.builds(e.ToolEnded, at=_TIMES, id=_TOOL_IDS, attempt=_ATTEMPTS, status=statuses),
        st.builds(
            e.ExtensionAnswered, at=_TIMES, id=_LIMIT_IDS, answer=answers, amount=st.sampled_from([0, 1, 50, -1])
        ),
        st.builds(e.PoolsSeen, at=_TIMES, pools=_POOLS),
        st.builds(e.SpawnRequested, at=_TIMES, child=st.just("c.1"), agent=st.just("a"), queued=st.booleans()),
        st.builds(e.WakeRequested, at=_TIMES, child=st.just("c.1"), agent=st.just("a"), refused=_REFUSED),
        st.builds(e.ChildEnded, at=_TIMES, child=st.just("c.1"), status=st.sampled_from(["completed", "?"])),
        st.builds(e.Tick, at=_TIMES),
        st.builds(e.Cancelled, at=_TIMES),
    )
