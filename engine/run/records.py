"""What the journal keeps of a run beside its events, and how a run is taken up again from it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from engine.core.events import AnyEvent, PoolsSeen, RunStarted
from engine.core.state import ClientInfo, Used
from engine.core.step import Compiled
from engine.run.effects import RunSpec
from engine.run.host import Host
from engine.store import Recorded, RunRecord

Infos = tuple[ClientInfo, ...]


class HostRecord(Struct, frozen=True):
    """What a run must find again to go on as it began: wire format and model of each client, and the request's bounds.

    ``primary`` names the client that calls go to first, ``messages`` the opening ones: a run that was killed before its
    first event begins from here.
    """

    primary: str
    clients: dict[str, tuple[str, str]]
    max_output: int | None = None
    overhead: int | None = None
    messages: tuple[str, ...] = ()

    @classmethod
    def of(cls, host: Host, spec: RunSpec) -> HostRecord:
        return cls(spec.client, named(host), spec.max_output, spec.overhead, spec.messages)


def named(host: Host) -> dict[str, tuple[str, str]]:
    """Wire format and model of each client, by name."""
    return {name: (client.wire, client.model) for name, client in host.clients.items()}


def record_of(spec: RunSpec, policy: str, host: HostRecord) -> RunRecord:
    """The journal's record of a run that begins. ``policy`` is JSON."""
    return RunRecord(
        run=spec.run,
        policy=policy,
        started=spec.started,
        fingerprint=spec.fingerprint,
        thread=spec.thread,
        parent=spec.parent,
        host=msgspec.json.encode(host, order="sorted").decode(),
    )


def recorded_spec(
    recorded: Recorded,
    compiled: Compiled,
    host: Host,
    thread_used: Callable[[], Used | None],
    infos: Infos,
    *,
    node: bool = False,
) -> RunSpec:
    """The spec of a journaled run, to go on under this policy with these clients.

    ``thread_used`` and ``infos`` are what a run would begin with now: one that has no event yet does. ``node``: it goes
    on as a run of a tree.

    Raises:
        ValueError: it began under another policy or with other clients; the first difference is named.
    """
    record = recorded.record
    if record.fingerprint != compiled.fingerprint:
        raise other_policy(record, compiled)
    then = msgspec.json.decode(record.host, type=HostRecord)
    _same_clients(record.run, then.clients, named(host))
    began: AnyEvent
    first = next((step.event for step in recorded.steps if not isinstance(step.event, PoolsSeen)), None)
    if first is not None:
        began = first
    else:
        if not then.messages:
            raise ValueError(f"run {record.run} was killed before its first event: start it anew, with another id")
        used = thread_used()
        began = RunStarted(record.started, record.run, thread_used=used, clients=infos, refs=then.messages)
    if not isinstance(began, RunStarted):
        raise ValueError(f"the journal of run {record.run} does not begin with its start")
    return RunSpec(
        run=record.run,
        step=compiled.step,
        initial=compiled.initial,
        started=began.at,
        messages=began.refs,
        client=then.primary,
        model=then.clients[then.primary][1],
        thread=record.thread,
        parent=record.parent,
        fingerprint=record.fingerprint,
        thread_used=began.thread_used,
        max_output=then.max_output,
        overhead=then.overhead,
        clients=began.clients,
        node=(record.node or record.run) if node else "",
    )


def other_policy(record: RunRecord, compiled: Compiled) -> ValueError:
    """What is said of a run that began under another policy."""
    return ValueError(
        f"run {record.run} began under another policy (fingerprint {record.fingerprint[:12]}, this one has "
        f"{compiled.fingerprint[:12]}): a run goes on under the policy it began with"
    )


def _same_clients(run: str, then: dict[str, tuple[str, str]], now: dict[str, tuple[str, str]]) -> None:
    for name, (wire, model) in then.items():
        if name not in now:
            raise ValueError(f"run {run} began with a client named `{name}`, which this driver does not have")
        if now[name] != (wire, model):
            raise ValueError(
                f"run {run} began with client `{name}` as {wire} {model}; now it is {now[name][0]} {now[name][1]}"
            )
