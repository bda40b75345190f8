"""What holds the documentation: terminals that are run, blocks that are judged by their language."""

from __future__ import annotations

import importlib
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "page.md"

FAILING = """}

test "five" {
  given   llm_calls 5
  when    call
  expect  final because llm_calls
}
"""
"""What stands behind a policy of five calls."""

SOUND = """\
<!-- file: a.policy -->
```policy
policy "a" lang 1

limits {
  llm_calls  5  then finalize
}
```
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


@pytest.fixture
def sessions(scripts: None) -> ModuleType:
    return importlib.import_module("doc_sessions")


@pytest.fixture
def blocks(scripts: None) -> ModuleType:
    return importlib.import_module("doc_blocks")


# ---- terminals


def test_a_command_sees_the_files_above_it_as_they_stand_there(sessions: ModuleType) -> None:
    session = "<!-- session: policy check a.policy; echo $? -->\nold\n<!-- end -->\n"
    page = SOUND + session + SOUND.replace("llm_calls", "llm_cals") + session
    first, second = sessions.refreshed(page).split("<!-- end -->")[:2]
    assert "```console\n$ policy check a.policy\nchecked 1 file, nothing found\n$ echo $?\n0\n```" in first
    assert "unknown resource `llm_cals`" in second
    assert "$ echo $?\n1" in second


def test_what_was_refreshed_is_current(sessions: ModuleType) -> None:
    page = sessions.refreshed(SOUND + "<!-- session: policy check a.policy -->\n<!-- end -->\n")
    assert sessions.refreshed(page) == page


def test_the_files_of_another_page_are_there(sessions: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "first.md").write_text(SOUND)
    text = "<!-- files: first.md -->\n<!-- session: policy check a.policy -->\n<!-- end -->\n"
    assert "nothing found" in sessions.refreshed(text, tmp_path / "second.md")


def test_a_rehearsed_run_has_its_own_server_and_no_random_name(sessions: ModuleType) -> None:
    script = '<!-- file: s.toml -->\n```toml\n[[reply]]\ntext = "Hello."\n```\n'
    command = "policy run a.policy Hi --model openai:any --base-url http://127.0.0.1:8711/v1"
    page = SOUND + script + f"<!-- session with s.toml: {command} -->\n<!-- end -->\n"
    shown = sessions.refreshed(page)
    assert "\nHello.\ncompleted\n" in shown
    assert "  run   " not in shown
    assert sessions.refreshed(shown) == shown


def test_a_long_command_is_broken_before_an_option(sessions: ModuleType) -> None:
    shown = sessions._broken(
        "policy run research.policy 'What is it?' --model openai:any --base-url http://127.0.0.1:1/v1 --tools t.py"
    )
    assert shown.splitlines() == [
        "policy run research.policy 'What is it?' --model openai:any --base-url http://127.0.0.1:1/v1 \\",
        "    --tools t.py",
    ]


def test_other_programs_are_not_run(sessions: ModuleType) -> None:
    with pytest.raises(SystemExit, match="not `rm`"):
        sessions.refreshed("<!-- session: rm -r x -->\n<!-- end -->\n")


# ---- blocks


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ('```policy\npolicy "a" lang 1\n\nlimits {\n  tokens  5  then finalize\n}\n```\n', "error[P330]"),
        ('```policy\npolicy "a" lang 1\n\nlimits {\n  tool_iterations  5\n}\n\ntool "x"  ask\n```\n', "warning[P334]"),
        ('```policy\npolicy "a" lang 1\n\nlimits {\n  llm_calls 5\n}\n```\n', "`policy fmt` would change it"),
        (SOUND.replace("}\n", FAILING), "the test `five` fails"),
        ("<!-- faulty: b.policy -->\n" + SOUND.split("\n", 1)[1], "nothing is wrong with it"),
        ("```python\nfrom engine import Drivr\n```\n", "`engine` has no `Drivr`"),
        ("```python\nfrom engine.drivers import Driver\n```\n", "there is no module `engine.drivers`"),
        ("```python\nimport enginee\n```\n", "there is no module `enginee`"),
        ("```console\n$ policy check x\nchecked 9 files\n```\n", "its output is not produced by a mark"),
        ('```toml\n[clients.main]\nwire = "openai"\n```\n', "model"),
        ('```toml\n[lint.levels]\nP999 = "off"\n```\n', "no finding has the code `P999`"),
        ('```toml\n[tool.policy.lint.levels]\nP321 = "of"\n```\n', "a level is"),
        ('```toml\n[[reply]]\ntxt = "x"\n```\n', "txt"),
        ("```toml\na =\n```\n", "toml in line 1"),
        ("```yaml\nhooks:\n  - id: policy-formt\n```\n", "there is no hook `policy-formt`"),
        ("```json\n{,}\n```\n", "json in line 1"),
    ],
)
def test_a_block_that_is_not_what_it_claims_to_be_is_seen(blocks: ModuleType, block: str, said: str) -> None:
    found = list(blocks.problems(block, PAGE))
    assert len(found) == 1, found
    assert said in found[0]


def test_sound_blocks_have_no_problems(blocks: ModuleType) -> None:
    page = (
        SOUND
        + "<!-- faulty: b.policy -->\n```policy\npolicy\n```\n"
        + "```python\nfrom engine import Driver\nresult = await run()\n```\n"
        + "<!-- file: tools.py -->\n```python\nx = 1\n```\n\n```python\nfrom tools import x\n```\n"
        + "```console\n$ policy check a.policy \\\n    b.policy\n```\n"
        + "<!-- not run: needs a key -->\n```console\n$ policy run a.policy Hi\nHello.\n```\n"
        + '```toml\n[tool.policy.lint.levels]\nP321 = "off"\n```\n'
        + "```yaml\nhooks:\n  - id: policy-fmt\n```\n"
    )
    assert list(blocks.problems(page, PAGE)) == []


def test_the_python_of_a_page_is_one_program_at_its_own_lines(scripts: None) -> None:
    check = importlib.import_module("check_docs_python")
    page = "# a\n\n```python\nx = 1\n```\n\ntext\n\n```python\nawait x\n```\n"
    lines = check.program(page).splitlines()
    assert lines[0] == "async def page() -> None:"
    assert (lines[3], lines[9]) == ("    x = 1", "    await x")
    compile(check.program(page), "page", "exec")


# ---- the pages as a whole

HOME = ROOT / "docs" / "README.md"
GUIDE = [
    ROOT / "docs" / place for place in re.findall(r"^\d+\. .*\]\((guide/[\w-]+\.md)\)$", HOME.read_text(), re.MULTILINE)
]


def links(page: Path) -> set[Path]:
    """The Markdown pages that a page links to."""
    found = re.findall(r"\]\(([^)\s#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / place).resolve() for place in found}


def test_every_page_is_reached_from_the_home_page() -> None:
    reached, left = {HOME}, [HOME]
    while left:
        new = links(left.pop()) - reached
        reached |= new
        left += new
    assert set((ROOT / "docs").rglob("*.md")) - reached == set()


def test_the_home_page_names_what_a_reader_may_start_with() -> None:
    assert set((ROOT / "docs").glob("*.md")) - links(HOME) - {HOME} == set()


def test_the_guide_is_whole_and_leads_from_page_to_page() -> None:
    assert set(GUIDE) == set((ROOT / "docs" / "guide").glob("*.md"))
    for page, following in pairwise(GUIDE):
        last = page.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert f"]({following.name})" in last, page.name


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_shows_what_happens_and_what_goes_wrong(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- session" in text
    assert re.search(r"^## (What goes wrong|When it fails)$", text, re.MULTILINE)
    shown = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert len(shown.split()) < 700
