"""``policy.toml``: where it is found, what it gives, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clients.spec import PROVIDERS
from policy_lang import settings
from policy_lang.settings import AgentSettings, ClientSettings, SettingsError, loads

WHOLE = """
# the clients of the support agent
[clients.small]
wire = "openai"
model = "gpt-4.1-mini"

[clients."vendor/large"]
wire = "anthropic"
model = "claude-large"
base_url = "http://127.0.0.1:9/v1"
key_env = "LARGE_KEY"
max_output = 4_000
"""


def test_a_whole_file() -> None:
    found = loads(WHOLE, "x/policy.toml")
    assert found.path == "x/policy.toml"
    assert list(found.clients) == ["small", "vendor/large"]
    assert found.clients["small"] == ClientSettings("small", "openai", "gpt-4.1-mini")
    assert found.clients["vendor/large"] == ClientSettings(
        "vendor/large", "anthropic", "claude-large", "http://127.0.0.1:9/v1", "LARGE_KEY", 4_000
    )


AGENTS = """
[agents.explore]
description = "finds its way in the code"
instructions_file = "explore.md"
client = "small"
tools = ["search.py:find,read", "files"]
max_output = 2_000

[agents.review]
description = "reads with care"
instructions = "Be strict."
tools = "review.py"
"""


def test_agents() -> None:
    found = loads(AGENTS, "x/policy.toml")
    assert found.agents == {
        "explore": AgentSettings(
            "explore",
            "finds its way in the code",
            instructions_file="explore.md",
            client="small",
            tools=("search.py:find,read", "files"),
            max_output=2_000,
        ),
        "review": AgentSettings("review", "reads with care", instructions="Be strict.", tools=("review.py",)),
    }
    assert found.place("explore", "client", "agents") == "x/policy.toml:5"
    assert found.place("review", "client", "agents") == "x/policy.toml:9"


def test_a_client_and_an_agent_of_one_name_have_each_their_own_lines() -> None:
    text = '[agents.a]\ndescription = "x"\nmax_output = 1\n[clients.a]\nwire = "openai"\nmodel = "m"\n'
    found = loads(text)
    assert (found.place("a"), found.place("a", "max_output"), found.place("a", "max_output", "agents")) == (
        "policy.toml:4",
        "policy.toml:4",
        "policy.toml:3",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agents = 5\n", "policy.toml:1: `agents` is not a table; write `[agents.NAME]`"),
        ("[agent.a]\n", "policy.toml: unknown setting `agent`; did you mean `agents`?"),
        (
            "[agents.a]\n",
            'policy.toml:1: the agent `a` has no `description`; write `description = "…"`: it tells the model what '
            "the agent is good for",
        ),
        (
            '[agents.a]\ndescription = "x"\nclinet = "b"\n',
            "policy.toml:3: unknown setting `clinet` of the agent `a`; did you mean `client`?",
        ),
        (
            "[agents.a]\nmodel = 1\n",
            "policy.toml:2: unknown setting `model` of the agent `a`; known: `description`, `instructions`, "
            "`instructions_file`, `client`, `tools` and `max_output`",
        ),
        ('[agents.a]\ndescription = ["x"]\n', "policy.toml:2: `description` of the agent `a` takes a text"),
        ("[agents.a]\ntools = 5\n", "policy.toml:2: `tools` of the agent `a` takes a text, or a list of texts"),
        ("[agents.a]\ntools = [5]\n", "policy.toml:2: `tools` of the agent `a` takes a text, or a list of texts"),
        ('[agents.a]\ntools = [" "]\n', "policy.toml:2: `tools` of the agent `a` is empty"),
        ('[agents.a]\ndescription = " "\n', "policy.toml:2: `description` of the agent `a` is empty"),
        ("[agents.a]\nmax_output = 0\n", "policy.toml:2: `max_output` of the agent `a` must be at least 1"),
        (
            '[agents.a]\ndescription = "x"\ninstructions = "y"\ninstructions_file = "z"\n',
            "policy.toml:4: the agent `a` has both `instructions` and `instructions_file`; leave one out",
        ),
        ('[agents." "]\n', "policy.toml:1: the name of an agent cannot be empty; write `[agents.NAME]`"),
        (
            'agents = {a = "x"}\n',
            "policy.toml: the agent `a` is not a table; write a table `[agents.a]` with `description`",
        ),
    ],
)
def test_what_is_said_about_wrong_agents(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        loads(text)
    assert str(raised.value) == message


def test_an_empty_file_declares_nobody() -> None:
    assert loads("").clients == {}
    assert loads("").agents == {}
    assert loads("[clients]\n").clients == {}


def test_wires_are_those_of_the_clients() -> None:
    assert set(settings.WIRES) == set(PROVIDERS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clients.a]\nwire = openai\n", "policy.toml:2: not valid TOML: invalid value"),
        ("[clients.a\n", "policy.toml:1: not valid TOML: expected ']' at the end of a table declaration"),
        ("a = ", "policy.toml: not valid TOML: invalid value"),
        ("[client.a]\n", "policy.toml: unknown setting `client`; did you mean `clients`?"),
        (
            "\nport = 5\n",
            "policy.toml:2: unknown setting `port`; known: tables `[clients.NAME]` and `[agents.NAME]`, and `[lint]`",
        ),
        ("clients = 5\n", "policy.toml:1: `clients` is not a table; write `[clients.NAME]`"),
        (
            '[clients]\n\nsmall = "gpt"\n',
            "policy.toml:3: the client `small` is not a table; write a table `[clients.small]` with `wire` and `model`",
        ),
        (
            '[clients.b]\nmodel = "m"\nwire = "openai"\n[clients.a]\nmodel = "m"\n',
            'policy.toml:4: the client `a` has no `wire`; write `wire = "openai"`',
        ),
        (
            '[clients.a]\nwire = "openai"\n',
            'policy.toml:1: the client `a` has no `model`; write `model = "…"`, as the provider names it',
        ),
        (
            '[clients.a]\nwire = "openai"\nmodle = "m"\n',
            "policy.toml:3: unknown setting `modle` of the client `a`; did you mean `model`?",
        ),
        (
            "[clients.a]\ntemperature = 1\n",
            "policy.toml:2: unknown setting `temperature` of the client `a`; known: `wire`, `model`, `base_url`, "
            "`key_env`, `max_output` and `context_window`",
        ),
        (
            '[clients."x y"]\nwire = "opnai"\n',
            "policy.toml:2: unknown wire format `opnai` of the client `x y`; did you mean `openai`?",
        ),
        (
            '[clients.a]\nwire = "gemini"\n',
            "policy.toml:2: unknown wire format `gemini` of the client `a`; known: `openai` and `anthropic`",
        ),
        ("[clients.a]\nmodel = 5\n", "policy.toml:2: `model` of the client `a` takes a text"),
        ('[clients.a]\nmodel = " "\n', "policy.toml:2: `model` of the client `a` is empty"),
        ('[clients.a]\nmax_output = "5"\n', "policy.toml:2: `max_output` of the client `a` takes a whole number"),
        ("[clients.a]\nmax_output = true\n", "policy.toml:2: `max_output` of the client `a` takes a whole number"),
        ("[clients.a]\nmax_output = 0\n", "policy.toml:2: `max_output` of the client `a` must be at least 1"),
        ('clients = {a = {wire = "x"}}\n', None),
        ('[clients." "]\n', "policy.toml:1: the name of a client cannot be empty; write `[clients.NAME]`"),
    ],
)
def test_what_is_said_about_a_wrong_file(text: str, message: str | None) -> None:
    with pytest.raises(SettingsError) as raised:
        loads(text)
    expected = message or "policy.toml: unknown wire format `x` of the client `a`; known: `openai` and `anthropic`"
    assert str(raised.value) == expected


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory"):
        settings.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        settings.load(tmp_path / "latin.toml")


def test_the_nearest_file_up_to_the_root(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "policy.toml").write_text("")
    top = str((tmp_path / "policy.toml").resolve())
    assert settings.find(inner) is None
    assert settings.find(inner, tmp_path / "a") is None
    assert settings.find(inner, tmp_path) == top
    assert settings.find(tmp_path) == top
    assert settings.find(inner, tmp_path / "elsewhere") is None
    (tmp_path / "a" / "policy.toml").write_text("")
    assert settings.find(inner, tmp_path) == str((tmp_path / "a" / "policy.toml").resolve())
    (inner / "policy.toml").mkdir()
    assert settings.find(inner) is None
