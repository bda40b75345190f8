"""What is asked before a policy is written, in which order, and what is no answer.

A question is a key, the words, a default as somebody would type it, and a function that turns what was typed into a
value or says why it cannot be one. Later questions may depend on earlier answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy_lang.quantities import COUNT, DURATION, MONEY, Wrong, count_text, duration_text, misfit, money_text, parse

Answers = dict[str, Any]
"""Values by key: integers (counts, milliseconds, micro-dollars), words, lists of names; ``None`` is no limit."""

Judge = Callable[[str], Any]
"""Turns an answer into a value, or raises ``Unfit``."""

NONE: Final = "none"

LEAST_TOKENS: Final = 4_000
LEAST_COST: Final = 10_000
"""Micro-dollars: a cent."""

LEAST_WALL: Final = 5_000
_SENTENCES: Final = 400
"""Tokens of a short answer, twice."""

MOST_RETRIES: Final = 10
MOST_COST: Final = 500_000_000
"""Micro-dollars for a million tokens."""


_GLOB: Final = re.compile(r"(?!\.\*)[\w.:/*?-]*[\w*?]")


class Unfit(Exception):
    """Why something is no answer, in words for who gave it."""


@dataclass(frozen=True, slots=True)
class Question:
    """See the module."""

    key: str
    words: str
    default: str
    judge: Judge


def questions(answers: Mapping[str, Any]) -> Iterator[Question]:
    """The questions in order. ``answers`` is filled meanwhile, and looked at when the next one is due."""
    yield Question("calls", "How many model calls may a run make?", "20", calls)
    yield Question(
        "end", "At a limit: `answer` with what it has, in one last call without tools, or `stop`?", "answer", end
    )
    yield Question("rounds", "How many rounds of tools?", NONE, lambda text: rounds(text, answers))
    yield Question("tokens", "How many tokens, those of its agents included?", "200k", tokens)
    yield Question("cost", "How much money?", NONE, cost)
    if answers["cost"] is not None:
        yield from _prices("", "the run", "gpt-4.1-mini", "$0.40", "$1.60", answers)
    yield Question("wall", "How much time?", "10m", wall)
    yield Question(
        "retries",
        "A model call fails: how often is it tried again?",
        _retried(answers),
        lambda text: retries(text, answers),
    )
    yield Question("fallback", "And then, which client is asked instead?", NONE, one_name)
    if answers["fallback"] and answers["cost"] is not None:
        yield from _prices("fallback_", answers["fallback"], "gpt-4.1", "$2.00", "$8.00", answers)
    yield Question("ask", "Which tools run only if a person allows it (such as `refund_*, send_mail`)?", NONE, globs)
    if answers["ask"]:
        yield Question("within", "How long may that person take?", "1h", time)
    yield Question("agents", "Which agents may it give tasks to (such as `explore, write`)?", NONE, names)
    if answers["agents"]:
        yield Question("children", "How many of them, all in all?", "4", number)
        yield Question(
            "agent_calls", "How many model calls may each make?", _fewer(answers), lambda text: fewer(text, answers)
        )


def _prices(
    key: str, whose: str, model: str, input: str, output: str, answers: Mapping[str, Any]
) -> Iterator[Question]:
    def other_model(text: str) -> str:
        if key and text == answers["model"]:
            raise Unfit(f"`{text}` has its prices already; a fallback is another model")
        return plain(text)

    yield Question(f"{key}model", f"Which model does {whose} call?", model, other_model)
    yield Question(f"{key}input", "What does a million tokens of input cost?", input, money)
    yield Question(
        f"{key}output", "And of output?", output, lambda text: dearer(text, answers[f"{key}input"], answers["cost"])
    )


def _retried(answers: Mapping[str, Any]) -> str:
    wall = answers["wall"]
    return str(next(times for times in (3, 2, 1) if wall is None or waits(times) <= wall))


def _fewer(answers: Mapping[str, Any]) -> str:
    return str(max(2, min(8, answers["calls"] - 1)))


# ---- judges


def calls(text: str) -> int:
    """At least three: with one or two, there is no loop to limit."""
    if text in (NONE, "unlimited"):
        raise Unfit("every run needs an end: write a number, such as `20`")
    found = number(text)
    if found < 3:
        raise Unfit("with fewer than 3 calls hardly a tool can be used: write `3` or more")
    return found


def end(text: str) -> str:
    """What happens at the limits."""
    known = [word for word in ("answer", "stop") if text and word.startswith(text.lower())]
    if len(known) != 1:
        raise Unfit("write `answer` or `stop`")
    return known[0]


def rounds(text: str, answers: Mapping[str, Any]) -> int | None:
    """Fewer than the calls leave room for, or the number would never act."""
    if text == NONE:
        return None
    found = number(text)
    most = answers["calls"] - (2 if answers["end"] == "answer" else 1)
    if found > most:
        raise Unfit(f"{answers['calls']} model calls leave room for {most} at most: write fewer, or `none`")
    return found


def tokens(text: str) -> int | None:
    """So many that some can be kept for an answer."""
    found = _quantity(text, COUNT) if text != NONE else None
    if found is not None and found < LEAST_TOKENS:
        raise Unfit(f"`{text}` is hardly one call: write `{count_text(LEAST_TOKENS)}` or more, or `none`")
    return found


def cost(text: str) -> int | None:
    """So much that some can be kept for an answer."""
    found = _quantity(text, MONEY) if text != NONE else None
    if found is not None and found < LEAST_COST:
        raise Unfit(f"`{text}` is hardly one call: write `{money_text(LEAST_COST)}` or more, or `none`")
    return found


def wall(text: str) -> int | None:
    """Time for at least one call."""
    found = _quantity(text, DURATION) if text != NONE else None
    if found is not None and found < LEAST_WALL:
        raise Unfit(f"`{text}` is hardly one call: write `5s` or more, or `none`")
    return found


def retries(text: str, answers: Mapping[str, Any]) -> int:
    """So many that their waits, which double from 1s to 30s, end before the run does. ``none`` is 0."""
    found = 0 if text == NONE else _quantity(text, COUNT)
    if found > MOST_RETRIES:
        raise Unfit(f"more than {MOST_RETRIES} take long and hardly ever help: write `{MOST_RETRIES}` or fewer")
    if answers["wall"] is not None and waits(found) > answers["wall"]:
        last = duration_text(answers["wall"])
        raise Unfit(
            f"the waits between them can take {duration_text(waits(found))}, and the run lasts {last}: write fewer"
        )
    return found


def waits(times: int) -> int:
    """Milliseconds that the waits between so many attempts take at most, jitter included."""
    return sum(min(30_000, 2_000 * 2**done) for done in range(times))


def number(text: str) -> int:
    """A count of one or more."""
    found = _quantity(text, COUNT)
    if found < 1:
        raise Unfit("write a number of 1 or more")
    return found


def fewer(text: str, answers: Mapping[str, Any]) -> int:
    """An agent gets fewer calls than the run above it."""
    found = number(text)
    if not 2 <= found < answers["calls"]:
        raise Unfit(f"write a number from 2 to {answers['calls'] - 1}: fewer than the run above has")
    return found


def money(text: str) -> int:
    """A price; nothing is free in a limit of money."""
    found = _quantity(text, MONEY)
    if found < 1:
        raise Unfit("write what it costs, such as `$0.40`")
    if found > MOST_COST:
        raise Unfit(f"no model costs so much: write `{money_text(MOST_COST)}` or less")
    return found


def dearer(text: str, input: int, most: int) -> int:
    """What a model writes costs at least what it reads, and a few sentences of it not more than a run may."""
    found = money(text)
    if found < input:
        raise Unfit(f"no model writes for less than it reads: write `{money_text(input)}` or more")
    if found * _SENTENCES > most * 1_000_000:
        raise Unfit(f"then a few sentences cost more than a run may, {money_text(most)}: write a lower price")
    return found


def time(text: str) -> int:
    """A time that passes."""
    found = _quantity(text, DURATION)
    if found < 1:
        raise Unfit("write a time, such as `10m`")
    return found


def plain(text: str) -> str:
    """A name on one line."""
    if not text or not text.isprintable():
        raise Unfit("write a name")
    return text


def one_name(text: str) -> str | None:
    """A name, or none."""
    if "," in text:
        raise Unfit("write one name, or `none`; a longer chain can be written into the file")
    return None if text == NONE else plain(text)


def names(text: str) -> list[str]:
    """Names with commas between them; each once."""
    if text == NONE:
        return []
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise Unfit("write names with a comma between them, or `none`")
    return list(dict.fromkeys(plain(name) for name in found))


def globs(text: str) -> list[str]:
    """Names of tools, or patterns of them."""
    found = names(text)
    for glob in found:
        if not _GLOB.fullmatch(glob) or "**" in glob:
            raise Unfit(
                f"`{glob}` matches no tool: a name has letters, digits and `_-.:/`; `*` and `?` stand for others"
            )
    return found


def _quantity(text: str, dimension: str) -> int:
    found = parse(text)
    if isinstance(found, Wrong):
        raise Unfit(f"{found.message}: {found.help}" if found.help else found.message)
    if found.dimension != dimension:
        raise Unfit(misfit(found, dimension)[0])
    return found.value
