"""``policy.toml``: where it is found, what it gives, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clients.spec import PROVIDERS
from policy_lang import settings
from policy_lang.settings import ClientSettings, SettingsError, loads

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


def test_an_empty_file_declares_nobody() -> None:
    assert loads("").clients == {}
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
        ("\nport = 5\n", "policy.toml:2: unknown setting `port`; known: tables `[clients.NAME]`, and `[lint]`"),
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
