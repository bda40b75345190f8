"""Laws of fixing: no error more, the meaning kept where that is claimed, done when it is done, no comment lost."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_policies import Writer, policies
from test_format_laws import SPOILERS, TEXTS
from test_lang_recovery import KINDS, WORDS

from engine.core.policy import Policy
from policy_lang import checks
from policy_lang.cli.fix_files import FixedFiles
from policy_lang.diagnostics import KEEPS, Diagnostic
from policy_lang.fixing import Files, Fixer
from policy_lang.fixing import fixed as fixed_text
from policy_lang.formatting import formatted
from policy_lang.linting import Linter
from policy_lang.source import MAX_BYTES

SEEDS = st.integers(0, 2**32)

Mistake = Callable[[str, random.Random], str]

HABITS: tuple[tuple[str, str], ...] = (
    (r"(?m)^(  \w+) +(?=\d)", r"\1 = "),
    (r" then (\w+)", r" \1"),
    (r'"([^"\\\n]*)"', r"'\1'"),
    (r"(?m)^\}$", ""),
    (r"(?m) \{$", " { "),
    (r"(?m) \{\n", "\n{\n"),
    (r"(?m)^(tool|let|at) (.*)$", r"\1 \2;"),
    (r"(\d)([smhkM%])\b", r"\1 \2"),
    (r"(\d)k\b", r"\1K"),
    (r"# ", "// "),
    (r" over ", " "),
    (r"(\d)\.\.(\d)", r"\1-\2"),
    (r"llm_calls", "llm_cals"),
    (r"then stop", "then stop then finalize"),
)
"""What people write who know another language, as replacements."""


def habit(text: str, rng: random.Random) -> str:
    """One line, or all of them, written in the way of another language."""
    pattern, better = rng.choice(HABITS)
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    chosen = places if rng.random() < 0.2 else [rng.choice(places)]
    for place in reversed(chosen):
        text = text[: place.start()] + place.expand(better) + text[place.end() :]
    return text


def idle(text: str, rng: random.Random) -> str:
    """Something that does nothing, and is told."""
    extra = rng.choice(
        ["let idle_{n} = 5", 'let idle_{n} = "x"', "# policy: allow P319 nothing here", "let idle_{n} = 5 # kept"]
    ).format(n=rng.randrange(10**6))
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if at and re.match(r"(tool|limits|at|on|let|param)\b", line)]
    lines.insert(rng.choice(starts or [len(lines)]), extra)
    return "\n".join(lines)


def spoiled(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(SPOILERS) + text[at:]


@st.composite
def mistaken(draw: st.DrawFn) -> str:
    """A file with a few mistakes, and with comments of its own."""
    rng = random.Random(draw(SEEDS))
    text = TEXTS[draw(st.sampled_from(sorted(TEXTS)))]
    for _ in range(draw(st.integers(0, 5))):
        mistake: Mistake = rng.choice([habit, habit, habit, idle, spoiled, rng.choice(KINDS)])
        text = mistake(text, rng) or "\n"
    lines = text.split("\n")
    for number in range(rng.randrange(4)):
        lines.insert(rng.randrange(len(lines) + 1), f"# kept {number}")
    text = "\n".join(lines)
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if rng.random() < 0.2 else text


def fix(text: str, unsafe: bool = False) -> tuple[str, list[Diagnostic], Fixer, Files]:
    files = Files.of_text("x", text)
    fixer = Fixer(files, ["x"], unsafe=unsafe)
    fixer.run()
    return files.text("x"), fixer.done.get("x", []), fixer, files


def errors(text: str) -> int:
    return sum(finding.is_error for finding in checks(text, "x")[1])


def kept(text: str) -> list[str]:
    return re.findall(r"(?m)^# kept \d+", text)


@given(mistaken(), st.booleans())
def test_fixing_makes_nothing_worse_and_is_done_when_it_is_done(text: str, unsafe: bool) -> None:
    new, done, fixer, _ = fix(text, unsafe)
    assert errors(new) <= errors(text)
    assert kept(new) == kept(text)
    assert bool(done) is (new != text)
    again, more, fixer_again, _ = fix(new, unsafe)
    assert (again, more) == (new, [])
    assert [why for _, why in fixer_again.refused] == [why for _, why in fixer.refused]


@settings(max_examples=60)
@given(mistaken())
def test_what_is_safe_stays_done_when_guesses_are_made(text: str) -> None:
    safe = fix(text)[0]
    assert errors(fix(safe, unsafe=True)[0]) <= errors(safe)
    assert not any(finding.safety == "unsafe" for finding in fix(text)[1])


@settings(max_examples=80)
@given(mistaken())
def test_after_fixing_and_laying_out_there_is_little_left_to_fix(text: str) -> None:
    """A layout may show what to do about a step on a line of its own; after that nothing changes any more."""
    made = formatted(fix(text)[0])
    again = formatted(fix(made)[0])
    assert errors(again) <= errors(made) <= errors(text)
    assert formatted(fix(again)[0]) == again


@settings(max_examples=60)
@given(mistaken())
def test_line_ends_are_kept(text: str) -> None:
    new = fix(text)[0]
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        assert new.count("\n") == new.count("\r\n")
    if "\r" not in text:
        assert "\r" not in new


@given(policies(), SEEDS)
def test_a_policy_means_the_same_after_fixes_that_claim_it(policy: Policy, seed: int) -> None:
    rng = random.Random(seed)
    text = Writer(rng).write(policy).replace("\r\n", "\n")
    for _ in range(3):
        text = idle(text, rng)
    before = checks(text, "x")[0]
    new, done, _, _ = fix(text)
    after = checks(new, "x")[0]
    assert (before is None) is (after is None)
    if before is not None and all(finding.safety == KEEPS for finding in done):
        assert Policy.model_validate(after).fingerprint() == policy.fingerprint()
    codes = {finding.code for finding in done}
    assert before is None or codes <= {"P305", "P315", "P319", "P900"}


@given(st.lists(WORDS, max_size=60).map(" ".join), st.booleans())
def test_any_words_in_any_order(text: str, unsafe: bool) -> None:
    new = fix(text, unsafe)[0]
    assert errors(new) <= errors(text)
    assert fix(new, unsafe)[0] == new


PROJECT = {
    "texts": """policy "texts" lang 1
