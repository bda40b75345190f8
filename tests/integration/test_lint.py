"""``policy lint`` as a process and as a library: settings, levels, formats, the cache, several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spent import spent

from policy_lang.catalogue import find
from policy_lang.linting import Linter
from policy_lang.rules import RULES, Entry

ROOT = Path(__file__).resolve().parents[2]

CLEAN = 'policy "fine" lang 1\nlimits {\n  llm_calls  20  then finalize\n}\n'
PRICED = f'{CLEAN}prices {{\n  "large-1"  input $2  output $8  per 1M\n}}\n'
"""One note: P354."""
UNUSED = f"{CLEAN}let most = 20\n"
"""One warning: P319."""


def policy(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, encoding="utf-8")


def codes(folder: Path, name: str = "a.policy", **options: object) -> list[str]:
    return [finding.code for finding in Linter(**options)(str(folder / name))]  # type: ignore[arg-type]


# ---- what it shows, and exit codes


def test_a_clean_file(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(CLEAN)
    done = policy("lint", "a.policy", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "checked 1 file, nothing found\n", "")


@pytest.mark.parametrize(
    ("text", "level", "code"),
    [
        (PRICED, None, 0),
        (PRICED, "note", 1),
        (UNUSED, None, 1),
        (UNUSED, "error", 0),
        (f"{CLEAN}let most = \n", "error", 1),
    ],
)
def test_the_exit_code_follows_the_fail_level(text: str, level: str | None, code: int, tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(text)
    arguments = ["--fail-level", level] if level else []
    assert policy("lint", "a.policy", *arguments, cwd=tmp_path).returncode == code


def test_a_note_is_shown_as_one(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(PRICED)
    done = policy("lint", "a.policy", cwd=tmp_path)
    assert done.stdout.startswith("note[P354]: these prices")
    assert "\nchecked 1 file, found 1 note\n" in done.stdout


def test_check_does_not_run_what_only_lint_has(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(f"{PRICED}let most = 20\n")
    assert policy("check", "--format", "concise", "a.policy", cwd=tmp_path).stdout.count("P3") == 1
    assert policy("lint", "--format", "concise", "a.policy", cwd=tmp_path).stdout.count("P3") == 2


def test_without_a_name_it_looks_at_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(UNUSED)
    assert policy("lint", cwd=tmp_path).returncode == 1
    assert policy("check", "--format", "concise", cwd=tmp_path).stdout.startswith("a.policy:5:5: warning[P319]")


def test_a_missing_file_and_an_empty_folder(tmp_path: Path) -> None:
    assert policy("lint", "nowhere.policy", cwd=tmp_path).returncode == 2
    done = policy("lint", ".", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "policy lint: no *.policy files in .\n")


# ---- suppressions


def test_an_accepted_finding_is_silent(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(PRICED.replace("prices", "# policy: allow P354 only counted\nprices"))
    assert codes(tmp_path) == []


def test_check_does_not_call_a_suppression_of_lint_unused(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(PRICED.replace("prices", "# policy: allow P354 only counted\nprices"))
    assert policy("check", "a.policy", cwd=tmp_path).returncode == 0


def test_a_suppression_of_a_code_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(CLEAN.replace("limits", "# policy: allow P999 why not\nlimits"))
    done = policy("check", "--format", "concise", "a.policy", cwd=tmp_path)
    assert "warning[P900]: no finding has the code P999; remove it" in done.stdout


def test_what_settings_keep_cannot_be_silenced(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(PRICED.replace("prices", "# policy: allow P354 only counted\nprices"))
    (tmp_path / "policy.toml").write_text('[lint]\nno_allow = ["P354"]\n')
    (finding,) = Linter()(str(tmp_path / "a.policy"))
    assert (finding.code, finding.secondary[-1].text) == ("P354", "the settings let nobody silence this")


# ---- settings

PROJECT = (
    '[project]\nname = "x"\n\n[tool.policy.lint]\ntools = ["search_web"]\n\n[tool.policy.lint.levels]\nP354 = "error"\n'
)


def test_levels(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(f"{PRICED}let most = 20\n")
    (tmp_path / "policy.toml").write_text('[lint.levels]\nP354 = "error"\nP319 = "off"\n')
    found = Linter()(str(tmp_path / "a.policy"))
    assert [(finding.code, finding.severity) for finding in found] == [("P354", "error")]


def test_an_error_keeps_its_level(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text('policy "a" lang 1\nlimits {\n  cost  $2\n}\n')
    (tmp_path / "policy.toml").write_text('[lint.levels]\nP325 = "off"\n')
    found = Linter()(str(tmp_path / "a.policy"))
    assert [finding.code for finding in found] == ["P410", "P325"]
    assert found[0].message == "`P325` is an error, which no setting changes"


def test_the_project_file_is_read_too(tmp_path: Path) -> None:
    inner = tmp_path / "agents"
    inner.mkdir()
    (inner / "a.policy").write_text(f'{PRICED}tool "serch_web"  deny\n')
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    found = Linter()(str(inner / "a.policy"))
    assert [(finding.code, finding.severity) for finding in found] == [("P354", "error"), ("P317", "warning")]
    assert found[1].help == "did you mean `search_web`?"


def test_a_project_file_without_the_table_is_passed_by(tmp_path: Path) -> None:
    inner = tmp_path / "agents"
    inner.mkdir()
    (inner / "a.policy").write_text(PRICED)
    (inner / "pyproject.toml").write_text("this is = no [ TOML")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    assert [finding.severity for finding in Linter()(str(inner / "a.policy"))] == ["error"]


def test_nothing_is_sought_outside_of_a_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repository"
    (inner / ".git").mkdir(parents=True)
    (inner / "a.policy").write_text(PRICED)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    assert [finding.severity for finding in Linter()(str(inner / "a.policy"))] == ["note"]


def test_rules_are_ignored_by_path(tmp_path: Path) -> None:
    (tmp_path / "legacy" / "deep").mkdir(parents=True)
    (tmp_path / "a.policy").write_text(UNUSED)
    (tmp_path / "legacy" / "deep" / "a.policy").write_text(UNUSED)
    (tmp_path / "policy.toml").write_text('[lint.ignore]\n"legacy/*" = ["P319"]\n')
    assert codes(tmp_path) == ["P319"]
    assert codes(tmp_path / "legacy" / "deep") == []


def test_declared_clients(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(f"{CLEAN}on llm_failure *  retry 2 then fallback smal then stop\n")
    assert codes(tmp_path) == []
    (tmp_path / "policy.toml").write_text('[lint]\nclients = ["small"]\n')
    assert codes(tmp_path) == ["P306"]
    assert codes(tmp_path, clients=["smal"]) == [], "the command line counts before settings"
    (tmp_path / "policy.toml").write_text("[lint]\n")
    assert codes(tmp_path) == [], "a file about rules alone says nothing of clients"


SETTINGS_MISTAKES = [
    ('[lint]\ntool = ["a"]\n', "2:1", "unknown setting `tool`", "did you mean `tools`?"),
    ('[lint]\ntools = "a"\n', "2:9", "`tools` takes a list of texts", 'write it as in `["one", "two"]`'),
    ('[lint.levels]\nP355 = "of"\n', "2:8", "a level is `off`, `note`, `warning` or `error`", "did you mean `off`?"),
    ('[lint.levels]\nP391 = "off"\n', "2:1", "no finding has the code `P391`", "did you mean `P301`?"),
    ('[lint]\nlevels = "off"\n', "2:10", "`levels` is a table", "write `[lint.levels]`"),
    ('[lint.ignore]\n"x/*" = ["P201"]\n', "2:10", "`P201` is an error, which no setting changes", "remove it"),
    ("[[lint.levels]]\n", "1:3", "`levels` is a table", "write `[lint.levels]`"),
    ('[lint]\nhost = ["vetto"]\n', "2:9", "unknown ability `vetto` of a host", "did you mean `veto`?"),
    (
        '[lint]\nhost = [\n  "veto", # "gaet"\n  "gaet"]\n',
        "4:3",
        "unknown ability `gaet` of a host",
        "did you mean `gate`?",
    ),
    ('[lint]\nhost = "langchian"\n', "2:8", "unknown host `langchian`", "did you mean `langchain`?"),
    ('[lint]\nhost = "veto"\n', "2:8", "unknown host `veto`", 'that is an ability: write `["veto"]`'),
    ("[lint]\nhost = 5\n", "2:8", "`host` takes a name, or a list of texts", 'write it as in `"langchain"`'),
    (
        '[lint]\nhost = ["openai"]\n',
        "2:9",
        "unknown ability `openai` of a host",
        "a host that is known by its name stands alone, without a list",
    ),
    ("[lint]\nno_allow=[ 'P319', 'P36' ]\n", "2:20", "no finding has the code `P36`", "did you mean `P326`?"),
    ("[lint]\ntools = 5 # five\n", "2:9", "`tools` takes a list of texts", 'write it as in `["one", "two"]`'),
    ("[lint]\ntools = [\n", "2:10", "not valid TOML: invalid value", ""),
]


@pytest.mark.parametrize(("text", "place", "message", "help"), SETTINGS_MISTAKES)
def test_a_mistake_in_settings_is_a_finding(text: str, place: str, message: str, help: str, tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(CLEAN)
    (tmp_path / "policy.toml").write_text(text)
    (finding,) = Linter()(str(tmp_path / "a.policy"))
    _, line, column = finding.position
    assert (f"{line}:{column}", finding.message) == (place, message)
    assert finding.help == help
    assert finding.position[0].endswith("policy.toml")


def test_a_mistake_in_settings_is_told_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.policy").write_text(CLEAN)
    (tmp_path / "policy.toml").write_text('[lint]\ntool = ["a"]\n')
    done = policy("lint", ".", "--format", "concise", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "policy.toml:2:1: error[P410]: unknown setting `tool`; did you mean `tools`?",
        "checked 2 files, found 1 error",
    ]


def test_a_project_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(f"{PRICED}on llm_failure *  fallback anybody then stop\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").write_text(PROJECT)
    found = Linter(file=str(tmp_path / "other" / "pyproject.toml"))(str(tmp_path / "a.policy"))
    assert [(finding.code, finding.severity) for finding in found] == [("P354", "error")]


def test_a_table_of_another_name_is_an_error_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(CLEAN)
    (tmp_path / "policy.toml").write_text("[lnt]\n")
    done = policy("lint", "a.policy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "policy lint: policy.toml:1: unknown setting `lnt`; did you mean `lint`?\n",
    )


def test_tools_and_host_by_option(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(f'{CLEAN}tool "shell"  deny\n')
    assert codes(tmp_path, tools=["shell"]) == []
    assert codes(tmp_path, tools=["search"]) == ["P317"]
    done = policy("lint", "--host", "veto,strip", "--tools", "shell", "--format", "concise", "a.policy", cwd=tmp_path)
    assert "warning[P337]: the host cannot honour this `deny`: it has no `gate`" in done.stdout
    wrong = policy("lint", "--host", "vetto", "a.policy", cwd=tmp_path)
    assert (wrong.returncode, "did you mean `veto`?" in wrong.stderr) == (2, True)


def test_a_host_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(f'{CLEAN}tool "shell"  timeout 5s\n')
    done = policy("lint", "--host", "litellm,veto", "a.policy", cwd=tmp_path)
    assert done.stderr.endswith(
        "unknown ability `litellm` of a host; a host that is known by its name stands alone, without a list\n"
    )
    done = policy("lint", "--host", "langchian", "a.policy", cwd=tmp_path)
    assert done.stderr.endswith("unknown host `langchian`; did you mean `langchain`?\n")
    assert policy("lint", "--host", "langchain", "a.policy", cwd=tmp_path).returncode == 0
    by_option = policy("lint", "--host", "gateway", "a.policy", cwd=tmp_path)
    assert "P337" in by_option.stdout
    (tmp_path / "policy.toml").write_text('[lint]\nhost = "gateway"\n')
    assert policy("lint", "a.policy", cwd=tmp_path).stdout == by_option.stdout
    assert "P337" not in policy("lint", "--host", "own", "a.policy", cwd=tmp_path).stdout


# ---- fixes


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_fix_that_removes_a_line_removes_its_end_too(end: str, tmp_path: Path) -> None:
    text = UNUSED.replace("\n", end)
    (tmp_path / "a.policy").write_text(text, newline="")
    (finding,) = Linter()(str(tmp_path / "a.policy"))
    (edit,) = finding.fix
    source = finding.primary.span.source.text
    assert source[: edit.span.start] + edit.replacement + source[edit.span.end :] == CLEAN.replace("\n", end)


# ---- many files


def tree(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"p{number:03}.policy").write_text(
            (UNUSED if number % 7 == 0 else CLEAN).replace("fine", f"p{number}")
        )


def test_processes_change_nothing(tmp_path: Path) -> None:
    tree(tmp_path, 60)
    alone = policy("lint", ".", "--jobs", "1", "--no-cache", cwd=tmp_path)
    both = policy("lint", ".", "--jobs", "2", "--no-cache", cwd=tmp_path)
    assert alone.stdout == both.stdout
    assert (alone.returncode, both.returncode) == (1, 1)
    assert alone.stdout.count("warning[P319]") == 9


@pytest.mark.parametrize("jobs", ["0", "x", "-1"])
def test_a_number_of_processes_that_is_none(jobs: str, tmp_path: Path) -> None:
    done = policy("lint", ".", f"--jobs={jobs}", cwd=tmp_path)
    assert (done.returncode, "no number of processes" in done.stderr) == (2, True)


# ---- the cache


def kept(folder: Path) -> dict[str, object]:
    data = json.loads((folder / ".policy_cache" / "findings.json").read_text())
    entries: dict[str, object] = data["entries"]
    return entries


def test_a_second_run_says_the_same(tmp_path: Path) -> None:
    tree(tmp_path, 20)
    first, second = policy("lint", ".", cwd=tmp_path), policy("lint", ".", cwd=tmp_path)
    assert (first.stdout, first.returncode) == (second.stdout, second.returncode)
    assert len(kept(tmp_path)) == 20
    assert (tmp_path / ".policy_cache" / ".gitignore").read_text() == "*\n"


def test_few_files_leave_no_cache(tmp_path: Path) -> None:
    tree(tmp_path, 3)
    policy("lint", ".", cwd=tmp_path)
    assert not (tmp_path / ".policy_cache").exists()


def test_no_cache_leaves_none(tmp_path: Path) -> None:
    tree(tmp_path, 12)
    policy("lint", ".", "--no-cache", cwd=tmp_path)
    assert not (tmp_path / ".policy_cache").exists()


def test_what_is_kept_is_used(tmp_path: Path) -> None:
    """A wrong entry is believed: that shows that nothing was looked at."""
    tree(tmp_path, 12)
    policy("lint", ".", cwd=tmp_path)
    place = tmp_path / ".policy_cache" / "findings.json"
    data = json.loads(place.read_text())
    data["entries"]["p000.policy"]["found"] = []
    place.write_text(json.dumps(data))
    assert "p000.policy" not in policy("lint", ".", cwd=tmp_path).stdout


def test_what_has_changed_is_looked_at_anew(tmp_path: Path) -> None:
    tree(tmp_path, 12)
    (tmp_path / "base.policy").write_text('policy "base" lang 1\nlimits {\n  llm_calls  20\n}\n')
    (tmp_path / "p001.policy").write_text('policy "a" lang 1\nextends "base.policy"\nlimits {\n  llm_calls  10\n}\n')
    assert "p001" not in policy("lint", ".", cwd=tmp_path).stdout
    (tmp_path / "base.policy").write_text('policy "base" lang 1\nlimits {\n  llm_calls  5\n}\n')
    assert "p001.policy:4:14" in policy("lint", ".", cwd=tmp_path).stdout, "a file it extends is another"
    (tmp_path / "policy.toml").write_text('[lint.levels]\nP319 = "off"\n')
    assert "P319" not in policy("lint", ".", cwd=tmp_path).stdout, "settings are others"
    assert "P337" in policy("lint", ".", "--host", "veto", cwd=tmp_path).stdout, "an option is another"


def test_files_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    tree(tmp_path, 14)
    policy("lint", ".", cwd=tmp_path)
    (tmp_path / "p001.policy").unlink()
    (tmp_path / "p002.policy").write_text(UNUSED)
    policy("lint", ".", cwd=tmp_path)
    assert len(kept(tmp_path)) == 13


def test_a_file_that_was_missing_is_found_later(tmp_path: Path) -> None:
    tree(tmp_path, 12)
    (tmp_path / "p001.policy").write_text('policy "a" lang 1\nextends "base.pol"\n')
    assert "P401" in policy("lint", ".", cwd=tmp_path).stdout
    (tmp_path / "base.pol").write_text(CLEAN)
    assert "P401" not in policy("lint", ".", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 1}', b"null", b"[" * 100_000, b'{"entries": 5}']
)
def test_a_broken_cache_is_as_good_as_none(content: bytes, tmp_path: Path) -> None:
    tree(tmp_path, 12)
    expected = policy("lint", ".", "--no-cache", cwd=tmp_path)
    (tmp_path / ".policy_cache").mkdir()
    (tmp_path / ".policy_cache" / "findings.json").write_bytes(content)
    done = policy("lint", ".", cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (expected.stdout, "", expected.returncode)
    assert len(kept(tmp_path)) == 12


@pytest.mark.parametrize("entry", [5, None, {"read": 5}, {"read": [7], "digest": "x"}, {"read": [], "digest": ""}])
def test_a_broken_entry_is_as_good_as_none(entry: object, tmp_path: Path) -> None:
    tree(tmp_path, 12)
    expected = policy("lint", ".", cwd=tmp_path)
    place = tmp_path / ".policy_cache" / "findings.json"
    data = json.loads(place.read_text())
    data["entries"]["p000.policy"] = entry
    place.write_text(json.dumps(data))
    done = policy("lint", ".", cwd=tmp_path)
    assert (done.stdout, done.stderr) == (expected.stdout, "")


def test_a_place_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    tree(tmp_path, 12)
    (tmp_path / "file").write_text("")
    done = policy("lint", ".", "--cache-dir", "file/cache", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")


# ---- the rules

DENIED = f"""{CLEAN}tool "shell_*"  deny
tool "shell_run"  timeout 20s
breaker "shell_run" {{
  trip   failures 3
  reset  never
}}
"""
PATTERNS = [("a*" * 95, "limit 3"), ("b*" * 95, "allow"), ("c?*" * 60, "deny")]
ONE_MAY = """limits {
  tokens  200k
}
agent "builder" {
  tool "shell_run"  allow
}
"""


def test_what_one_agent_may_use_is_not_called_useless(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(DENIED)
    assert codes(tmp_path) == ["P318", "P364"]
    (tmp_path / "a.policy").write_text(f"{DENIED}{ONE_MAY}")
    assert codes(tmp_path) == []


def test_an_agent_that_may_run_more_tools_reaches_what_the_policy_cannot(tmp_path: Path) -> None:
    text = CLEAN.replace("}", "  tool_calls  2 per run\n}")
    text += 'tool "search"  limit 5\nbreaker "search" {\n  trip   failures 4\n  reset  never\n}\n'
    agent = 'agent "explore" {\n  override tool_calls  9 per run\n}\n'
    pool = CLEAN.replace("}", "  tool_calls  2\n}")
    (tmp_path / "a.policy").write_text(text)
    assert codes(tmp_path) == ["P359", "P351"]
    (tmp_path / "a.policy").write_text(f"{text}{agent}agents {{\n  children  1\n  depth     1\n}}\n")
    assert codes(tmp_path) == []
    (tmp_path / "a.policy").write_text(text.replace("2 per run", "2").replace(CLEAN, pool))
    assert codes(tmp_path) == ["P359", "P351"], "of a pool agents have no more"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_has_the_level_of_its_table(rule: Entry, tmp_path: Path) -> None:
    page = find(rule.code)
    assert page is not None
    for name, text in page.example("Bad").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = Linter(seconds=20.0 if rule.code == "P331" else None)(str(tmp_path / "main.policy"))
    assert rule.level in {finding.severity for finding in found if finding.code == rule.code}


def test_no_patterns_make_it_take_long(tmp_path: Path) -> None:
    """Each pair of patterns is compared, and each may stand in many places of the other."""
    rules = [f'tool "{sign}{n}"  {clause}' for n in range(40) for sign, clause in PATTERNS]
    (tmp_path / "a.policy").write_text("\n".join([CLEAN, *rules, ""]))
    assert spent(lambda: Linter()(str(tmp_path / "a.policy"))) < 60, "seconds; it takes half of one"


DEAD = CLEAN.replace("}", "  tool_iterations  30\n}")
"""A limit of rounds that the calls always reach first."""


def test_a_dead_limit_is_found_where_all_states_are_visited(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text(DEAD.replace("30", "19  then finalize"))
    assert codes(tmp_path) == []
    done = policy("lint", "--explore-seconds", "30", "--format", "concise", "a.policy", cwd=tmp_path)
    assert "a.policy:4:20: warning[P331]: the limit of `tool_iterations` decides nothing" in done.stdout
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('somebody else')")
    again = subprocess.run(
        [str(Path(sys.executable).parent / "policy"), "lint", "--explore-seconds", "30", "a.policy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "warning[P331]" in again.stdout, "a folder of that name is not ours"


def test_a_search_that_is_cut_claims_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text((ROOT / "benchmarks" / "sample.policy").read_text())
    (finding,) = Linter(seconds=0.1)(str(tmp_path / "a.policy"))
    assert (finding.code, finding.severity) == ("P331", "note")
    assert finding.message.startswith("not every state of this policy was visited")


HEAVY = (
    "lark",
    "pydantic",
    "msgspec",
    "tomllib",
    "hashlib",
    "xml",
    "multiprocessing",
    "subprocess",
    "engine.core.policy",
)


def test_a_clean_file_is_linted_with_little(tmp_path: Path) -> None:
    """What is imported decides how long one file takes."""
    (tmp_path / "a.policy").write_text((ROOT / "benchmarks" / "sample.policy").read_text())
    program = "import sys; from policy_lang.cli import main; print(main(['lint', 'a.policy']), *sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    code, *modules = done.stdout.split("\n")[1].split(" ")
    assert code == "0"
    assert [name for name in HEAVY if name in modules] == []
    assert "policy_lang.rules.p309_no_agents" not in modules, "there are no agents in it"


def test_rules_have_levels_that_exist() -> None:
    assert {rule.level for rule in RULES} == {"warning", "note"}


def test_a_broken_file_gets_no_advice_about_what_is_absent(tmp_path: Path) -> None:
    (tmp_path / "a.policy").write_text('policy "a" lang 1\nlimits {\n  llm_cals  20\n  tool_calls  5\n}\n')
    assert codes(tmp_path) == ["P201"]
