"""The parts of the documentation that are made from the code, as Markdown, by name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable

import demo
from doc_adapters import differences, hosts

from engine.core.host import ABILITIES, NEEDS
from engine.core.ladders import DEFAULT_RETRY_MS
from engine.core.texts import duration
from engine.core.vocabulary import (
    DEFAULT_ATTEMPT_WALL_MS,
    DEFAULT_GRACE_MS,
    DEFAULT_INSTRUCTION,
    PREFER_ORDER,
    REASONS,
    REFUSALS,
    TREE_RESOURCES,
)

RUN_ID = re.compile(r" *run +[0-9a-f]{32}")


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def instruction() -> str:
    return f"```text\n{DEFAULT_INSTRUCTION}\n```"


def refusals() -> str:
    return table(("why", "text"), ((f"`{why}`", text) for why, text in REFUSALS.items()))


def reasons() -> str:
    return table(("reason", "also matched by"), ((f"`{r}`", f"`{b}`" if b else "") for r, b in REASONS.items()))


def defaults() -> str:
    order = " ".join(f"`{name}`" for name in PREFER_ORDER)
    least, most = DEFAULT_RETRY_MS
    return table(
        ("what", "default"),
        (
            ("a limit without a ladder", "`stop`"),
            ("a resource without a limit", "unlimited, counted"),
            ("a failed model call", "the run ends `failed`, `llm_failure`"),
            ("`retry` without `every`", f"{duration(least)} to {duration(most)}, with jitter"),
            ("`fallback` without `for`", "for the rest of the run"),
            ("an unknown tool", "answered"),
            ("`ask` without `within`", "no end of waiting"),
            ("a breaker", "`reset never`, `when_open skip`, `count denied as nothing`, `apply round_end`"),
            ("`attempt_wall`", f"{duration(DEFAULT_ATTEMPT_WALL_MS)}"),
            ("grace when a run is stopped", f"{duration(DEFAULT_GRACE_MS)}"),
            ("finalization", "`mode proactive`, `tools strip`, `empty stop`"),
            ("a tree of agents", _tree_defaults()),
            ("preference among reasons for a final call", order),
        ),
    )


def _tree_defaults() -> str:
    maxima = [f"`{name} {'unlimited' if most is None else most}`" for name, most in TREE_RESOURCES.items()]
    return f"{', '.join(maxima)}; pools are shared"


def abilities() -> str:
    return table(("ability", "a host that has it"), ((f"`{name}`", text) for name, text in ABILITIES.items()))


def needs() -> str:
    rows = ((law, " and ".join(_one_of(group) for group in groups)) for law, groups in NEEDS.items())
    return table(("law", "needs"), rows)


def _one_of(group: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in group)


def commands() -> str:
    from policy_lang.cli import COMMANDS

    return table(("command", "what it does"), ((f"`policy {name}`", text) for name, text in COMMANDS.items()))


def example() -> str:
    """The policy of the demonstration."""
    return f"```policy\n{demo.statements().strip()}\n```"


def run() -> str:
    """What the demonstration's run prints, but for its random name."""
    model = f"--model openai:rehearsed --base-url http://127.0.0.1:8711/v1 --tools {demo.TOOLS}"
    command = f'policy run {demo.POLICY} "{demo.QUESTION}" \\\n    {model}'
    lines = [line for line in demo.rehearsed()[0].stdout.splitlines() if not RUN_ID.fullmatch(line)]
    return "\n".join(["```console", f"$ {command}", *lines, "```"])


TREE = "spec_examples/budgets/must_report.policy"


def tree() -> str:
    """The policy of an agent that must report, without its comment and its tests."""
    text = (demo.ROOT / TREE).read_text(encoding="utf-8")
    return f"```policy\n{text[text.index('policy ') : text.index('test ')].strip()}\n```"


def explained() -> str:
    """What is said of the final call of the demonstration: the text that a test holds against a real journal."""
    text = (demo.ROOT / "tests/e2e/explained/final_call.txt").read_text(encoding="utf-8")
    text = text.replace("TIME after", "0.14 s after").replace("run RUN", "run order-17")
    return f"```console\n$ policy explain runs.sqlite --run order-17 --step 22\n{text}```"


def picture() -> str:
    """The policy of the demonstration, drawn."""
    command = [sys.executable, "-m", "policy_lang.cli", "graph", demo.POLICY]
    drawn = subprocess.run(command, cwd=demo.ROOT, capture_output=True, text=True, timeout=120, check=True)
    return f"```mermaid\n{drawn.stdout}```"


PARTS: dict[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        instruction,
        refusals,
        reasons,
        defaults,
        abilities,
        needs,
        hosts,
        differences,
        commands,
        example,
        run,
        tree,
        explained,
        picture,
    )
}
