"""A run as it is handed to an engine, made where it is asked for."""

from __future__ import annotations

import uuid
from typing import Final

from engine.run.agents import Role
from engine.run.contents import Contents
from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.run.inputs import Input, opening
from engine.run.records import HostRecord
from engine.run.threads import counts_threads
from engine.run.timers import Clock, system_clock
from engine.runtimes.records import Order
from engine.runtimes.texts import Texts

_CARVE: Final = (
    "On a durable engine each run has a ledger of its own, so what agents may use of a limit must be carved for them"
)


def ordered(
    driver: Driver,
    input: Input,
    *,
    run_id: str | None = None,
    thread: str | None = None,
    trail: bool = False,
    clock: Clock = system_clock,
) -> Order:
    """The order for a run of this driver's policy, from a question or messages. See ``Driver.run``.

    Raises:
        RunError: it cannot be made as asked.
    """
    role = driver.role
    if problem := unkept(role):
        raise RunError(problem)
    try:
        messages = opening(input, driver.system)
    except ValueError as exc:
        raise RunError(str(exc)) from None
    texts = Texts()
    refs = tuple(map(Contents(texts).put, messages))
    run = run_id or uuid.uuid4().hex
    node = run if role.agents else ""
    spec = role.spec(run, clock(), refs, thread=thread, thread_used=None, node=node)
    host = HostRecord.of(role.host, spec, role.compiled.policy)
    return Order(spec, host, texts.known, trail=() if trail else None)


def unkept(role: Role) -> str:
    """What the policy of an agent, or of one below it, wants that no durable engine keeps; empty if nothing."""
    if counts_threads(role.compiled.policy):
        return (
            "the policy limits what a thread uses, which durable engines do not keep between runs: "
            "use a driver with a journal, or limits per run"
        )
    everybody = (role, *(role.below(name) for name in role.agents))
    for above in everybody if role.agents else ():
        for pool in above.budget.pools:
            if pool.scope != "subtree":
                continue
            whose = f"agent `{above.name}`" if above.name else "the policy"
            if pool.resource not in above.budget.carve:
                return f"{whose} shares `{pool.resource}` with agents below. {_CARVE}: `carve {pool.resource}`"
            for below in everybody[1:]:
                if all(own.resource != pool.resource or own.scope != "subtree" for own in below.budget.pools):
                    return f"agent `{below.name}` has no limit on `{pool.resource}` of its own. {_CARVE}, and limit it"
    return ""
