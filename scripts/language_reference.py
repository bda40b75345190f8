"""``docs/reference.md``: every statement and word of the language, from the grammar, the vocabulary and the checker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from notation import Writer, rules
from reference_syntax import FAILURE, IN_AGENTS, LEAVES, NARROWED, SIGNS, SLOTS, STATEMENTS, TITLES, UNKNOWN, Statement
from reference_tables import STEPS, code, options, places, scopes, steps, table

from engine.core.vocabulary import (
    COUNTED,
    DECISIONS,
    DEEDS,
    PHASES,
    PLACEHOLDERS,
    POOLABLE,
    PREFER_ORDER,
    REASONS,
    RESOURCES,
    SCOPES,
    TREE_RESOURCES,
)
from policy_lang import lint_settings, settings
from policy_lang.language_server import words
from policy_lang.resolve.breakers import MAX_WINDOW
from policy_lang.resolve.files import MAX_DEPTH
from policy_lang.resolve.tests import MOST_TIMES, REFUSAL_REASONS, STOP_REASONS
from policy_lang.rules import BY_CODE
from policy_lang.source import MAX_BYTES
from policy_lang.tables import grammar_text

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"

HEAD = """\
# Language reference

Every statement, resource, step and word of `lang 1`, to look things up. It is made from the grammar, the vocabulary and
the checker, so it says what they do. [The language](language.md) explains it in prose, the
[guide](guide/first-policy.md) begins at the beginning, and [how a run is decided](semantics.md) is the contract.

## How to read it

