"""Whatever policy, model, tools and clock do: a provider accepts the transcript at every call and at the end."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_host import Host, policies

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, ToolCall
from engine.core.policy import Finalize, Limit, Policy
from engine.core.transcript import fold, problems


class Checked(Host):
    def at_call(self) -> None:
        assert self.transcript.open == ()
        assert problems(self.conversation()) == []

    def at_end(self) -> None:
        self.at_call()
        assert self.transcript.ended
        entries = self.transcript.entries()
        assert entries == fold(self.pairs).entries()
        for before, after in itertools.pairwise(entries):
            # Results follow their reply in the model's order.
            if after.kind == "result":
                assert before.kind == "reply" or (before.kind == "result" and before.position < after.position)


@settings(max_examples=600, deadline=None)
@given(policies(), st.integers(0, 1 << 32))
def test_a_provider_accepts_the_transcript_at_every_call_and_at_the_end(policy: Policy, seed: int) -> None:
    Checked(seed, policy).run()


@settings(max_examples=100, deadline=None)
@given(policies(), st.integers(0, 1 << 32))
def test_reporting_again_what_was_reported_changes_no_transcript(policy: Policy, seed: int) -> None:
    host = Checked(seed, policy)
    host.run()
    ends = [pair for pair in host.pairs if isinstance(pair[0], e.ToolEnded | e.ModelReplied)]
    transcript = host.transcript
    for event, _ in ends:
        _, decision = host.compiled.step(host.state, event)
        transcript = transcript.apply(event, decision)
    assert transcript.entries() == host.transcript.entries()


def test_a_call_that_comes_too_late_for_its_tool_is_closed_when_that_ends_the_run() -> None:
    limits = (
        Limit(resource="unknown_tools", max=0),
        Limit(resource="wall", max=60, reserve=30, then=(Finalize(),)),
    )
    host = Checked(0, Policy(name="p", limits=limits))
    calls = (ToolCall("x", "a"), ToolCall("y", "nobody"))
    ref = host.put(Message("assistant", tool_calls=calls))
    proposed = (e.Proposed("1.0", "a", "k"), e.Proposed("1.1", "nobody", "k", registered=False))
    host.send(e.RunStarted(0, "r"))
    host.send(e.CallRequested(0, "1"))
    host.send(e.ModelReplied(20, "1", calls=proposed, ref=ref))
    decision = host.send(e.ToolRequested(35, "1.0"))
    assert isinstance(decision, d.End)
    host.at_end()
