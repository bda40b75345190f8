"""A run as it is handed to an engine, made where it is asked for."""

from __future__ import annotations

import uuid

from engine.run.contents import Contents
from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.run.inputs import Input, opening
from engine.run.records import HostRecord
from engine.run.threads import counts_threads
from engine.run.timers import Clock, system_clock
from engine.runtimes.records import Order
from engine.runtimes.texts import Texts


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
    if counts_threads(role.compiled.policy):
        raise RunError(
            "the policy limits what a thread uses, which durable engines do not keep between runs: "
            "use a driver with a journal, or limits per run"
        )
    try:
        messages = opening(input, driver.system)
    except ValueError as exc:
        raise RunError(str(exc)) from None
    texts = Texts()
    refs = tuple(map(Contents(texts).put, messages))
    run = run_id or uuid.uuid4().hex
    spec = role.spec(run, clock(), refs, thread=thread, thread_used=None)
    host = HostRecord.of(role.host, spec, role.compiled.policy)
    return Order(spec, host, texts.known, trail=() if trail else None)