let bye = "Answer now."
let few = 5
let idle = 7
tool "shell_*"  deny "No shell."
""",
    "shared": """policy "shared" lang 1
import "texts.policy"
tool "mail"  ask within 5m
let more = 9
""",
    "base": """policy "base" lang 1
import "shared.policy"
param most = 20
limits {
  llm_calls        most  then finalize bye
  tool_iterations  8  then extend 2 once then finalize
  tokens           100k reserve 4k then finalize
}
""",
    "main": """policy "main" lang 1
extends "base.policy"
import "texts.policy"
let used = 7
let unused = 8
limits {
  override llm_calls  10 then finalize
  tool_iterations     used then finalize bye
  tokens              100k reserve 4k then finalize
}
agent "explore" {
  llm_calls        4
  override tokens  10k
}
""",
}
"""Files that depend on one another, with something idle in each."""


@settings(max_examples=60)
@given(SEEDS, st.booleans())
def test_files_that_depend_on_each_other_are_fixed_in_one_go(seed: int, unsafe: bool) -> None:
    rng = random.Random(seed)
    files = dict(PROJECT)
    for _ in range(rng.randrange(5)):
        name = rng.choice(sorted(files))
        files[name] = rng.choice([habit, habit, idle, spoiled, rng.choice(KINDS[:-1])])(files[name], rng) or "\n"
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, text in files.items():
            Path(f"{name}.policy").write_bytes(text.encode())
        names = rng.sample([f"{name}.policy" for name in files], rng.choice([4, 4, 2]))
        before = sum(all_errors(names))
        fixing = FixedFiles(Linter(), names, 1, unsafe=unsafe)
        assert fixing.write() == []
        assert sum(all_errors(names)) <= before
        assert list(FixedFiles(Linter(), names, 1, unsafe=unsafe).changed()) == []
        for name, text in files.items():
            assert f"{name}.policy" in names or Path(f"{name}.policy").read_bytes() == text.encode()


def all_errors(names: list[str]) -> list[bool]:
    linter = Linter()
    return [finding.is_error for name in names for finding in linter.told(name).findings]


def test_hundreds_of_mistakes_are_fixed_though_not_all_are_told_at_first() -> None:
    lines = "\n".join(f'  "model-{n}"  input $1  output $2  per 1M;' for n in range(450))
    text = f'policy "x" lang 1\nprices {{\n{lines}\n}}\n' + "".join(
        f"on llm_failure r{n} retry 2 stop\n" for n in range(9)
    )
    assert any(finding.code == "P115" for finding in checks(text)[1])
    new, done, _, _ = fix(text)
    assert new == text.replace(";", "").replace(" stop", " then stop")
    assert len(done) == 459
    assert len(text) < MAX_BYTES


@pytest.mark.parametrize("unsafe", [False, True])
def test_no_hash_decides(unsafe: bool) -> None:
    folder = Path(__file__).parents[1] / "diagnostics" / "cases"
    code = (
        "import sys; from pathlib import Path; from policy_lang.fixing import fixed\n"
        "for path in sorted(Path(sys.argv[1]).glob('*.policy')):\n"
        "    data = path.read_bytes()\n"
        f"    print(ascii(fixed(data.decode(), unsafe={unsafe})) if b'\\0' not in data else '-')\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1", "7")
    }
    assert len(outputs) == 1


def test_from_python() -> None:
    text = "\ufeffpolicy 'x' lang 1\r\nlimits {\r\n  llm_calls 5 finalize\r\n  tokns 5k\r\n}\r\n"
    safe = '\ufeffpolicy "x" lang 1\r\nlimits {\r\n  llm_calls 5 then finalize\r\n  tokns 5k\r\n}\r\n'
    assert fixed_text(text) == safe
    assert fixed_text(text, unsafe=True) == safe.replace("tokns", "tokens")
