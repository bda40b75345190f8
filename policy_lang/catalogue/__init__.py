"""Every code a finding can have, and a page about each: what is wrong, why it matters, what to write.

Prose only. The checks decide when a code is due; a test keeps both in step. The page about a rule is the docstring of
its module in ``policy_lang.rules``; the others stand in the modules of this package.

A page is a title of a few words and paragraphs. ``Bad:`` and ``Good:`` are followed by an example, indented: a policy,
called ``main.policy``, and after a line ``# --- NAME`` another file. Linting the bad one finds this code and no other,
the good one nothing, notes about other things apart.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import NamedTuple


class Page(NamedTuple):
    """One page: ``title`` is a few words, ``text`` its paragraphs, laid out."""

    title: str
    text: str

    def example(self, kind: str) -> dict[str, str]:
        """The files of the example ``Bad`` or ``Good``, by name; none if it has no such example."""
        found = re.search(rf"^{kind}:\n\n((?:    .*\n|\n)+)", f"{self.text}\n", re.MULTILINE)
        if found is None:
            return {}
        body = "\n".join(line.removeprefix("    ") for line in found[1].rstrip().split("\n"))
        parts = re.split(r"^# --- (\S+)\n", f"{body}\n", flags=re.MULTILINE)
        return {"main.policy": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


_MODULES = {
    "P1": ("syntax",),
    "P2": ("words",),
    "P3": ("meaning", "bases"),
    "P4": ("files",),
    "P5": ("testing",),
    "P9": ("files",),
}


def pages() -> dict[str, Page]:
    """Every code in order, to its page."""
    from policy_lang.rules import RULES

    found: dict[str, Page] = {rule.code: _of_rule(rule.module) for rule in RULES}
    for name in sorted({name for names in _MODULES.values() for name in names}):
        found |= _of_module(name)
    return dict(sorted(found.items()))


def find(code: str) -> Page | None:
    """The page of a code, ``None`` if there is no such code."""
    from policy_lang.rules import BY_CODE

    if code in BY_CODE:
        return _of_rule(BY_CODE[code].module)
    modules = map(_of_module, _MODULES.get(code[:2], ()))
    return next((module[code] for module in modules if code in module), None)


def _of_rule(module: str) -> Page:
    text = import_module(f"policy_lang.rules.{module}").__doc__
    title, _, rest = (text or "").partition("\n")
    return Page(title, rest.strip("\n"))


def _of_module(name: str) -> dict[str, Page]:
    text: str = import_module(f"policy_lang.catalogue.{name}").PAGES
    found: dict[str, Page] = {}
    for part in re.split(r"\n(?=P[0-9]{3} )", text.strip()):
        head, _, body = part.partition("\n")
        lines = [line.removeprefix("    ") for line in body.strip("\n").split("\n")]
        found[head[:4]] = Page(head[5:], "\n".join(lines))
    return found


def title(code: str) -> str | None:
    """A few words about a code; ``None`` if there is no such code."""
    found = find(code)
    return found.title if found else None


def page(code: str) -> str | None:
    """The page of a code (in capitals or not), as text; ``None`` if there is no such code."""
    found = find(code.upper())
    return f"{code.upper()}: {found.title}\n\n{found.text}\n" if found else None


def no_such_code(word: str) -> str | None:
    """What to say of a word that looks like a code and is none, with the codes nearest to it; ``None`` otherwise."""
    if not re.fullmatch(r"[Pp][0-9]{1,6}", word) or find(word.upper()):
        return None
    number = int(word[1:])
    known = pages()
    near = sorted(known, key=lambda code: (abs(int(code[1:]) - number), code))[:3]
    listed = "".join(f"\n  {code} {known[code].title}" for code in sorted(near))
    return f"no finding has the code {word.upper()}; the nearest are{listed}"
