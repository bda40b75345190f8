"""``policy diff`` as a command: what it prints, what it returns, and what it makes of a real git repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OLD = """policy "six" lang 1

limits {
  llm_calls        6  then finalize
  tool_iterations  5  then extend 3 once then finalize
}

tool "shell" timeout 20s
"""
NEW = OLD.replace(" 6 ", " 7 ")

SHOWN = """old.policy -> new.policy
  written                   old              new              lines
  looser   limit llm_calls  6 then finalize  7 then finalize  old.policy:4 -> new.policy:4
  and 2 more the same
  decided       LOOSER at these limits: where a run is first decided otherwise, more is allowed
  more          on call requested: old `final call`, new `call`, first after 17 events

             #  time  event                decision                      rule              counters
             1    0s  (the run starts)     go on                         default: start
      x5 [   2    0s  call                 call                          default: call     llm_calls 1/6
             3    0s  model asks `search`  run `search`                  default: execute  tool_iterations 1/5
             4    0s  tool `search` ok     go on                         default: round     ]
            17    0s  call                 final call because llm_calls  old.policy:4      llm_calls 6/6
      old:   final call because llm_calls  [old.policy:4]
      new:   call                          [default: call]

  looked at     283 states of both, 1,071 transitions, depth 32, … s in all
  assumed       a round has at most 2 tools
                nobody is above the run, and nobody shares with it

"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old.policy").write_text(OLD, encoding="utf-8")
    (tmp_path / "new.policy").write_text(NEW, encoding="utf-8")
    return tmp_path


def diff(folder: Path, *arguments: str, path: str | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "policy_lang.cli", "diff", *arguments]
    around = {**os.environ, "PYTHONPATH": str(ROOT), "GIT_CEILING_DIRECTORIES": str(folder.parents[1])}
    around |= {"PATH": path} if path is not None else {}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=around)
    return done.returncode, re.sub(r"[0-9.]+ s in all$", "… s in all", done.stdout, flags=re.MULTILINE), done.stderr


def test_what_is_shown_of_two_files(folder: Path) -> None:
    assert diff(folder, "old.policy", "new.policy") == (1, SHOWN, "")


def test_what_says_the_same_is_equivalent(folder: Path) -> None:
    (folder / "new.policy").write_text("# another comment\n" + OLD.replace('"six"', '"other"'), encoding="utf-8")
    assert diff(folder, "old.policy", "new.policy", "--fail-on", "different") == (
        0,
        "old.policy -> new.policy\n"
        "  written       the same, but for order, names and comments\n"
        "  decided       equivalent at these limits: every run is decided alike: they say the same, statement by "
        "statement\n"
        "\n",
        "",
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("old.policy", "new.policy"), 1),
        (("new.policy", "old.policy"), 0),
        (("new.policy", "old.policy", "--fail-on", "different"), 1),
        (("old.policy", "new.policy", "--fail-on", "never"), 0),
        (("new.policy", "old.policy", "--max-states", "20"), 3),
        (("new.policy", "old.policy", "--max-states", "20", "--fail-on", "never"), 0),
        (("new.policy", "--against", "old.policy"), 1),
        (("old.policy", "nowhere.policy"), 2),
    ],
)
def test_exit_codes(folder: Path, arguments: tuple[str, ...], code: int) -> None:
    assert diff(folder, *arguments)[0] == code


def test_what_no_search_looks_at_counts_by_its_number(folder: Path) -> None:
    (folder / "new.policy").write_text(OLD.replace("20s", "30s"), encoding="utf-8")
    code, out, _ = diff(folder, "old.policy", "new.policy")
    assert code == 1
    assert '  looser   tool "shell"  timeout 20s  timeout 30s  old.policy:8 -> new.policy:8\n' in out
    assert "  decided       equivalent at these limits" in out
    assert '  beside        tool "shell": looser; compared by its number alone, no search looks at it\n' in out


def test_as_json(folder: Path) -> None:
    code, out, err = diff(folder, "old.policy", "new.policy", "--json")
    assert (code, err) == (1, "")
    (made,) = json.loads(out)["policies"]
    assert (made["result"], made["old"]["name"], made["new"]["missing"]) == ("looser", "old.policy", False)
    (changed,) = (row for row in made["written"] if row["change"] != "same")
    assert (changed["old_line"], changed["new"]) == ("old.policy:4", "7 then finalize")
    (difference,) = made["decided"][0]["differences"]
    assert difference["new"] == {"decision": "call", "rank": 4}
    assert difference["run"][-1]["old"]["final"] is True
    assert difference["run"][-1]["event"]["event"] == "call_requested"


def test_a_param_that_only_one_version_has(folder: Path) -> None:
    with_param = OLD.replace("limits {", "param calls = 6\n\nlimits {").replace(" 6  then", " calls  then")
    (folder / "new.policy").write_text(with_param, encoding="utf-8")
    assert diff(folder, "old.policy", "new.policy", "--set", "calls=6")[0] == 0
    assert diff(folder, "old.policy", "new.policy", "--set", "calls=7")[0] == 1
    assert diff(folder, "new.policy", "old.policy", "--set", "calls=7")[0] == 0
    code, out, err = diff(folder, "old.policy", "new.policy", "--set", "call=7")
    assert (code, out) == (2, "")
    assert err == "policy diff: --set: neither old.policy nor new.policy has a param `call`\n"


