"""A test block written down from a run passes, and with one expectation changed it fails at that line.

Runs are drawn for drawn policies: any event that can happen next, and what was decided about it, in the words of tests.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lang_policies import Writer, literal

from engine.core import decisions as d
from engine.core.machine.machine import Phase
from engine.core.policy import Policy
from engine.core.state import ASKED, STARTED
from engine.core.texts import duration
from engine.testing.drawn_policies import policies
from engine.testing.drawn_trees import tree_policies
from policy_lang.cases import Asked, Event
from policy_lang.source import Source, Span
from policy_lang.testing.loading import Suite, load
from policy_lang.testing.outcome import run
from policy_lang.testing.play import Player, Record
from policy_lang.testing.start import Impossible

NOWHERE = Span(Source("", ""), 0, 0)
TOOLS = ("search", "fetch", "shell", "mail_send")
REASONS = ("rate_limit", "timeout", "auth", "host", "unknown")


class Happened(NamedTuple):
    """An event as the player takes it, and as a test writes it."""

    event: Event
    text: str


def _event(kind: str, words: str, **more: object) -> Happened:
    return Happened(Event(kind, NOWHERE)._replace(**more), words)  # type: ignore[arg-type]


def _model(draw: st.DrawFn) -> Happened:
    tokens = draw(st.sampled_from([None, 0, 1, 3]))
    used = "" if tokens is None else f" tokens {tokens}"
    how = draw(st.integers(0, 9))
    if how == 0:
        return _event("answers", f"model answers{used}", tokens=tokens)
    if how == 1:
        return _event("answers", f'model answers ""{used}', text="", tokens=tokens)
    if how == 2:
        reason = draw(st.sampled_from(REASONS))
        return _event(
            "fails", f"model fails {reason} retry_after 2s{used}", word=reason, retry_after=2000, tokens=tokens
        )
    each = draw(
        st.lists(st.tuples(st.sampled_from(TOOLS), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=3)
    )
    asked = tuple(Asked(name, args, unknown, NOWHERE) for name, args, unknown in each)
    words = ", ".join(f'{"unknown " if a.unknown else ""}"{a.name}" args "{a.args}"' for a in asked)
    return _event("asks", f"model asks {words}{used}", asked=asked, tokens=tokens)


def _next(draw: st.DrawFn, player: Player) -> Happened:
    """Something that can happen now."""
    could: list[Happened] = []
    if player.phase == Phase.READY:
        could += [_event("call", "call")] * 4
    if player.phase in (Phase.READY, Phase.CALLING, Phase.WAITING):
        could += [_model(draw)] * 4
    if player.phase == Phase.ASKING:
        could += [_event("extended", "extended 1", amount=1), _event("approved", "approved")]
        could.append(_event("refused", "refused"))
    for call in player.state.round if player.phase == Phase.TOOLS else ():
        if call.status == STARTED:
            word = draw(st.sampled_from(["ok", "fails", "denied", "times_out"]))
            key = draw(st.sampled_from(["", "same"]))
            result = f" result {literal(key)}" if key else ""
            could += [_event("tool", f'tool "{call.tool}" {word}{result}', name=call.tool, word=word, result=key)] * 3
        if call.status == ASKED:
            could += [_event("approved", "approved"), _event("refused", "refused")]
    if draw(st.integers(0, 4)) == 0:
        agent = draw(st.sampled_from(["explore", "reader", "somebody"]))
        could.append(_event("spawn", f'spawn "{agent}"', name=agent))
        could.append(_event("passes", "3s pass", amount=3000))
        could.append(_event("cancelled", "cancelled"))
    if player.running():
        could.append(_event("child_ends", "child ends tokens 2", tokens=2))
    return draw(st.sampled_from(could)) if could else _event("passes", "3s pass", amount=3000)


def _expected(records: list[Record]) -> list[str]:
    """What was decided, as expectations: written from the decisions alone."""
    tools = {c.id: c.tool for r in records for c in (*r.before.round, *r.after.round)}
    tools |= {c.id: c.name for r in records for c in getattr(r.event, "calls", ())}
    found: list[str] = []
    for record in records:
        match record.decision:
            case d.Call(final=True, why=why, client=client):
                found += [f"final because {why}", *([f"fallback {client}"] if client != "main" else [])]
            case d.Call(client=client):
                found += ["call", f"fallback {client}"] if client != "main" else ["call"]
            case d.Retry(not_before=due):
                found.append(f"retry in {duration(due - record.event.at)}")
            case d.RunTools(verdicts=verdicts):
                words = {d.Execute: "run", d.Reply: "skip", d.Ask: "ask"}
                found += [f'{words[type(v)]} "{tools[v.id]}"' for v in verdicts]
            case d.Suspend(requests=requests):
                found += [f"ask {r.resource}" for r in requests if r.kind == "extension"]
            case d.Spawn():
                found.append("spawn")
            case d.Queue():
                found.append("queue")
            case d.Refuse(refusal=refusal):
                found.append(f"refuse because {refusal.limit.resource.replace('finalize', 'final')}")
            case d.End(outcome=outcome) if outcome.status in ("completed", "finalized"):
                found.append("done")
            case d.End(outcome=outcome):
                found.append(f"stop because {'cancelled' if outcome.status == 'cancelled' else outcome.reason}")
    return found


@st.composite
def written(draw: st.DrawFn, policy: Policy) -> list[tuple[str, list[str], bool]]:
    """A run of a policy: each event with what is expected of it, and whether the run was done by then."""
    player = Player(Suite("", policy.model_dump(mode="json"), [], [], []).compiled(), ())
    lines: list[tuple[str, list[str], bool]] = []
    for _ in range(draw(st.integers(1, 25))):
        if player.ended:
            break
        happened = _next(draw, player)
        try:
            expected = _expected(player.play(happened.event))
        except Impossible:  # the call that a driver makes before it was not admitted
            break
        outcome = player.state.book.outcome
        done = player.ended and outcome is not None and outcome.status in ("completed", "finalized")
        lines.append((happened.text, expected, done))
    return lines


def _of_the_language(policy: Policy) -> Policy:
    """A policy drawn as data, without what cannot be written: one reason that is preferred over nothing."""
    final = policy.finalization
    prefer = final.prefer if len(final.prefer) > 1 else ()
    return policy.model_copy(update={"finalization": final.model_copy(update={"prefer": prefer})})


def _file(policy: Policy, seed: int, folder: str, body: list[str]) -> Suite:
    text = Writer(random.Random(seed), named=False).write(policy)
    path = Path(folder, "drawn.policy")
    path.write_text("\n".join([text.rstrip("\n"), 'test "drawn" {', *body, "}", ""]), encoding="utf-8")
    return load(str(path))


@given(st.data(), st.one_of(policies(), tree_policies()), st.integers(0, 1000))
@settings(max_examples=150, deadline=None, report_multiple_bugs=False)
def test_a_run_written_down_passes_and_a_changed_expectation_fails_there(
    data: st.DataObject, policy: Policy, seed: int
) -> None:
    policy = _of_the_language(policy)
    with tempfile.TemporaryDirectory() as folder:
        assume(not _file(policy, seed, folder, []).errors)  # what is drawn need not be what people may write
    lines = data.draw(written(policy))
    body: list[str] = []
    places: list[tuple[int, bool]] = []
    for event, expected, done in lines:
        body.append(f"  when  {event}")
        for words in expected:
            places.append((len(body), done))
            body.append(f"  expect  {words}")
    assume(places)
    with tempfile.TemporaryDirectory() as folder:
        suite = _file(policy, seed, folder, body)
        assert suite.errors == []
        compiled = suite.compiled()
        result = run(compiled, suite.cases[0])
        assert result.failure is None, (body, result.failure)

        place, done = data.draw(st.sampled_from(places))
        body[place] = "  expect  stop" if done else "  expect  done"
        changed = _file(policy, seed, folder, body)
        failure = run(changed.compiled(), changed.cases[0]).failure
        assert failure is not None, body
        assert failure.kind == "expectation"
        assert failure.span.source.line(failure.span.line) == body[place]
        first = failure.span.source.text.split("\n").index('test "drawn" {') + 2
        assert failure.span.line == first + place