Words stand as they are written; CAPITALS are [filled in](#what-is-filled-in). `[x]` may be left out, `x…` is there once
or more, `[x]…` as often as you like, and of `(x | y)` one is chosen. A statement stands on one line, and a line that
begins with `then` continues the one above. The lines of a block stand in any order.

A file begins with `policy`. The other statements stand in any order."""

FILLED = {
    "QUANTITY": "A number with the unit of what it is for: `20`, `200k`, `5m30s`, `$2.50`. "
    "Or the name of a `param` or `let`, or `unlimited` for a limit. [Units](language.md#writing-it-down)",
    "N": "A count, or the name of one.",
    "DURATION": "`250ms`, `20s`, `5m30s`, `2h`, `1d`, or the name of one.",
    "MONEY": "`$2.50`, exact to a millionth of a dollar, or the name of one.",
    "PERCENT": "`1%` to `99%`, or the name of one.",
    '"TEXT"': "A text in double quotes.",
    "TEXT": "A text in double quotes, or the name of one. A text for the model may contain "
    f"{code('{' + name + '}' for name in PLACEHOLDERS)}.",
    '"NAME"': "What it is called, in double quotes.",
    '"FILE"': "A path, relative to the file it stands in.",
    '"PATTERN"': "The name of a tool, or a pattern of names with `*` and `?`.",
    '"TOOL"': "The name of a tool.",
    '"AGENT"': "The name of an agent that the policy has a block for.",
    '"MODEL"': "The exact name of a model, as the host uses it.",
    '"KEY"': "Stands for arguments, or for a result: equal keys are equal.",
    "RESOURCE": "One of the [resources](#resources), where nothing else is said.",
    "SCOPE": f"{code(SCOPES)}: [resources](#resources).",
    "REASON": "A [reason](#reasons) for failures; for final calls and tests, what is said there.",
    "COUNTER, DEED, WORD": "Words of [tests](#tests) and [claims](#claims).",
    "NAME": "A letter or `_`, then letters, digits and `_`, with `-` between them.",
    "CLIENT": "The name of one of the host's [clients](language.md#clients), in quotes where it is no plain word.",
    "FUNCTION": "The name of a function of the host.",
}


def expected() -> str:
    """The whole page."""
    grammar = rules(grammar_text())
    writer = Writer(grammar, SLOTS, LEAVES, SIGNS, TITLES, NARROWED)
    parts = [HEAD, _overview()]
    for statement in STATEMENTS:
        parts.append(_statement(statement, writer))
    parts += [_steps(writer), _resources(), _reasons(), _filled(), _tests(), _claims(), _comments(), _settings()]
    parts += [_bounds(), _words()]
    unseen = set(grammar) - writer.seen - {"start", "item", "broken", *TITLES, *LEAVES}
    if unseen:
        raise ValueError(f"the reference does not show {sorted(unseen)} of the grammar")
    return "\n\n".join(parts) + "\n"


def stale() -> list[str]:
    """The page, relative to the project, if it is not as it should be."""
    current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == expected()
    return [] if current else [PAGE.relative_to(ROOT).as_posix()]


def write() -> list[str]:
    """Make the page as it should be; its name, if it was not."""
    changed = stale()
    if changed:
        PAGE.write_text(expected(), encoding="utf-8")
    return changed


# ---- statements


def _overview() -> str:
    rows = ((f"[`{s.title}`](#{_anchor(s.title)})", _sentence(s.title)) for s in STATEMENTS)
    return "## Statements\n\n" + table(("statement", "what it says"), rows)


def _sentence(title: str) -> str:
    """What a statement says, without what its word means in others."""
    keyword, _, what = title.partition(" ")
    if what:
        return f"What follows when {words.OTHERS[what][0].lower()}{words.OTHERS[what][1:]}"
    return words.KEYWORDS[keyword].split(" In a test:")[0]


def _statement(statement: Statement, writer: Writer) -> str:
    parts = [f"### {statement.title}", f"```text\n{syntax(statement, writer)}\n```"]
    parts += [where for where in (_where(statement),) if where]
    if statement.example:
        parts.append(f'```policy\npolicy "example" lang 1\n\n{statement.example}\n```')
    return "\n\n".join([*parts, f"In prose: [{_heading(statement.page)}]({statement.page})"])


def _heading(link: str) -> str:
    """The heading that a link leads to, with that of its page."""
    page, _, anchor = link.partition("#")
    titles = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.MULTILINE)
    found = next((title for title in titles if _anchor(title) == anchor), "")
    return f"{titles[0].split(',')[0]}: {found[:1].lower()}{found[1:]}" if found else titles[0]


def syntax(statement: Statement, writer: Writer) -> str:
    """The notation of a statement, with that of the parts that are explained with it."""
    if statement.block:
        head, rule = writer.block(statement.rule)
        lines = [f"{head} {{", *(f"  {line}" for line in _lines(statement, rule, writer)), "}"]
    elif statement.rule == "on":
        lines = [*UNKNOWN] if "unknown" in statement.title else [FAILURE]
    else:
        lines = writer.alternatives(statement.rule)
    for part in statement.parts:
        name = TITLES[part]
        for number, line in enumerate(writer.alternatives(part)):
            lines += [""] if number == 0 else []
            lines.append(f"{name if number == 0 else '':{len(name)}}  {line}")
    return "\n".join(lines)


def _lines(statement: Statement, rule: str, writer: Writer) -> Iterator[str]:
    for line in writer.alternatives(rule):
        yield IN_AGENTS if statement.rule == "agents" and "RESOURCE QUANTITY" in line else line


def _where(statement: Statement) -> str:
    """Which words stand for the capitals that are this statement's own."""
    found = {
        "limits": "RESOURCE, its SCOPE, its options and its steps: [resources](#resources). STEP: [steps](#steps).",
        "finalization": f"REASON: {code(PREFER_ORDER)}; those that are not named follow in this order.",
        "at": "RESOURCE: one that is limited.",
        "on llm_failure": "REASON: [reasons](#reasons), or `*` for all but `host`. STEP: [steps](#steps).",
        "agents": f"RESOURCE: {code(POOLABLE)}.",
        "breaker": "A breaker has a `trip`, each at most once, and each other line at most once.",
        "agent": "A block has at least one line. The lines are those of `limits`, `at`, `on` and `tool`.",
        "test": "More: [tests](#tests).",
        "verify": "More: [claims](#claims).",
    }
    return found.get(statement.title, "")


# ---- what statements share


def _steps(writer: Writer) -> str:
    lines = "\n".join(writer.alternatives("step"))
    allowed = places()
    rows = ((place, *("yes" if step in taken else "" for step in STEPS)) for place, taken in allowed.items())
    note = (
        "Each step is taken once the one before it cannot be taken any more; behind the last stands `stop`. "
        "What they do: [ladders](language.md#ladders), [failed model calls](language.md#failed-model-calls)."
    )
    return "\n\n".join(("## Steps", f"```text\n{lines}\n```", note, table(("where", *(f"`{s}`" for s in STEPS)), rows)))


def _resources() -> str:
    rows = (
        (
            f"`{r.name}`",
            r.unit,
            code(scopes(r)) or "none",
            code(options(r)),
            code(steps(r)) or "none",
        )
        for r in RESOURCES.values()
    )
    head = ("resource", "unit", "scopes, the usual one first", "options", "steps")
    tree = (
        (f"`{name}`", words.RESOURCES[name].removesuffix(" Written in `agents { }` only."), _most(most))
        for name, most in TREE_RESOURCES.items()
    )
    return "\n\n".join(
        (
            "## Resources",
            "What can be limited in `limits` and in the block of an `agent`:",
            table(("resource", "what is counted"), ((f"`{name}`", words.RESOURCES[name]) for name in RESOURCES)),
            table(head, rows),
            table(("scope", "what is counted together"), ((f"`{name}`", words.OTHERS[name]) for name in SCOPES)),
            "What limits a tree of agents, in `agents` only, without scope, options and steps:",
            table(("resource", "what is counted", "without a limit"), tree),
        )
    )


def _most(most: int | None) -> str:
    return "unlimited" if most is None else str(most)


def _reasons() -> str:
    rows = (
        (f"`{reason}`", f"`{kind}`" if kind else "", words.REASONS[reason].split(" A kind of")[0])
        for reason, kind in REASONS.items()
    )
    note = (
        "The most specific rule that names a reason or its kind is followed. More: [failures](semantics.md#5-failures)."
    )
    return "\n\n".join(
        ("## Reasons", "Why a model call has failed.", table(("reason", "a kind of", "meaning"), rows), note)
    )


def _filled() -> str:
    rows = ((f"`{name}`", text) for name, text in FILLED.items())
    return "## What is filled in\n\n" + table(("in the syntax", "what it is"), rows)


def _tests() -> str:
    counters = [*(name for name in COUNTED if name not in TREE_RESOURCES), *TREE_RESOURCES]
    rows = (
        ("`given COUNTER`", code(counters)),
        ("`expect count COUNTER`", code(COUNTED)),
        ("`model fails REASON`", "[reasons](#reasons)"),
        ("`final because REASON`", code(PREFER_ORDER)),
        ("`stop because REASON`", code(STOP_REASONS)),
        ("`refuse because REASON`", code(REFUSAL_REASONS)),
    )
    return f"## Tests\n\nThe words of [`test`](#test). `times` is at most {MOST_TIMES:,}.\n\n" + table(
        ("where", "words"), rows
    )


def _claims() -> str:
    rows = (
        ("`RESOURCE <= QUANTITY`", code(COUNTED)),
        ("`phase is WORD`", code(PHASES)),
        ("`last is WORD`", code(DECISIONS)),
        ("`at_most N DEED`, `never DEED after DEED`", code(DEEDS)),
    )
    return "## Claims\n\nThe words of [`verify`](#verify).\n\n" + table(("where", "words"), rows)


def _comments() -> str:
    return """## Comments

```text
# TEXT
# policy: allow CODE TEXT
```

The second form, on the line above a statement or a line of a block, accepts a warning or note with this code there, and
says why. Errors cannot be accepted. More: [accepted findings](findings.md#accepted-findings)."""


# ---- settings, bounds, words


def _settings() -> str:
    parts = ["## Settings", "What stands in `policy.toml`, beside policies. Keys that must be there are marked."]
    for kind in settings.KINDS:
        rows = ((f"`{key}`", _type(key, of), "needed" if key in kind.needed else "") for key, of in kind.types.items())
        parts += [f"A table `[{kind.table}.NAME]` for each {kind.one}:", table(("key", "takes", ""), rows)]
    rows = ((f"`{key}`", text) for key, text in _LINT.items())
    parts.append("The table `[lint]`, or `[tool.policy.lint]` in `pyproject.toml`:")
    parts.append(table(("key", "takes"), rows))
    always = code(sorted((*lint_settings.WARNED, *BY_CODE)))
    parts.append(f"Codes whose level can be set: {always}.")
    return "\n\n".join(parts)


_LINT = {
    "tools": "a list of the host's tools, or patterns of them",
    "clients": "a list of its clients, where no tables `[clients.NAME]` say so",
    "host": "a list of its [abilities](semantics.md#12-hosts)",
    "no_allow": "a list of codes that no comment accepts",
    "levels": f"a table of codes, each {code(lint_settings.LEVELS)}",
    "ignore": "a table of path patterns, each with a list of codes",
}


def _type(key: str, of: type) -> str:
    if key == "wire":
        return " or ".join(f'`"{wire}"`' for wire in settings.WIRES)
    return settings.TITLES[of]


def _bounds() -> str:
    rows = (
        ("a file", f"{MAX_BYTES // 2**20} MiB of UTF-8"),
        ("a chain of `extends` and `import`", f"{MAX_DEPTH} files"),
        ("executions that a breaker looks back", str(MAX_WINDOW)),
        ("`times` in a test", f"{MOST_TIMES:,}"),
        ("a quantity", "9,007,199,254,740,991 (2⁵³ - 1) ones, milliseconds or millionths of a dollar"),
    )
    return "## Bounds\n\n" + table(("what", "at most"), rows)


def _words() -> str:
    known: dict[str, list[str]] = {}
    for group in (words.KEYWORDS, words.RESOURCES, words.REASONS, words.OTHERS):
        for word, text in group.items():
            if text not in known.setdefault(word, []):
                known[word].append(text)
    rows = ((f"`{word}`", " Elsewhere: ".join(texts)) for word, texts in sorted(known.items()))
    return "## All words\n\nIn the order of the alphabet. An editor shows the same sentences.\n\n" + table(
        ("word", "meaning"), rows
    )


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
