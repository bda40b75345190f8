"""A host is killed at every write of the journal of a tree that it drives by itself, and another one takes it up.

Nodes, pools, posts and conversations are those of a host that nobody interrupted.
"""

import pytest
from killing import Kills, lines, played, told

from engine.core import events as e
from engine.store.sqlite import SqliteStore

SCRIPT = """
    import asyncio, sys
    from engine.core.agents import AgentRules, Agents, TreeLimit
    from engine.core.messages import Message, Reply, ToolCall, Usage
    from engine.core.policy import Limit, Policy
    from engine.run.agents import Agent
    from engine.run.driver import Driver
    from engine.run.runtime import Runtime
    from engine.run.tools import ToolContext
    from killing import counted, every_kill

    POLICY = Policy(
        name="t",
        limits=(Limit(resource="tokens", max=9_000), Limit(resource="llm_calls", scope="subtree", max=30)),
        agents=Agents(limits=(TreeLimit(resource="concurrent", max=1),), carve=("tokens",)),
        agent=(AgentRules(name="helper", limits=(Limit(resource="tokens", max=2_000),)),),
    )


    class Client:
        wire, name, model = "fake", "main", "main"

        async def complete(self, request, *, idempotency_key=None, **more):
            counted("calls", idempotency_key)
            last = request.messages[-1]
            if last.role == "user" and last.text.startswith("note"):
                return Reply(Message("assistant", "", (ToolCall("c", "note", "{}"),)), "tool_calls", Usage(20, 7))
            return Reply(Message("assistant", f"heard {last.text}"), "stop", Usage(30, 9))

        async def aclose(self):
            pass


    def note(context: ToolContext) -> str:
        counted("tools", context.idempotency_key)
        return "noted"


    async def to_the_end(runtime, node, text, number):
        view = runtime.inspect(node)
        if view.runs < number and view.state == "idle":
            runtime.wake(node, text)
        return await runtime.wait(node)


    async def go(store):
        driver = Driver(POLICY, Client(), [], agents=[Agent("helper", "helps", tools=[note])], journal=store,
                        max_output=100)
        runtime = Runtime(driver)
        root = await runtime.resume("r") if store.acts("r") else runtime.open(id="r", budget={"tokens": 8_000})
        for name in ("r.1", "r.2", "r.3"):
            if name not in {view.node.id for view in runtime.list()} and not done(store, name):
                assert runtime.spawn("helper", root, budget={"tokens": 1_500}).id == name
        nodes = {view.node.id: view.node for view in runtime.list()}
        if "r.1" in nodes:
            first = await to_the_end(runtime, nodes["r.1"], "note one", 1)
            await to_the_end(runtime, nodes["r.1"], "two", 2)
            await runtime.close(nodes["r.1"])
        if posted(store) < 1:
            runtime.post(nodes["r.2"], "leave out the tests")
        await to_the_end(runtime, nodes["r.2"], "three", 1)
        result = await to_the_end(runtime, root, "four", 1)
        said = [m.text for m in (await runtime.wait(nodes["r.2"])).messages]
        ledger = runtime._trees["r"].ledger
        books = {id: [[p.ceiling.limit, p.maximum, p.used, p.held, p.taken] for p in node.pools]
                 for id, node in sorted(ledger.nodes.items()) if node.state != "closed"}
        left = {"text": result.text, "said": said, "books": books, "nodes": [v.node.id for v in runtime.list()]}
        driver.planting.uproot(runtime._trees["r"], result.used)
        return left


    def done(store, name):
        return any('"close"' in act and name in act for act in store.acts("r"))


    def posted(store):
        return sum('"post"' in act for act in store.acts("r"))


    every_kill(go, sys.argv[1])
    """


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    return played(SCRIPT, tmp_path_factory.mktemp("host"))


def test_killed_at_every_write_the_ledger_and_the_conversations_are_those_of_one_that_was_not(kills: Kills):
    whole = told(kills.whole)
    assert whole["nodes"] == ["r", "r.2", "r.3"]
    assert whole["said"] == ["leave out the tests", "three", "heard three"]
    assert len(kills.each) >= 50
    for folder in kills.each:
        assert told(folder) == whole, folder.name
        calls, tools = lines(folder, "calls"), lines(folder, "tools")
        assert set(calls) == set(lines(kills.whole, "calls")), folder.name
        assert all(count <= 2 for count in (calls + tools).values()), folder.name
        assert sum(count > 1 for count in (calls + tools).values()) <= 1, folder.name
        store = SqliteStore(folder / "j.sqlite", read_only=True)
        for record in store.runs():
            begun = [s for s in store.load(record.run).steps if isinstance(s.event, e.RunStarted)]
            assert len(begun) == 1, (folder.name, record.run)
        store.close()
