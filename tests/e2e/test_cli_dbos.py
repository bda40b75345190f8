"""``policy serve``, ``submit`` and ``runs`` on DBOS, from the first command to the last."""

import json
import signal
import subprocess
import sys
import time

import pytest
from engine_worlds import WORLDS, WorldServer

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

from policy_lang.cli import main

TOOLS = "\n\n".join(
    f'def {name}(q: str) -> str:\n    """Do it."""\n    return f"{name} {{q}}"\n' for name in ("search", "fetch", "pay")
)


@pytest.fixture
def policy(capsys, monkeypatch, tmp_path):
    """A command run here: its exit code, what it prints, what it says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.policy").write_text(WORLDS["approval"].policy)
    (tmp_path / "tools.py").write_text(TOOLS)

    def run(*arguments):
        try:
            code = main(arguments)
        except SystemExit as problem:
            code = problem.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.slow
def test_a_run_from_its_begin_to_its_end(policy):
    engine = ("--engine", "dbos", "--address", "sqlite:///runs.sqlite", "--queue", "desk")
    with WorldServer("approval") as server:
        host = ("--model", "openai:main", "--base-url", f"{server.url}/v1", "--tools", "tools.py")
        assert policy("runs", "list", *engine) == (0, "no run was ever begun there\n", "")
        assert policy("submit", "p.policy", "Q?", *host, *engine, "--id", "one") == (0, "one\n", "")
        command = [sys.executable, "-m", "policy_lang.cli", "serve", "p.policy", *host, *engine]
        worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            code, said, _ = asked(policy, engine)
            assert (code, said["status"], said["requests"][0]["tool"]) == (0, "suspended", "pay")
            assert policy("runs", "answer", "one:2.0", *engine, "--by", "anna")[:2] == (0, "one:2.0: granted\n")
            code, out, _ = policy("submit", "p.policy", "Q?", *host, *engine, "--id", "one", "--wait")
            assert (code, out) == (0, "It is 42.\n")
            assert policy("runs", "answer", "one:2.0", *engine)[0] == 1
            assert policy("runs", "cancel", "one", *engine)[0] == 1
        finally:
            worker.send_signal(signal.SIGTERM)
            _, err = worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert err == "policy serve: p.policy on DBOS at sqlite:///runs.sqlite\n"


def asked(policy, engine):
    """What a run shows once it waits for people."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        code, out, err = policy("runs", "show", "one", *engine, "--json")
        if code == 0 and (said := json.loads(out)).get("requests"):
            return code, said, err
        time.sleep(0.1)
    raise AssertionError(out)


def test_a_database_that_is_not_there_is_told_in_a_line(policy):
    code, out, err = policy("runs", "list", "--engine", "dbos", "--address", "postgresql://me:secret@127.0.0.1:1/runs")
    assert (code, out) == (2, "")
    assert err.startswith(
        "policy runs list: the database postgresql+psycopg://me:***@127.0.0.1:1/runs cannot be reached"
    )
    assert len(err.splitlines()) == 1
