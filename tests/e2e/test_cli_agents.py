"""``policy run`` with agents, as a user runs it: a registry, what is printed of a tree, and a user's mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, ScriptedUsage, When
from policy_lang.cli import main

POLICY = """\
policy "desk" lang 1

limits {
  llm_calls  12 per subtree   then finalize
  tokens     20k reserve 4k   then finalize
}

agents {
  depth       2
  concurrent  1
}

agent "explore" {
  llm_calls  2                then stop
}
"""

SETTINGS = """\
[clients.main]
wire = "openai"
model = "main"
base_url = "URL"

[clients.small]
wire = "openai"
model = "small"
base_url = "URL"

[agents.explore]
description = "finds its way in the code"
instructions_file = "prompts/explore.md"
client = "small"
tools = ["search.py:find"]
max_output = 300

[agents.review]
description = "reads with care"
client = "small"
"""

SEARCH = '''\
def find(word: str) -> list[str]:
    """Find a word."""
    return [f"{word}.py:1"]


def other(word: str) -> str:
    """Something else."""
    return word
'''

AGENTS = """\
from engine import Agent

from search import find

explore = Agent("explore", "finds its way in the code", instructions="You read code.", client="small", tools=[find])
"""

USAGE = ScriptedUsage(input=100, output=10)


def to(agent: str, task: str) -> ScriptedCall:
    return ScriptedCall("delegate", {"agent": agent, "task": task})


def reply(model: str, when: dict[str, Any] | None = None, **said: Any) -> ScriptedReply:
    return ScriptedReply(when=When(model=model, **(when or {})), times="always", usage=USAGE, **said)


SCRIPT = Script(
    (
        reply(
            "main", {"results_below": 1}, calls=(to("explore", "Map it."), to("explore", "?"), to("review", "Look."))
        ),
        reply("main", text="It is in upload.py."),
        reply("small", {"contains": "Map"}, text="Mapped."),
        reply("small", {"contains": "Check"}, text="It is fine."),
        reply("small", {"contains": "Look"}, calls=(to("review", "Check it."),)),
        reply("small", {"tool": "find"}, tool="find", args={"word": "x"}),
        reply("small", text="Reviewed."),
    )
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    Path("prompts/explore.md").write_text("You read code.\n")
    Path("desk.policy").write_text(POLICY)
    Path("search.py").write_text(SEARCH)
    Path("agents.py").write_text(AGENTS)
    return tmp_path


def settings(text: str = SETTINGS, url: str = "http://127.0.0.1:9/v1") -> None:
    Path("policy.toml").write_text(text.replace("URL", url))


def run(*arguments: str, script: Script = SCRIPT, text: str = SETTINGS) -> tuple[int, list[Any]]:
    with Rehearsal(script) as server:
        settings(text, f"{server.url}/v1")
        code = main(["run", "desk.policy", "Where?", "--max-output", "300", *arguments])
        return code, list(server.ledger)


SHOWN = """\
run ID
call 1 to main
call 1 asks for delegate, delegate, delegate (100 in, 10 out)
tool 1.0 delegate {"agent":"explore","task":"Map it."}
tool 1.1 delegate {"agent":"explore","task":"?"}
tool 1.2 delegate {"agent":"review","task":"Look."}
  explore 1: call 1 to small
  explore 1: call 1 answers (100 in, 10 out)
child 1 ended completed
  explore 2: call 1 to small
tool 1.0 delegate ok: Mapped.
  explore 2: call 1 asks for find (100 in, 10 out)
  explore 2: tool 1.0 find {"word":"x"}
  explore 2: tool 1.0 find ok: ["x.py:1"]
  explore 2: call 2 to small
  explore 2: call 2 asks for find (100 in, 10 out)
  explore 2: tool 2.0 find {"word":"x"}
  explore 2: tool 2.0 find ok: ["x.py:1"]
child 2 ended incomplete
  review 3: call 1 to small
