"""What statements about trees mean: defaults, agents' blocks, what they inherit, and where findings begin and end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.core.vocabulary import POOLABLE, RESOURCES
from policy_lang import check, checks, load, loads

HEAD = 'policy "test" lang 1\n'


def codes_of(text: str) -> list[str]:
    return [finding.code for finding in checks(HEAD + text)[1]]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.policy").write_text(HEAD + text, encoding="utf-8")


def limits(block: str) -> str:
    return f"limits {{\n{block}\n}}\n"


def agents(block: str) -> str:
    return f"agents {{\n{block}\n}}\n"


def agent(block: str, name: str = "a") -> str:
    return f'agent "{name}" {{\n{block}\n}}\n'


# ---- what is written


def test_the_shape_of_a_tree() -> None:
    data, _ = checks(HEAD + agents("locked children 4\ndepth unlimited\nshare tokens\ncarve cost, tool_calls"))
    assert data is not None
    place = {"file": "<string>", "line": 3}
    assert data["agents"] == {
        "limits": [
            {"resource": "children", "max": 4, "locked": True, "origin": place},
            {"resource": "depth", "max": None, "locked": False, "origin": {"file": "<string>", "line": 4}},
        ],
        "share": ["tokens"],
        "carve": ["cost", "tool_calls"],
        "origin": {"file": "<string>", "line": 2},
    }
    assert data["agent"] == []


def test_a_file_that_says_nothing_of_trees_has_none() -> None:
    data, _ = checks(HEAD)
    assert data is not None
    assert (data["agents"], data["agent"]) == (None, [])


def test_ask_and_its_defaults() -> None:
    policy = loads(
        HEAD + "let more = 5\n" + limits("tool_calls 9 then ask up to more times 2\ntool_iterations 3 then ask")
    )
    steps = [limit.then[0].model_dump() for limit in policy.limits]
    assert steps == [{"do": "ask", "up_to": 5, "times": 2}, {"do": "ask", "up_to": None, "times": 1}]


def test_counting_approvals() -> None:
    policy = loads(HEAD + limits("wall 5m counting approvals\nwall 2m per run"))
    assert [limit.counting_approvals for limit in policy.limits] == [True, False]


def test_names_in_blocks_count_as_used() -> None:
    text = 'let few = 3\nlet words = "Report."\nlet more = 2\n'
    text += agents("children few") + agent("tool_calls few then ask up to more\nllm_calls 2 then finalize words")
    assert codes_of(text) == []


@pytest.mark.parametrize("resource", RESOURCES)
def test_what_can_be_shared(resource: str) -> None:
    text = agents(f"share {resource}") + limits("\n".join(f"{r} {_some(r)} per subtree" for r in POOLABLE))
    text += 'prices {\n"m" input $1 output $1 per 1M\n}\n'
    assert codes_of(text) == ([] if resource in POOLABLE else ["P209"])


def _some(resource: str) -> str:
    return "$9" if resource == "cost" else "9"


# ---- boundaries of findings


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (limits("tokens 10k") + agent("tokens 10k"), []),
        (limits("tokens 10k") + agent("tokens 10_001"), ["P308"]),
        (limits("tokens 10k then extend 1 once") + agent("tokens 10_001"), []),
        (limits("tokens 10k then ask up to 1") + agent("tokens 10_001"), []),
        (limits("tokens 10k per run") + agent("tokens 20k per subtree"), []),
        (limits("tokens 10k") + agent("tokens unlimited"), []),
        (limits("llm_calls 9") + agents("children 1"), []),
        (limits("llm_calls 9") + agents("children unlimited"), ["P333"]),
        (limits("llm_calls 9") + agents("children 3\ndepth unlimited"), ["P333"]),
        (limits("llm_calls 9") + agents("depth 0"), []),
        (limits("llm_calls 9") + agents("live_children 2"), ["P333"]),
        (limits("llm_calls 9\nwall 5m") + agents("depth 1"), ["P333"]),
        (limits("llm_calls 9\nllm_calls 90 per subtree") + agents("depth 1"), []),
        (limits("llm_calls 9\ntool_calls 90") + agents("depth 1"), []),
        (limits("llm_calls 9\ntool_calls 90 per run") + agents("depth 1"), ["P333"]),
        (limits("llm_calls 9\ntokens 1M per thread") + agents("depth 1"), []),
        (limits("llm_calls unlimited") + agents("depth 1"), []),
        (limits("llm_calls 9") + agent("llm_calls 3"), ["P333"]),
        (agents("depth 0") + agent("llm_calls 3"), ["P309"]),
        (agents("live_children 0") + agent("llm_calls 3"), ["P309"]),
        (agents("depth 0"), []),
        (agents("concurrent 1"), []),
        (agents("concurrent 0"), ["P336"]),
        (limits("tool_calls 0 then ask up to 1"), []),
        (limits("tool_calls 0 then ask"), ["P207"]),
        (limits("tool_calls unlimited then ask"), []),
        (limits("tokens 9k per node") + agents("share tokens"), ["P345"]),
        (limits("tokens 9k per thread") + agents("share tokens"), []),
        (agents("carve tokens") + agent("tokens 9k"), []),
        (agents("carve tokens") + agent("tokens 9k per node"), ["P345"]),
        (limits("tokens 9k") + agents("carve tokens") + agent("tokens 9k per node"), ["P346"]),
        (limits("tokens 9k") + agents("carve tokens") + agent("tokens unlimited"), ["P346"]),
    ],
)
def test_what_is_found(text: str, codes: list[str]) -> None:
    assert codes_of(text) == codes


@pytest.mark.parametrize(
    ("policy", "block", "codes"),
    [
        ("tool_iterations 5 then finalize\nllm_calls 9 then finalize", "llm_calls 2 then finalize", []),
        ("tool_iterations 5 then finalize\nllm_calls 9 then finalize", "llm_calls 5", ["P301"]),
        ("tool_iterations 5 then finalize\nllm_calls 9 then finalize", "llm_calls 6", []),
        ("llm_calls 9 then finalize", "tool_iterations 9 then finalize", ["P302"]),
        ("llm_calls 9 then finalize", "tool_iterations 8 then finalize", []),
        ("llm_calls 9", "tool_iterations 9 then finalize", ["P301"]),
        ("tokens 9k", "at 50% of tokens warn", ["P310"]),
        ("tokens 9k per run", "at 50% of tokens warn", []),
        ("wall 10s", "on llm_failure timeout retry 2 every 6s..6s", ["P314"]),
        ("llm_attempts 2", "on llm_failure timeout retry 2 every 1s..1s", ["P326"]),
        ("llm_attempts 9", "llm_attempts 2\non llm_failure timeout retry 2 every 1s..1s", ["P326"]),
    ],
)
def test_a_block_is_held_against_what_it_inherits(policy: str, block: str, codes: list[str]) -> None:
    text = limits(f"{policy}\ntool_calls 9") + agent(block)
    assert codes_of(text) == codes


@pytest.mark.parametrize(
    ("policy", "block", "codes"),
    [
        ("llm_calls 9", "llm_calls 9", []),
        ("llm_calls 9", "llm_calls 10", ["P338"]),
        ("llm_calls 9", "override llm_calls 10", []),
        ("llm_calls 9", "override llm_calls 9", ["P315"]),
        ("locked llm_calls 9", "llm_calls 8", []),
        ("locked llm_calls 9", "override llm_calls 10", ["P316"]),
        ("llm_attempts 9", "llm_attempts 9 then ask up to 1", ["P338"]),
        ("wall 5m per run counting approvals", "wall 5m per run", ["P338"]),
        ("wall 5m per run", "wall 5m per run counting approvals", []),
        ("attempt_wall 9s", "attempt_wall 10s", ["P338"]),
        ("tokens 9k", "tokens 8k", []),
        ("tokens 9k", "override tokens 8k", ["P315"]),
        ("tool_iterations unlimited", "tool_iterations 99", []),
    ],
)
def test_override_and_locked_inside_a_file(policy: str, block: str, codes: list[str]) -> None:
    assert codes_of(limits(f"{policy}\ntool_calls 9") + agent(block)) == codes


# ---- several files

BASE = (
    limits("llm_calls 20\nlocked tool_calls 50")
    + agents("locked children 4\ndepth 2\nshare tool_calls")
    + agent('llm_calls 6\nlocked tokens 9k\non llm_failure timeout stop\ntool "x" deny\nat 50% of tokens warn')
)


def _main(folder: Path, text: str, base: str = BASE) -> tuple[dict[str, Any] | None, list[str]]:
    write(folder, main='extends "base.policy"\n' + text, base=base)
    data, findings = check(folder / "main.policy")
    return data, [finding.code for finding in findings]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (agents("depth 1"), []),
        (agents("depth 2"), []),
        (agents("depth 3"), ["P338"]),
        (agents("override depth 3"), []),
        (agents("override depth 1"), ["P315"]),
        (agents("concurrent 99"), []),
        (agents("override concurrent 99"), ["P315"]),
        (agents("children 4"), []),
        (agents("children 3"), ["P316"]),
        (agent("llm_calls 5"), []),
        (agent("llm_calls 7"), ["P338"]),
        (agent("override llm_calls 7"), []),
        (agent("override llm_calls 70"), []),
        (agent("tokens 9k"), []),
        (agent("tokens 8k"), ["P316"]),
        (agent("llm_calls 20", "b"), []),
        (agent("llm_calls 21", "b"), ["P338"]),
        (limits("llm_calls 3"), []),
    ],
)
def test_inheritance(tmp_path: Path, text: str, codes: list[str]) -> None:
    assert _main(tmp_path, text)[1] == codes


def test_a_base_is_not_held_against_what_extends_it(tmp_path: Path) -> None:
    data, codes = _main(tmp_path, limits("llm_calls 3"))
    assert codes == []
    assert data is not None
    assert data["agent"][0]["limits"][0]["max"] == 6


def test_blocks_of_the_same_agent_are_one(tmp_path: Path) -> None:
    block = 'llm_calls 5 then finalize\non llm_failure timeout, network retry 1\ntool "y" deny\nat 50% of tokens warn'
    write(tmp_path, main='extends "base.policy"\n' + agents("carve tool_calls") + agent(block), base=BASE)
    policy = load(tmp_path / "main.policy")
    (rules,) = policy.agent
    assert [(limit.id, limit.max) for limit in rules.limits] == [("llm_calls", 5), ("tokens", 9_000)]
    assert [(rule.reasons, rule.then[0].do) for rule in rules.failures] == [(("timeout", "network"), "retry")]
    assert [(rule.glob, rule.base) for rule in rules.tools] == [("x", 1), ("y", 0)]
    assert len(rules.thresholds) == 1
    assert rules.origin is not None
    assert rules.origin.file.endswith("main.policy")
    assert policy.agents is not None
    assert (policy.agents.share, policy.agents.carve) == ((), ("tool_calls",))


def test_an_exception_lifts_what_its_own_file_denies_only(tmp_path: Path) -> None:
    base = 'tool "db_*" deny\n' + agent('tool "db_read" allow')
    assert _main(tmp_path, "", base)[1] == []
    assert _main(tmp_path, agent('tool "db_read" allow'), 'tool "db_*" deny\n')[1] == ["P342"]


def test_an_override_is_not_called_idle_where_the_base_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, main='extends "gone.policy"\n' + agents("override depth 9") + agent("override llm_calls 9"))
    _, findings = check(tmp_path / "main.policy")
    assert [finding.code for finding in findings] == ["P401"]


def test_the_policy_of_an_agent_is_that_of_its_block(tmp_path: Path) -> None:
    write(tmp_path, main='extends "base.policy"\n', base=BASE)
    child = load(tmp_path / "main.policy").of_agent("a")
    assert [(limit.id, limit.max) for limit in child.limits] == [("llm_calls", 6), ("tokens", 9_000)]
