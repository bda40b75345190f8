"""The commands about runs on durable engines, on Temporal: each a process of its own, as a user has them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from engine_worlds import WORLDS, WorldServer

pytest.importorskip("temporalio", reason="no Temporal SDK: pip install 'policy-lang[temporal]'")

from temporal_server import Process, Server

TOOLS = "".join(
    f'def {name}(q: str) -> str:\n    """Do it."""\n    return f"{name}: {{q}}"\n\n\n'
    for name in ("search", "fetch", "pay")
)


@pytest.fixture
def temporal(tmp_path):
    server = Server(tmp_path, lasting=False).start()
    yield server
    server.kill()


def policy(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    command = [sys.executable, "-m", "policy_lang.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def until(true):
    end = time.monotonic() + 30
    while not (found := true()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_a_run_waits_for_a_worker_is_answered_and_ends(temporal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.policy").write_text(WORLDS["approval"].policy)
    (tmp_path / "tools.py").write_text(TOOLS)
    there = ("--engine", "temporal", "--address", temporal.address)

    def show(run, *options):
        return policy(tmp_path, "runs", "show", run, *there, *options)

    with WorldServer("approval") as model:
        host = ("--model", "openai:main", "--base-url", f"{model.url}/v1", "--tools", "tools.py")
        submit = ("submit", "p.policy", "What is it?", *host, *there, "--id", "r 1")
        assert policy(tmp_path, "runs", "list", *there) == (0, "no run was ever begun there\n", "")
        assert policy(tmp_path, *submit) == (0, "r 1\n", "")
        serve = (
            sys.executable,
            "-m",
            "policy_lang.cli",
            "serve",
            "p.policy",
            *host,
            *there,
            "--contents",
            "contents.db",
        )
        worker = Process(*serve, log=tmp_path / "serve.log")
        try:
            asked = until(lambda: json.loads(show("r 1", "--json")[1] or "{}").get("requests"))
            assert [each["id"] for each in asked] == ["r 1:2.0"]
            assert policy(tmp_path, "runs", "answer", "r 1:2.0", *there) == (0, "r 1:2.0: granted\n", "")
            for _ in range(3):  # Temporal's library can bring a process down in the moment of its end
                code, out, err = policy(tmp_path, *submit, "--wait")
                assert (code, out) == (0, "It is 42.\n")
                assert err.startswith("completed\n")
            (listed,) = json.loads(policy(tmp_path, "runs", "list", *there, "--json")[1])["runs"]
            assert (listed["run"], listed["status"]) == ("r 1", "ended")
            worker.kill(signal.SIGTERM)
            assert worker.code == 0
            assert worker.log.read_text() == f"policy serve: p.policy on Temporal at {temporal.address}\n"
        finally:
            worker.kill()


def test_a_server_that_is_not_there_is_told_in_a_line(tmp_path):
    (tmp_path / "p.policy").write_text(WORLDS["plain"].policy)
    (tmp_path / "tools.py").write_text(TOOLS)
    host = ("--model", "openai:main", "--base-url", "http://127.0.0.1:1/v1", "--tools", "tools.py")
    there = ("--engine", "temporal", "--address", "127.0.0.1:1")
    for command in (("serve", "p.policy", *host), ("submit", "p.policy", "Q", *host), ("runs", "list")):
        code, out, err = policy(tmp_path, *command, *there)
        assert (code, out) == (2, "")
        assert "no Temporal server can be reached at 127.0.0.1:1: Connection refused" in err
        assert len(err.splitlines()) == 1
