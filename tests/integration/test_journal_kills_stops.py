"""A host is killed at every write of a tree in which people are asked, a run is interrupted, and a running node closed.

Whoever takes it up comes to what a host that nobody kills comes to: outcomes, usage, and what is left of each pool.
"""

import pytest
from killing import Kills, lines, played, told

SCRIPT = """
    import asyncio, json, sys
    from engine.core.agents import AgentRules, Agents, TreeLimit
    from engine.core.messages import Message, Reply, ToolCall, Usage
    from engine.core.policy import Limit, Policy, ToolRule
    from engine.run.agents import Agent
    from engine.run.driver import Driver
    from engine.run.runtime import Runtime
    from engine.run.tools import ToolContext
    from killing import counted, every_kill

    POLICY = Policy(
        name="t",
        limits=(Limit(resource="tokens", max=18_100), Limit(resource="llm_calls", scope="subtree", max=60)),
        tools=(ToolRule(glob="send", ask=True),),
        agents=Agents(limits=(TreeLimit(resource="concurrent", max=1),), carve=("tokens",)),
        agent=(
            AgentRules(name="lead", limits=(Limit(resource="tokens", max=6_000),)),
            AgentRules(name="worker", limits=(Limit(resource="tokens", max=1_000),)),
        ),
    )
    FIRST = {
        "lead": ("delegate", {"agent": "worker", "task": "work"}),
        "work": ("send", {"to": "Ann"}),
        "slow": ("slow", {}),
    }


    class Client:
        wire, name, model = "fake", "main", "main"

        async def complete(self, request, *, idempotency_key=None, **more):
            counted("calls", idempotency_key)
            last = request.messages[-1]
            if last.role == "user" and last.text in FIRST:
                name, arguments = FIRST[last.text]
                call = ToolCall(f"c{len(request.messages)}", name, json.dumps(arguments))
                return Reply(Message("assistant", "", (call,)), "tool_calls", Usage(20, 7))
            return Reply(Message("assistant", f"heard {last.text}"), "stop", Usage(30, 9))

        async def aclose(self):
            pass


    def send(to: str, context: ToolContext) -> str:
        counted("tools", context.idempotency_key)
        return "sent"


    class Host:
        def __init__(self, store):
            self.store, self.slow = store, {"r.2": asyncio.Event(), "r.3": asyncio.Event()}

            async def slow(context: ToolContext) -> str:
                counted("tools", context.idempotency_key)
                self.slow[context.idempotency_key.partition(":")[0]].set()
                await asyncio.Event().wait()

            agents = [Agent("lead", "leads", tools=[slow]), Agent("worker", "works", tools=[send])]
            self.driver = Driver(POLICY, Client(), [], agents=agents, journal=store, max_output=100)
            self.runtime = Runtime(self.driver)

        def view(self, name):
            return next((view for view in self.runtime.list() if view.node.id == name), None)

        def closed(self, name):
            return any('"close"' in act and f'"{name}"' in act for act in self.store.acts("r"))

        def woken(self, name, text):
            view = self.view(name)
            if view.runs < 1 and view.state == "idle":
                self.runtime.wake(view.node, text)
            return view.node

        async def asked(self):
            node = self.woken("r.1", "lead")
            while self.view("r.1").state != "idle":
                for request in self.driver.requests("r"):
                    self.driver.answer(request.id, by="Ann")
                await asyncio.sleep(0.002)
            return await self.runtime.wait(node)

        async def until_slow(self, node):
            waits = [asyncio.ensure_future(each) for each in (self.slow[node.id].wait(), self.runtime.wait(node))]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)

        async def interrupted(self):
            node = self.woken("r.2", "slow")
            await self.until_slow(node)
            self.runtime.interrupt(node)
            return await self.runtime.wait(node)

        async def shut(self):
            node = self.view("r.3").node
            if self.view("r.3.1") is None:
                self.runtime.spawn("worker", node)
            await self.until_slow(self.woken("r.3", "slow"))
            await self.runtime.close(node)


    async def go(store):
        host = Host(store)
        runtime = host.runtime
        root = await runtime.resume("r") if store.acts("r") else runtime.open(id="r")
        for name in ("r.1", "r.2", "r.3"):
            if host.view(name) is None and not host.closed(name):
                assert runtime.spawn("lead", root).id == name
        ends = [await host.asked(), await host.interrupted()]
        if not host.closed("r.3"):
            await host.shut()
        ends.append(await runtime.wait(host.woken("r", "end")))
        tree = runtime._trees["r"]
        books = {id: [[p.ceiling.limit, p.used, p.held, p.taken] for p in node.pools]
                 for id, node in sorted(tree.ledger.nodes.items()) if node.state != "closed"}
        runs = sorted([r.run, r.status, r.used.tokens] for r in store.runs() if r.run != "r")
        host.driver.planting.uproot(tree, ends[-1].used)
        states = [[view.node.id, view.state] for view in runtime.list()]
        return {"ends": [[x.status, x.text, x.reason] for x in ends], "books": books, "runs": runs, "states": states}


    every_kill(go, sys.argv[1])
    """


@pytest.fixture(scope="module")
def kills(tmp_path_factory: pytest.TempPathFactory) -> Kills:
    return played(SCRIPT, tmp_path_factory.mktemp("stops"))


def test_the_one_that_nobody_kills_has_all_of_it(kills: Kills) -> None:
    whole = told(kills.whole)
    assert whole["ends"] == [
        ["completed", "heard heard sent", "answer"],
        ["cancelled", "", "user"],
        ["completed", "heard end", "answer"],
    ]
    assert whole["states"] == [["r", "idle"], ["r.1", "idle"], ["r.2", "idle"]]
    assert len(kills.each) >= 80


def test_every_killed_one_comes_to_the_same(kills: Kills) -> None:
    whole = told(kills.whole)
    for folder in kills.each:
        assert told(folder) == whole, folder.name
        calls, tools = lines(folder, "calls"), lines(folder, "tools")
        assert set(calls) == set(lines(kills.whole, "calls")), folder.name
        assert set(tools) == set(lines(kills.whole, "tools")), folder.name
        again = [count for count in (calls + tools).values() if count > 1]
        assert again in ([], [2]), folder.name