tool 1.1 delegate failed: The agent `explore` did not finish: \
the limit on llm_calls is reached (2 of 2 used, 0 left, limit o…
  review 3: call 1 asks for delegate (100 in, 10 out)
  review 3: tool 1.0 delegate {"agent":"review","task":"Check it."}
    review 3.1: call 1 to small
    review 3.1: call 1 answers (100 in, 10 out)
  review 3: child 3.1 ended completed
  review 3: tool 1.0 delegate ok: It is fine.
  review 3: call 2 to small
  review 3: call 2 answers (100 in, 10 out)
child 3 ended completed
tool 1.2 delegate ok: Reviewed.
call 2 to main
call 2 answers (100 in, 10 out)
completed
  decided  default: answer
  client   main
  limits   llm_calls per subtree  8 of 12
           tokens                 880 of 20,000
  used     llm_calls 2, llm_attempts 2, tool_iterations 1, tool_calls 3, input_tokens 200, output_tokens 20
  total    llm_calls 8, llm_attempts 8, tool_iterations 4, tool_calls 6, input_tokens 800, output_tokens 80
  agents   explore  2 runs, 3 calls, 2 tools, 330 tokens
                    1 completed  [default: answer]
                    1 incomplete: llm_calls  [desk.policy:14]
           review   2 runs, 3 calls, 1 tool, 330 tokens
                    2 completed  [default: answer]
  run      ID
"""


def test_a_tree_is_told_run_by_run_and_agent_by_agent(capsys: pytest.CaptureFixture[str]) -> None:
    code, seen = run()
    said = capsys.readouterr()
    assert (code, said.out) == (0, "It is in upload.py.\n")
    assert re.sub(r"\b[0-9a-f]{32}\b", "ID", said.err) == SHOWN
    explore = next(request.body for request in seen if "Map it." in str(request.body["messages"]))
    assert explore["messages"][0] == {"role": "system", "content": "You read code."}
    assert [tool["function"]["name"] for tool in explore["tools"]] == ["find", "delegate"]
    assert explore["max_tokens"] == 300


def test_json_has_the_runs_below(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json")[0] == 0
    said = capsys.readouterr()
    assert said.err == ""
    document = json.loads(said.out)
    top = document["run"]
    assert [
        (child["run"].removeprefix(top), child["agent"], child["parent"].removeprefix(top), child["status"])
        for child in document["children"]
    ] == [
        (".1", "explore", "", "completed"),
        (".2", "explore", "", "incomplete"),
        (".3.1", "review", ".3", "completed"),
        (".3", "review", "", "completed"),
    ]
    assert (document["children"][1]["reason"], document["children"][1]["because"]) == ("llm_calls", "desk.policy:14")
    assert document["children"][1]["used"]["llm_calls"] == 2
    assert (document["used"]["llm_calls"], document["total"]["llm_calls"]) == (2, 8)
    assert [(limit["limit"], limit["used"]) for limit in document["limits"]] == [
        ("llm_calls per subtree", 8),
        ("tokens", 880),
    ]


def test_agents_of_a_file_beside_those_of_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    text = SETTINGS.replace("[agents.explore]", "[agents.other]")
    assert run("--agents", "agents.py", text=text)[0] == 0
    shown = capsys.readouterr().err
    assert "  explore 1: call 1 to small\n" in shown
    assert "  explore 2: tool 1.0 find ok" in shown


def test_without_agents_the_policy_s_rules_for_them_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script((ScriptedReply(text="ok"),))
    code, seen = run("--model", "main", script=script, text=SETTINGS.partition("[agents")[0])
    assert code == 0
    assert "tools" not in seen[0].body
    assert capsys.readouterr().err.startswith(
        "policy run: the policy has rules for `explore`, and there are no agents: give --agents FILE.py, or tables "
        "[agents.NAME] in policy.toml\n"
    )


def after(line: str, more: str, text: str = SETTINGS) -> str:
    return text.replace(line, line + more)


EXPLORE = "[agents.explore]\n"
OWN_DELEGATE = "def delegate(x: str) -> str:\n    return x\n"


@pytest.mark.parametrize(
    ("text", "files", "arguments", "said"),
    [
        (
            SETTINGS.replace('client = "small"\ntools', 'client = "smal"\ntools'),
            {},
            [],
            "policy.toml:14: the agent `explore` names the client `smal`, and nothing says what it is (did you mean "
            "`small`?): give --model smal=openai:MODEL, or a table [clients.smal] in policy.toml",
        ),
        (
            SETTINGS.replace("prompts/explore.md", "prompts/none.md"),
            {},
            [],
            "policy.toml:13: the instructions of the agent `explore`: prompts/none.md: No such file or directory",
        ),
        (
            SETTINGS,
            {"prompts/explore.md": " \n"},
            [],
            "policy.toml:13: the instructions of the agent `explore`: prompts/explore.md is empty",
        ),
        (
            SETTINGS,
            {"prompts/explore.md": b"\xff"},
            [],
            "policy.toml:13: the instructions of the agent `explore`: prompts/explore.md is not UTF-8 text",
        ),
        (
            SETTINGS.replace("search.py:find", "search.py:fnid"),
            {},
            [],
            "policy.toml:15: the agent `explore`: search.py has no tool `fnid`; did you mean `find`?",
        ),
        (
            SETTINGS.replace("search.py:find", "serch.py"),
            {},
            [],
            "policy.toml:15: the agent `explore`: there is no file serch.py",
        ),
        (
            SETTINGS,
            {"search.py": "\n1 / 0\n"},
            [],
            "policy.toml:15: the agent `explore`: search.py:2: ZeroDivisionError: division by zero",
        ),
        (
            SETTINGS.replace('"search.py:find"', '"search.py:find", "search.py"'),
            {},
            [],
            "policy.toml:11: the agent `explore`: two tools are named `find`",
        ),
        (
            SETTINGS.replace("search.py:find", "search.py"),
            {"search.py": OWN_DELEGATE},
            [],
            "policy.toml:11: the agent `explore`: search.py:1: a tool is named `delegate`, by which models delegate to "
            "agents: give it another name",
        ),
        (
            SETTINGS,
            {"own.py": f"\n{OWN_DELEGATE}"},
            ["--tools", "own.py"],
            "own.py:2: a tool is named `delegate`, by which models delegate to agents: give it another name",
        ),
        (
            SETTINGS.replace("[agents.review]", '[agents."two words"]'),
            {},
            [],
            "policy.toml:18: `two words` cannot be an agent's name: use up to 64 letters, digits, `_` or `-`, a letter "
            "first",
        ),
        (
            SETTINGS,
            {},
            ["--agents", "agents.py"],
            "agents.py: another agent is named `explore`, at policy.toml:11: rename one",
        ),
        (SETTINGS, {}, ["--agents", "none.py"], "there is no file none.py"),
        (
            SETTINGS,
            {"a.py": "x = 1\n"},
            ["--agents", "a.py"],
            "a.py has no agents: make `Agent(…)` objects (from engine), or list them in AGENTS",
        ),
        (
            SETTINGS,
            {"a.py": "AGENTS = [5]\n"},
            ["--agents", "a.py"],
            "AGENTS of a.py has a value of type `int`: it takes `Agent(…)`",
        ),
        (
            SETTINGS,
            {"a.py": 'from engine import Agent\n\na = Agent("a", " ")\n'},
            ["--agents", "a.py"],
            "a.py:3: ValueError: agent `a` has no description: a model could not know when to delegate to it",
        ),
        (
            SETTINGS,
            {"a.py": 'from engine import Agent\n\na = Agent("a", "b", client="nobody")\n'},
            ["--agents", "a.py"],
            "a.py: the agent `a` names the client `nobody`, and nothing says what it is: give --model "
            "nobody=openai:MODEL, or a table [clients.nobody] in policy.toml",
        ),
        (
            SETTINGS,
            {"a.py": 'from engine import Agent\n\na = Agent("a", "b", tools=5)\n'},
            ["--agents", "a.py"],
            "a.py: the agent `a`: its `tools` are not a list of functions",
        ),
        (
            after(EXPLORE, "modle = 1\n"),
            {},
            [],
            "policy.toml:12: unknown setting `modle` of the agent `explore`; known: `description`, `instructions`, "
            "`instructions_file`, `client`, `tools` and `max_output`",
        ),
    ],
)
def test_a_mistake_is_one_message_with_its_place(
    text: str, files: dict[str, Any], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(text)
    for name, content in files.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["run", "desk.policy", "Where?", *arguments]) == 2
    assert capsys.readouterr().err == f"policy run: {said}\n"


def test_a_model_without_a_price_where_money_is_limited(capsys: pytest.CaptureFixture[str]) -> None:
    Path("desk.policy").write_text(
        'policy "p" lang 1\nlimits {\n  cost  $1\n}\nprices {\n  "main" input $1 output $2 per 1M\n}\n'
    )
    settings()
    assert main(["run", "desk.policy", "Where?"]) == 2
    assert capsys.readouterr().err == (
        "policy run: agent `explore` calls the model `small`, which has no price, and the cost is limited "
        "(desk.policy:3): add it to `prices`\n"
    )
