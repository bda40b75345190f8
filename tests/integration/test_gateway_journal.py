"""What a gateway keeps: runs over a restart, threads, budgets of keys, and no key in clear."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gateway_parts import QUESTION, TOOLS, governed, limits, policy
from openai import AsyncOpenAI

from engine.gateway import Gateway, GatewayError
from engine.rehearsal import Rehearsal, Script
from engine.store import MemoryStore
from engine.store.sqlite import SqliteStore

SAYS = {"text": "It is 42, and that is all there is to say.", "times": "always"}
ASKS = {"tool": "search", "times": "always"}


def sdk(gateway: Any, key: str = "sk-very-secret-key") -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


async def ask(client: AsyncOpenAI, messages: Any = (QUESTION,), **headers: str) -> Any:
    named = {f"x-policy-{name}": value for name, value in headers.items()}
    reply = await client.chat.completions.create(model="m", messages=list(messages), tools=TOOLS, extra_headers=named)
    return reply.choices[0].message


def went(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def answered(messages: list[Any], message: Any) -> list[Any]:
    done = [{"role": "tool", "tool_call_id": call.id, "content": "found"} for call in message.tool_calls]
    return [*messages, message.model_dump(exclude_none=True), *done]


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path):
    async def main():
        rules = limits("llm_calls  3") + 'tool "pay"  deny "Not here."\n'
        batch = {"calls": [{"tool": "pay"}, {"tool": "search"}]}
        with Rehearsal(Script.of(batch, ASKS)) as server:
            history: list[Any] = [QUESTION]
            for n in range(4):  # each request is served by another process, as it were
                store = SqliteStore(tmp_path / "runs.db")
                async with Gateway(policy(rules), server.url, journal=store) as gateway, sdk(gateway) as client:
                    message = await ask(client, history)
                store.close()
                if n < 3:
                    assert [call.function.name for call in message.tool_calls] == ["search"]
                    history = answered(history, message)
            assert "llm_calls is reached (3 of 3)" in message.content
            assert len(server.ledger) == 3
            for entry in list(server.ledger)[1:]:  # what was cut before the restart is put back
                names = [call["function"]["name"] for call in entry.body["messages"][1]["tool_calls"]]
                assert names == ["pay", "search"]
            assert not server.ledger.problems

    went(main())


def test_a_call_that_was_in_hand_when_the_gateway_died_is_a_further_attempt(tmp_path: Path):
    async def main():
        slow = {"text": "Too late.", "delay_ms": 20_000}
        with Rehearsal(Script.of(slow, SAYS)) as server:
            store = SqliteStore(tmp_path / "runs.db")
            gateway = Gateway(policy(limits("llm_calls  1")), server.url, journal=store)
            async with gateway, sdk(gateway) as client:
                asking = asyncio.ensure_future(ask(client, run="one"))
                while len(server.ledger) < 1:
                    await asyncio.sleep(0.01)
                asking.cancel()
            store.close()
            store = SqliteStore(tmp_path / "runs.db")
            gateway = Gateway(policy(limits("llm_calls  1")), server.url, journal=store)
            async with gateway, sdk(gateway) as client:
                assert (await ask(client, run="one")).content == SAYS["text"]
                assert gateway.runs.get("one", "") is None
            used = store.record("one").used
            assert used is not None
            assert (used.llm_calls, used.llm_attempts) == (1, 2)
            store.close()

    went(main())


@pytest.mark.parametrize("named", [True, False])
def test_a_thread_is_known_by_its_name_or_by_what_was_said_in_it(named: bool):
    async def main():
        rules = limits("llm_calls  2 per thread")
        headers = {"thread": "t"} if named else {}
        async with governed(rules, SAYS, journal=MemoryStore()) as (gateway, server), sdk(gateway) as client:
            messages: list[Any] = [QUESTION]
            for n in range(2):
                said = await ask(client, messages, **headers)
                assert said.content == SAYS["text"]
                messages += [said.model_dump(exclude_none=True), {"role": "user", "content": f"And {n}?"}]
            assert "llm_calls" in (await ask(client, messages, **headers)).content
            summarised = messages[-2:]  # the beginning is lost, the thread is not
            assert "llm_calls" in (await ask(client, summarised, **headers)).content
            assert len(server.ledger) == 2
            if not named:
                assert (await ask(client, [{"role": "user", "content": "Something else."}])).content == SAYS["text"]

    went(main())


def test_a_key_has_a_budget_for_all_its_runs_also_after_a_restart(tmp_path: Path):
    async def main():
        keys = policy(limits("llm_calls  3"), "keys")
        with Rehearsal(Script.of(SAYS)) as server:
            for n in range(2):
                store = SqliteStore(tmp_path / "runs.db")
                gateway = Gateway(policy(), server.url, journal=store, key_policy=keys)
                async with gateway, sdk(gateway) as mine, sdk(gateway, "sk-other") as theirs:
                    said = [(await ask(mine, thread=f"{n}.{i}")).content for i in range(2)]
                    assert said[0] == SAYS["text"]
                    assert ("llm_calls is reached (3 of 3)" in said[1]) == (n == 1)
                    assert (await ask(theirs)).content == SAYS["text"]
                store.close()
            assert len(server.ledger) == 5

    went(main())


def test_runs_of_a_key_at_the_same_time_do_not_use_more_than_it_has():
    async def main():
        keys = policy(limits("llm_calls  5"), "keys")
        slow = {**SAYS, "delay_ms": 50}
        async with governed("", slow, journal=MemoryStore(), key_policy=keys) as (gateway, server):
            async with sdk(gateway) as client:
                said = await asyncio.gather(*(ask(client) for _ in range(12)))
            assert sum(message.content == SAYS["text"] for message in said) == 5
            assert len(server.ledger) == 5

    went(main())


def test_no_key_is_kept_or_logged(tmp_path: Path):
    async def main():
        keys = policy(limits("llm_calls  10"), "keys")
        store = SqliteStore(tmp_path / "runs.db")
        lines: list[Any] = []
        options: dict[str, Any] = {"journal": store, "key_policy": keys, "log": lines.append}
        async with governed("", ASKS, **options) as (gateway, _), sdk(gateway) as client:
            await ask(client, answered([QUESTION], await ask(client)))
        store.close()
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"very-secret" not in kept
        assert b"What is the answer" not in kept
        assert "secret" not in repr(lines)
        assert lines

    went(main())


def test_what_needs_a_journal_is_refused_without_one():
    with pytest.raises(GatewayError, match="llm_calls per thread needs a journal"):
        Gateway(policy(limits("llm_calls  2 per thread")), "http://127.0.0.1:1")
    with pytest.raises(GatewayError, match="budgets of keys need a journal"):
        Gateway(policy(), "http://127.0.0.1:1", key_policy=policy(limits("llm_calls  2")))


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (limits("llm_calls  2  then finalize"), "can only stop"),
        (limits("wall  1h"), "`wall` is not a limit of keys"),
        ('tool "*"  deny\n', "limits only"),
        ("", "limits nothing"),
    ],
)
def test_a_policy_that_keys_cannot_have_is_refused(rules: str, why: str):
    with pytest.raises(GatewayError, match=why):
        Gateway(policy(), "http://127.0.0.1:1", journal=MemoryStore(), key_policy=policy(rules))


def test_what_a_gateway_cannot_keep_is_told_at_load(caplog: pytest.LogCaptureFixture):
    rules = (
        limits("wall  1h  reserve 30s  then finalize using wrap_up") + 'tool "pay"  ask\ntool "search"  timeout 5s\n'
    )
    gateway = Gateway(policy(rules), "http://127.0.0.1:1")
    told = " ".join(gateway.unkept)
    for word in ("`timeout`", "`tool ask`", "`wrap_up`", "`wall`"):
        assert word in told
        assert word in caplog.text


def test_a_journal_that_cannot_be_written_stops_what_it_cannot_hold():
    async def main():
        store = MemoryStore()
        async with governed("", SAYS, journal=store) as (gateway, server), sdk(gateway) as client:

            def fails(*_: Any) -> None:
                from engine.store import JournalError

                raise JournalError("the disk is full")

            store.append = fails  # type: ignore[method-assign]
            with pytest.raises(Exception, match="cannot write its journal"):
                await ask(client)
            assert len(server.ledger) == 0

    went(main())