def test_agents_are_compared_by_their_blocks(folder: Path) -> None:
    block = 'agent "explore" {\n  llm_calls  2\n}\n'
    (folder / "old.policy").write_text(OLD + block, encoding="utf-8")
    (folder / "new.policy").write_text(OLD + block.replace("2", "3"), encoding="utf-8")
    code, out, _ = diff(folder, "old.policy", "new.policy")
    assert code == 1
    assert '  looser   agent "explore": limit llm_calls  2    3    old.policy:10 -> new.policy:10\n' in out
    assert "  decided       equivalent at these limits" in out
    assert '  agent "explore"\n                LOOSER at these limits' in out


# ---- git


def git(folder: Path, *arguments: str) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *named, *arguments], cwd=folder, check=True, capture_output=True)


BASE = 'policy "base" lang 1\n\nlimits {\n  llm_calls  5\n}\n'
TOP = 'policy "top" lang 1\n\nextends "base.policy"\nimport  "tools.policy"\n\nlimits {\n  tool_iterations  3\n}\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """``policies/`` is as it was committed, but that its base allows a call more, and one file is new."""
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "base.policy").write_text(BASE, encoding="utf-8")
    (policies / "tools.policy").write_text('policy "tools" lang 1\n\ntool "shell" deny\n', encoding="utf-8")
    (policies / "top.policy").write_text(TOP, encoding="utf-8")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    (policies / "base.policy").write_text(BASE.replace("5", "6"), encoding="utf-8")
    (policies / "new.policy").write_text(BASE, encoding="utf-8")
    return tmp_path


def test_a_file_and_all_it_extends_as_they_were(repository: Path) -> None:
    code, out, err = diff(repository, "--against", "git:main", "policies/top.policy")
    assert (code, err) == (1, "")
    assert out.startswith(
        "main:policies/top.policy -> policies/top.policy\n"
        "  written                   old  new  lines\n"
        "  looser   limit llm_calls  5    6    main:policies/base.policy:4 -> policies/base.policy:4\n"
        "  and 2 more the same\n"
    )
    named = diff(repository, "git:HEAD:policies/top.policy", "policies/top.policy")[1]
    assert named.replace("HEAD", "main") == out
    below = diff(repository / "policies", "--against", "git:main", "top.policy")[1]
    assert "main:base.policy:4 -> base.policy:4" in below


def test_two_revisions(repository: Path) -> None:
    git(repository, "commit", "-q", "-a", "-m", "two")
    assert diff(repository, "git:main~1:policies/top.policy", "git:main:policies/top.policy")[0] == 1
    assert diff(repository, "git:main:policies/top.policy", "git:main~1:policies/top.policy")[0] == 0


def test_whole_directories(repository: Path) -> None:
    code, out, _ = diff(repository, "--against", "git:main", "policies")
    assert code == 1
    assert out.endswith("4 policies compared: 2 looser, 1 equivalent, 1 new\n")
    assert "main:policies/new.policy -> policies/new.policy\n  new: there is nothing to compare it with\n" in out
    (repository / "policies" / "tools.policy").unlink()
    (repository / "policies" / "top.policy").unlink()
    code, out, _ = diff(repository, "--against", "git:main", "policies")
    assert code == 1
    assert out.endswith("4 policies compared: 1 looser, 2 removed, 1 new\n")


def test_what_had_errors_then_is_told_as_check_tells_it(repository: Path) -> None:
    (repository / "policies" / "base.policy").write_text(BASE.replace("llm_calls", "llm_call"), encoding="utf-8")
    git(repository, "commit", "-q", "-a", "-m", "wrong")
    (repository / "policies" / "base.policy").write_text(BASE, encoding="utf-8")
    code, out, err = diff(repository, "--against", "git:main", "policies/top.policy")
    assert (code, err) == (2, "")
    assert out.startswith("error[P")
    assert " --> main:policies/base.policy:4:3\n" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--against", "git:nowhere", "policies"), "git knows no revision `nowhere` here"),
        (("--against", "git:", "policies"), "`git:` names no revision"),
        (("--against", "git:--output=x", "policies"), "`git:--output=x` names no revision"),
        (("git:main", "policies/top.policy"), "`git:main` names no file: write `git:main:PATH`"),
        (("--against", "git:main", "git:main:policies/top.policy"), "with --against a file is named as it is now"),
        (("policies/top.policy",), "there is one file: name the old one and the new one"),
        (("--against", "git:main", "."), ""),
    ],
)
def test_what_git_or_the_command_line_does_not_give(repository: Path, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = diff(repository, *arguments)
    if not says:
        assert code == 1
        return
    assert (code, out) == (2, "")
    assert err.startswith(f"policy diff: {says}")
    assert "Traceback" not in err
    assert not (repository / "x").exists()


def test_without_git_or_outside_of_a_repository(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    code, _, err = diff(repository, "--against", "git:main", "policies", path="/nowhere")
    assert (code, err) == (2, "policy diff: the program `git` is not installed, or not on the PATH\n")
    outside = tmp_path_factory.mktemp("outside")
    (outside / "a.policy").write_text(BASE, encoding="utf-8")
    code, _, err = diff(outside, "--against", "git:main", "a.policy")
    assert code == 2
    assert "is not in a git repository" in err


def test_names_do_not_move_the_cursor(folder: Path) -> None:
    text = OLD + 'tool "a" deny "\\u{1b}[31mNo"\n'
    (folder / "new\x1b[2J.policy").write_text(text, encoding="utf-8")
    _, out, err = diff(folder, "old.policy", "new\x1b[2J.policy")
    assert "\x1b" not in out + err


def test_hostile_files(folder: Path) -> None:
    for name, data in (("nul", b"\0\0"), ("utf16", b"\xff\xfea"), ("large", b"#" * (2 << 20)), ("empty", b"")):
        (folder / name).write_bytes(data)
        code, out, err = diff(folder, "old.policy", name)
        assert code == 2
        assert out.startswith("error[P")
        assert err == ""
