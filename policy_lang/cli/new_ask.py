"""Questions to somebody at a terminal: a default in brackets, and an answer that does not fit is asked for again."""

from __future__ import annotations

import contextlib
from typing import Any

from policy_lang.renderers.snippet import clean
from policy_lang.starting.questions import Answers, Question, Unfit, plain, questions


class BrokenOff(Exception):
    """Whoever was asked has left."""


def asked() -> Answers:
    """The answers to all questions. Raises ``BrokenOff``."""
    print("An empty line takes what stands in brackets; `none` is no limit, or nothing of the kind.\n")
    answers: Answers = {}
    for question in questions(answers):
        answers[question.key] = _answer(question)
    return answers


def asked_name(default: str) -> str:
    """The name of the file. Raises ``BrokenOff``."""
    name: str = _answer(Question("name", "Which file is to be written?", default, plain))
    return name


def _answer(question: Question) -> Any:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - a line can be edited then

    while True:
        try:
            typed = input(f"{question.words} [{question.default}] ")
        except (EOFError, KeyboardInterrupt):
            raise BrokenOff from None
        try:
            return question.judge(typed.strip() or question.default)
        except Unfit as problem:
            print(f"  {clean(str(problem))}")
