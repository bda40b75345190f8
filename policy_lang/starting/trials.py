"""The tests of a file that was made from answers: each limit at its boundary, each rule once."""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang.quantities import count_text, duration_text, money_text
from policy_lang.starting.questions import Answers
from policy_lang.starting.reserves import kept
from policy_lang.texts import client_text, quote

Lines = list[str]


def trials(answers: Answers) -> Iterator[Lines]:
    """The tests, each as its lines."""
    yield from _calls(answers)
    yield from _rounds(answers)
    yield from _amounts(answers)
    yield from _failures(answers)
    for glob in answers["ask"]:
        tool = quote(glob.replace("*", "x").replace("?", "x"))
        yield _test(f"{glob} waits for a person", "when call", f"when model asks {tool}", f"expect ask {tool}")
    if answers["agents"]:
        first, children = quote(answers["agents"][0]), answers["children"]
        yield _test("an agent is spawned", f"when spawn {first}", "expect spawn")
        yield _test(
            "no more of them than that",
            f"given children {children}",
            f"when spawn {first}",
            "expect refuse because children",
        )


def _test(title: str, *lines: str) -> Lines:
    return [f"test {quote(title)} {{", *(f"  {line}" for line in lines), "}"]


def _calls(answers: Answers) -> Iterator[Lines]:
    calls = answers["calls"]
    if answers["end"] == "answer":
        yield _test(
            "the last call is the answer", f"given llm_calls {calls - 1}", "when call", "expect final because llm_calls"
        )
        yield _test("the call before it is an ordinary one", f"given llm_calls {calls - 2}", "when call", "expect call")
    else:
        yield _test(
            "beyond the last call the run ends",
            f"given llm_calls {calls}",
            "when call",
            "expect stop because llm_calls",
        )
        yield _test("the last call is an ordinary one", f"given llm_calls {calls - 1}", "when call", "expect call")


def _rounds(answers: Answers) -> Iterator[Lines]:
    rounds = answers["rounds"]
    if rounds is None:
        return
    given = f"given llm_calls {rounds}, tool_iterations {rounds}"
    if answers["end"] == "answer":
        yield _test("after the last round comes the answer", given, "when call", "expect final because tool_iterations")
    else:
        asks = 'when model asks "search"'
        yield _test(
            "beyond the last round the run ends", given, "when call", asks, "expect stop because tool_iterations"
        )


def _amounts(answers: Answers) -> Iterator[Lines]:
    for key, write, noun in (("tokens", count_text, "tokens"), ("cost", money_text, "money")):
        value = answers[key]
        if value is None:
            continue
        if answers["end"] == "answer":
            used = write(value - kept(answers, key))
            title, expected = f"what is kept of the {noun} makes the answer", f"expect final because {key}"
        else:
            used, title, expected = write(value), f"without {noun} the run ends", f"expect stop because {key}"
        yield _test(title, f"given {key} {used}", "when call", expected)
    if answers["wall"] is not None:
        title = "when its time is over the run ends"
        yield _test(title, f"given wall {duration_text(answers['wall'])}", "when call", "expect stop because wall")


def _failures(answers: Answers) -> Iterator[Lines]:
    retries, fallback = answers["retries"], answers["fallback"]
    lines = ["when call"]
    if retries:
        lines += [f"when model fails rate_limit times {retries}", "expect retry"]
    if retries or fallback:
        lines.append("when model fails rate_limit")
        lines.append(f"expect fallback {client_text(fallback)}" if fallback else "expect stop because rate_limit")
        yield _test("what may pass is tried again" if retries else "another client is asked", *lines)
