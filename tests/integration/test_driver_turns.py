"""One task carries out an effect and the one that follows from it: nothing of the first may be felt in the second."""

import asyncio
import contextvars
import itertools

from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import Policy, ToolRule
from engine.run.driver import Driver

MARK = contextvars.ContextVar("mark", default="of the run")


class Model:
    """Asks for the tool ``turns`` times, then answers. Notes what it finds, and the task it is called in."""

    name = model = wire = "fake"

    def __init__(self, turns):
        self.turns, self.marks, self.tasks = turns, [], []

    async def complete(self, request, **_options):
        self.marks.append(MARK.get())
        self.tasks.append(asyncio.current_task())
        if len(self.tasks) > self.turns:
            return Reply(Message("assistant", "done"), "stop", Usage(1, 1))
        call = ToolCall(f"c{len(self.tasks)}", "work", "{}")
        return Reply(Message("assistant", "", (call,)), "tool_calls", Usage(1, 1))

    async def aclose(self):
        pass


def driven(model, tool):
    return Driver(Policy(name="p"), model, [tool])


def test_what_a_tool_sets_in_its_context_is_not_seen_by_what_follows():
    model = Model(3)

    async def work():
        MARK.set("of the tool")
        return "ok"

    async def main():
        MARK.set("of the caller")
        return await driven(model, work).run("go")

    assert asyncio.run(main()).status == "completed"
    assert model.marks == ["of the caller"] * 4


def test_a_task_goes_on_with_the_effect_that_its_own_has_led_to():
    model, tasks = Model(2), []

    async def work():
        tasks.append(asyncio.current_task())
        return "ok"

    assert asyncio.run(driven(model, work).run("go")).status == "completed"
    assert {*model.tasks, *tasks} == {model.tasks[0]}


def test_a_run_that_never_waits_lets_others_work():
    model, seen = Model(200), []

    async def work():
        return "ok"

    async def main():
        handle = driven(model, work).start("go")
        while not handle.done:
            seen.append(len(model.tasks))
            await asyncio.sleep(0)
        return await handle

    assert asyncio.run(main()).status == "completed"
    assert max(b - a for a, b in itertools.pairwise(seen)) <= 8


def test_a_cancelled_tool_takes_nothing_with_it():
    """The tool was cut at its time limit: the call after it is carried out by another task, uncancelled."""
    model, tasks = Model(1), []

    async def work():
        tasks.append(asyncio.current_task())
        await asyncio.sleep(10)

    driver = Driver(Policy(name="p", tools=(ToolRule(glob="work", timeout=20),)), model, [work])
    result = asyncio.run(driver.run("go"))
    assert (result.status, result.text) == ("completed", "done")
    assert model.tasks[1] not in tasks
    assert model.tasks[1].cancelling() == 0
