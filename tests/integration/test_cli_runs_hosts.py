"""``policy runs`` over the journal of a program that drives its trees by itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from run_fakes import Model, says
from run_trees import agents
from run_trees import policy as rules

from engine.run.driver import Driver, RunError
from engine.run.runtime import Runtime
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.journal"


@pytest.fixture
def run(path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command over the journal: its exit code, what it printed, what it complained of; times read ``NOW``."""

    def command(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--journal", str(path)])
        out, err = capsys.readouterr()
        plain = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "NOW", text) for text in (out, err)]
        return code, *(text.replace(str(path), "JOURNAL") for text in plain)  # type: ignore[return-value]

    return command


class TestATreeThatAHostDrives:
    """Only its program can go on with it: whoever tries here is told so, and nothing is changed."""

    @pytest.fixture
    def tree(self, path: Path) -> None:
        """A root and a node below it that have run, and whose process is gone without a close."""

        async def main() -> None:
            model = Model(then=lambda request: says("done"))
            store = SqliteStore(path)
            driver = Driver(
                rules(blocks={}),
                {"main": model, "helper": model},
                agents=agents("research"),
                journal=store,
                max_output=400,
            )
            runtime = Runtime(driver)
            root = runtime.open(id="team")
            node = runtime.spawn("research", root)
            for each in (root, node):
                runtime.wake(each, "What is there?")
                await runtime.wait(each)
            for lease in store.leases():
                store.release(lease)
            store.close()

        asyncio.run(main())

    @pytest.mark.parametrize("verb", [("resume", "--model", "openai:x"), ("cancel",)])
    @pytest.mark.usefixtures("tree")
    @pytest.mark.parametrize("id", ["team", "team.1"])
    def test_it_is_left_to_its_program(self, run, verb, id):
        before = run("runs", "list", "--json")
        code, out, err = run("runs", verb[0], id, *verb[1:])
        assert (code, out) == (2, "")
        assert err == (
            f"policy runs {verb[0]}: run {id} is one of a tree that a host drives by itself: its program takes it up "
            "with `Runtime(driver).resume('team')`, and ends it with `close`\n"
        )
        assert run("runs", "list", "--json") == before

    @pytest.mark.usefixtures("tree")
    def test_a_driver_says_the_same(self, path):
        async def main() -> None:
            driver = Driver(
                rules(blocks={}),
                {"main": Model(), "helper": Model()},
                agents=agents("research"),
                journal=SqliteStore(path),
            )
            for act in (driver.resume, driver.cancel):
                with pytest.raises(RunError, match="a tree that a host drives by itself: its program takes it up"):
                    act("team")

        asyncio.run(main())
