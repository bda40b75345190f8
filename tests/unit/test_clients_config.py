"""Making a client: the key, the address, the name; and that nothing ever shows the key."""

import subprocess
import sys

import pytest

from engine.clients import Anthropic, Client, ClientConfigError, OpenAIChat, from_spec

SECRET = "sk-very-secret-4711"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)


class TestKey:
    def test_a_missing_key_is_said_with_the_variable_and_the_way_out(self):
        with pytest.raises(ClientConfigError) as caught:
            from_spec("openai:gpt-x")

        assert str(caught.value) == (
            "no key for https://api.openai.com/v1: set the environment variable OPENAI_API_KEY "
            "(a server on this machine, given as base_url, needs none)"
        )

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1:9", "http://localhost:9/v1", "http://[::1]:9", "http://127.9.9.9"]
    )
    def test_a_server_on_this_machine_needs_no_key_and_is_sent_none(self, url, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        client = from_spec("openai:gpt-x", base_url=url)

        assert not any(name == b"authorization" for name, _ in client._headers)

    def test_a_server_on_this_machine_is_sent_a_key_that_was_asked_for_by_name(self, monkeypatch):
        monkeypatch.setenv("MY_KEY", SECRET)
        client = from_spec("anthropic:c", base_url="http://127.0.0.1:9", api_key_env="MY_KEY")

        assert (b"x-api-key", SECRET.encode()) in client._headers

    def test_a_server_elsewhere_needs_none_if_that_was_said(self):
        client = from_spec("openai:m", base_url="http://gpu.example/v1", api_key_env=None)

        assert not any(name == b"authorization" for name, _ in client._headers)

    @pytest.mark.parametrize("value", ["two words", "line\nbreak", "schlüssel"])
    def test_a_key_that_cannot_be_one_is_refused_without_showing_it(self, value, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", value)

        with pytest.raises(ClientConfigError) as caught:
            from_spec("openai:gpt-x")

        assert value not in str(caught.value)

    def test_neither_repr_nor_str_show_the_key_or_a_header(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        client = from_spec("openai:gpt-x", headers={"x-other-secret": "hidden-value"})

        assert SECRET not in repr(client) + str(client)
        assert "hidden-value" not in repr(client) + str(client)
        assert repr(client) == "OpenAIChat(model='gpt-x', name='gpt-x', base_url='https://api.openai.com/v1')"


class TestHeaders:
    @pytest.mark.parametrize("headers", [{"x-a": "b\r\nx-c: d"}, {"x a": "b"}, {"x-a": "ü"}, {"": "b"}])
    def test_a_header_that_cannot_be_sent_is_refused_without_its_value(self, headers):
        with pytest.raises(ClientConfigError) as caught:
            from_spec("openai:m", base_url="http://127.0.0.1:9", headers=headers)

        assert "x-c: d" not in str(caught.value)
        assert "must be plain ASCII on one line" in str(caught.value)

    def test_extra_headers_are_sent_and_may_replace_ours(self):
        client = from_spec("anthropic:m", base_url="http://127.0.0.1:9", headers={"Anthropic-Version": "2099-01-01"})

        assert (b"anthropic-version", b"2099-01-01") in client._headers


class TestAddress:
    @pytest.mark.parametrize(
        ("spec", "base_url", "url"),
        [
            ("openai:m", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/chat/completions"),
            ("openai:m", "http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1/chat/completions"),
            ("anthropic:m", "http://127.0.0.1:9", "http://127.0.0.1:9/v1/messages"),
            ("anthropic:m", "http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1/messages"),
        ],
    )
    def test_the_path_is_added_once(self, spec, base_url, url):
        assert str(from_spec(spec, base_url=base_url)._url) == url

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("gpt.example/v1", "is not an http:// or https:// URL"),
            ("ftp://x/y", "is not an http:// or https:// URL"),
            ("http://", "is not an http:// or https:// URL"),
            ("http://x/v1?key=1", "may not contain `?` or `#`"),
            ("http://user:pw@x/v1", "may not contain a user or password"),
            ("http://x:port/v1", "is not a URL"),
        ],
    )
    def test_a_bad_base_url_is_said(self, url, message):
        with pytest.raises(ClientConfigError) as caught:
            from_spec("openai:m", base_url=url, api_key_env=None)

        assert message in str(caught.value)
        assert "pw" not in str(caught.value)


class TestSpec:
    def test_a_provider_and_a_model(self):
        client = from_spec("anthropic:claude-x", base_url="http://127.0.0.1:9", name="cheap")

        assert isinstance(client, Anthropic)
        assert isinstance(client, Client)
        assert (client.name, client.model, client.wire) == ("cheap", "claude-x", "anthropic")

    def test_a_models_own_colons_stay_in_its_name(self):
        client = from_spec("openai:llama3:8b", base_url="http://127.0.0.1:9")

        assert isinstance(client, OpenAIChat)
        assert client.model == "llama3:8b"

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("gpt-x", "`gpt-x` names no model: write openai:MODEL or anthropic:MODEL"),
            ("openai:", "`openai:` names no model: write openai:MODEL or anthropic:MODEL"),
            ("opnai:gpt", "unknown provider `opnai`; did you mean `openai:gpt`?"),
            ("mistral:m", "unknown provider `mistral` (known: openai:MODEL or anthropic:MODEL; a compatible server"),
        ],
    )
    def test_a_bad_spec_is_said_with_the_way_out(self, spec, message):
        with pytest.raises(ClientConfigError) as caught:
            from_spec(spec, base_url="http://127.0.0.1:9")

        assert str(caught.value).startswith(message)


def test_importing_the_package_imports_no_http_library():
    code = (
        "import sys, engine.clients; print(sorted(m for m in ('httpx', 'asyncio.streams', 'ssl') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
