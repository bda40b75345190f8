"""What went wrong on the host's side is told where a caller looks: in the result, the decision log and the stream.

What takes too long is cut by a rule, and whoever is told of the cut is told the rule.
"""

import asyncio

import pytest
from run_fakes import Model, asks, forever, says

from engine import Driver
from engine.core.decisions import Note
from engine.core.policy import Finalize, Limit, Origin, Policy, ToolRule
from engine.core.step import compile
from engine.run.deadlines import Deadlines
from engine.run.streaming import Noted

AT = [Origin(file="p.policy", line=max(line, 1)) for line in range(10)]
SHORT = ToolRule(glob="slow", timeout=30, origin=AT[4])
WALL = Limit(resource="wall", max=5_000, reserve=4_960, then=(Finalize(),), origin=AT[5])
ATTEMPT = Limit(resource="attempt_wall", max=40, origin=AT[6])


async def slow() -> str:
    await asyncio.sleep(60)
    return "never"


async def send() -> str:
    return "sent"


def run(policy, *script, **options):
    """The result of a run, what its decision log has of notes, and the notes of its stream."""
    entries, streamed = [], []
    driver = Driver(policy, Model(*script), [slow, send], log=entries.append, **options)

    async def go():
        handle = driver.stream("x")
        async for event in handle:
            if isinstance(event, Noted):
                streamed.append(event.note)
        return await handle

    result = asyncio.run(asyncio.wait_for(go(), 20))
    return result, [entry for entry in entries if "note" in entry], streamed


@pytest.mark.parametrize(
    ("rules", "limits", "rule", "line"),
    [
        ((SHORT,), (), "timeout 30ms", 4),
        ((), (WALL,), "wall 5s", 5),
        ((ToolRule(glob="*", timeout=20_000, origin=AT[3]),), (WALL,), "wall 5s", 5),
    ],
)
def test_a_tool_that_takes_too_long_names_the_rule(rules, limits, rule, line):
    policy = Policy(name="p", tools=rules, limits=limits)
    result, logged, streamed = run(policy, asks(("slow", "{}")), says("done"))
    text = next(message.text for message in result.messages if message.role == "tool")
    assert text == f"This call took longer than it was allowed to and was cancelled ({rule}, p.policy:{line})."
    note = Note("warn", f"tool `slow` took too long ({rule})", because=f"p.policy:{line}")
    assert result.notes == (note,)
    assert note in streamed
    said = {"kind": "warn", "text": note.text}
    assert logged == [{"run": result.run_id, "seq": 4, "note": said, "rule": note.because}]


def test_a_model_that_takes_too_long_names_the_rule():
    result, logged, _ = run(Policy(name="p", limits=(ATTEMPT,)), forever)
    assert result.error == "timeout: no answer in time (attempt_wall 40ms, p.policy:6)"
    note = Note("warn", "call 1 to main got no answer in time (attempt_wall 40ms)", because="p.policy:6")
    assert result.notes == (note,)
    assert [entry["rule"] for entry in logged] == ["p.policy:6"]


def test_without_a_rule_the_default_is_named():
    rules = Deadlines(compile(Policy(name="p")).core)
    assert str(rules.of_attempt(0, 600_000)) == "attempt_wall 10m, default: attempt_wall"
    assert rules.of_tool("slow", 0, 5) is None


@pytest.mark.parametrize(("decided", "deadline", "told"), [(0, 30, "timeout"), (0, 29, "wall"), (None, 29, "timeout")])
def test_the_shorter_time_is_named(decided, deadline, told):
    rules = Deadlines(compile(Policy(name="p", tools=(SHORT,), limits=(WALL,))).core)
    found = rules.of_tool("slow", decided, deadline)
    assert found is not None
    assert found.text.startswith(told)


@pytest.mark.parametrize("fails", [RuntimeError("no network"), None])
def test_a_person_who_cannot_be_asked_is_told_where_a_caller_looks(fails):
    async def approver(request):
        if fails is None:
            return "perhaps"
        raise fails

    policy = Policy(name="p", tools=(ToolRule(glob="send", ask=True, origin=AT[7]),))
    result, logged, streamed = run(policy, asks(("send", "{}")), says("done"), approver=approver)
    assert len(result.notes) == 1
    note = result.notes[0]
    assert (note.kind, note.because) == ("warn", "p.policy:7")
    assert ("no network" in note.text) is (fails is not None)
    assert note in streamed
    assert [entry["note"]["text"] for entry in logged] == [note.text]
