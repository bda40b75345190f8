"""The scenarios of ``agent-budget-semantics``, which others wrote: what we count is what its server has in its ledger.

Its sdist is used as it is, unpacked into a temporary folder; its wheel lacks the scenarios. Three of its faults are
stepped round: a server is started for each scenario, since it never reads another script; tools are taken from
``tools`` as well as from ``tool_definitions``; and its ledger counts tool calls that are asked for, ours those that
run, so calls and tokens are what is compared. Its ``expected_total_tokens`` contradict its scripts and are not read.
"""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from engine.clients.openai_chat import OpenAIChat
from engine.run.driver import Driver
from engine.run.tools import Tool
from policy_lang import loads

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SDIST = ROOT / ".venv" / "external" / "agent_budget_semantics-0.5.0.tar.gz"
SHA256 = "f44c1589ebf74b00ead657952df5e8668829dafc3b1cbe052876d43269b21964"
HOW = "pip download --no-deps --no-binary :all: --dest .venv/external agent-budget-semantics==0.5.0"

SCENARIOS = [f"S{number}" for number in range(1, 13)]
POLICIES = {
    "three calls": ("llm_calls  3  then stop", 3),
    "three calls, the last one final": ("llm_calls  3  then finalize", 3),
    "two rounds and a final call": ("tool_iterations  2  then finalize", 3),
    "six hundred tokens": ("tokens  600  then stop", 20),
    "all of it": ("llm_calls  20  then stop", 20),
}
"""What is limited, and how many calls that allows at most."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the suite is unpacked."""
    if not SDIST.exists():
        pytest.skip(f"needs the suite: {HOW}")
    assert hashlib.sha256(SDIST.read_bytes()).hexdigest() == SHA256, "another file than the one that is pinned"
    place = tmp_path_factory.mktemp("suite")
    with tarfile.open(SDIST) as archive:
        archive.extractall(place, filter="data")
    (folder,) = place.iterdir()
    return folder


@contextmanager
def serving(suite: Path, scenario: Path) -> Iterator[str]:
    """The suite's own server with one script; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "mock-llm/server.py", f"--port={port}", f"--script={scenario}"]
    server = subprocess.Popen(command, cwd=suite, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 60
        while not _answers(url):
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < until, "the server has not started"
            time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def tools_of(scenario: dict[str, Any]) -> list[Tool]:
    """Every tool that the scenario declares or its script calls."""
    declared = [each["name"] for key in ("tools", "tool_definitions") for each in scenario.get(key) or ()]
    called = [call["function"]["name"] for turn in scenario["script"] for call in turn.get("tool_calls") or ()]
    return [Tool(_anything, name=name) for name in dict.fromkeys([*declared, *called])]


def _anything(**_arguments: Any) -> str:
    """Done."""
    return "done"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_we_count_is_in_its_ledger(name: str, policy: str, suite: Path) -> None:
    (path,) = (suite / "scenarios").glob(f"{name}-*.yaml")
    scenario = yaml.safe_load(path.read_text(encoding="utf-8"))
    line, most = POLICIES[policy]
    with serving(suite, path) as url:
        client = OpenAIChat("mock", base_url=f"{url}/v1", api_key_env=None)
        driver = Driver(loads(f'policy "p" lang 1\nlimits {{\n  {line}\n}}\n'), client, tools_of(scenario))
        result = driver.run_sync(scenario.get("task") or "Begin.")
        ledger = httpx.get(f"{url}/ledger").json()["entries"]
    used = result.used
    assert used.llm_calls == used.llm_attempts == len(ledger) <= most
    assert used.input_tokens == sum(entry["prompt_tokens"] for entry in ledger)
    assert used.output_tokens == sum(entry["completion_tokens"] for entry in ledger)
    if policy == "all of it":
        turns = [bool(turn.get("tool_calls")) for turn in scenario["script"]]
        assert len(ledger) == turns.index(False) + 1, "a reply without calls is the answer"
        assert result.status == "completed"
    if policy == "six hundred tokens":
        before = sum(entry["total_tokens"] for entry in ledger[:-1])
        assert before < 600, "no call is made once the tokens are used up"
