"""The templates: policy files beside this package, each a whole one with comments and tests."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

from policy_lang.texts import quote

ORDER: Final = ("minimal", "chat", "coding", "research", "batch", "approvals")
"""Their names, the simplest first."""

_HEADER: Final = re.compile(r'^policy "[^"]*"', re.MULTILINE)


def text(name: str) -> str:
    """A template as it is shipped."""
    return (files("policy_lang") / "templates" / f"{name}.policy").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """What a template is for: the first sentence of its first comment, without the full stop."""
    lines = []
    for line in text(name).split("\n"):
        if not line.startswith("# "):
            break
        lines.append(line[2:])
    return " ".join(lines).partition(". ")[0].removesuffix(".")


def named(name: str, policy: str) -> str:
    """A template with the name of another policy in its first statement."""
    return _HEADER.sub(lambda _: f"policy {quote(policy)}", text(name), count=1)
