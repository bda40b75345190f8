"""What the journal keeps of a run beside its events, and how a run is taken up again from it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from engine.core.events import AnyEvent, PoolsSeen, RunStarted
from engine.core.policy import Policy
from engine.core.state import ClientInfo, Used
from engine.core.step import Compiled
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.decoding import decoder
from engine.run.agents import Role
from engine.run.differences import first_difference
from engine.run.effects import RunSpec
from engine.run.host import Host
from engine.store import Recorded, RunRecord

Infos = tuple[ClientInfo, ...]


class Migration(Struct, frozen=True):
    """A run goes on under something else than before, since its event number ``seq`` (from 0), ``at`` (ms).

    ``change`` is the first difference in words, ``fingerprint`` that of the policy before, ``model`` the primary
    client's before; ``calls`` is the number of the last call before.
    """

    seq: int
    at: int
    change: str
    fingerprint: str
    model: str
    calls: int


class HostRecord(Struct, frozen=True, omit_defaults=True):
    """What a run must find again to go on as it began: wire format and model of each client, and the request's bounds.

    ``primary`` names the client that calls go to first, ``messages`` the opening ones: a run that was killed before its
    first event begins from here. ``resolvers`` are those that the policy names and the host had (``None``: not known).
    ``migrations`` are the times at which somebody wanted it to go on otherwise. ``budgets`` are what the host has given
    by resource, beside the policy, to each node from the top of the tree down to the one that runs; empty if nothing.
    ``posts`` says how many of the opening messages were posted to the node before.
    """

    primary: str
    clients: dict[str, tuple[str, str]]
    max_output: int | None = None
    overhead: int | None = None
    messages: tuple[str, ...] = ()
    resolvers: tuple[str, ...] | None = None
    migrations: tuple[Migration, ...] = ()
    budgets: tuple[dict[str, int], ...] = ()
    posts: int = 0

    @classmethod
    def of(cls, host: Host, spec: RunSpec, policy: Policy, budgets: tuple[dict[str, int], ...] = ()) -> HostRecord:
        resolvers = resolvers_of(policy, host)
        known = named(host)
        return cls(spec.client, known, spec.max_output, spec.overhead, spec.messages, resolvers, budgets=budgets)

    @property
    def first_model(self) -> str:
        """The model of the primary client when the run began."""
        return self.migrations[0].model if self.migrations else self.clients[self.primary][1]

    @property
    def models(self) -> tuple[tuple[int, str], ...]:
        """From which call on (by its number) the primary client had which model, where that has changed."""
        after = [*(each.model for each in self.migrations[1:]), self.clients[self.primary][1]]
        return tuple((each.calls + 1, model) for each, model in zip(self.migrations, after, strict=False))


def host_record(record: RunRecord) -> HostRecord:
    """What the record of a run says of its host."""
    return decoder(HostRecord).decode(record.host)


def budget_given(record: RunRecord) -> dict[str, int]:
    """What the host gave the node of a run by resource, beside the policy."""
    return next(reversed(host_record(record).budgets), {})


def resolvers_of(policy: Policy, host: Host) -> tuple[str, ...]:
    """The functions that the policy names and the host has."""
    return tuple(name for name in policy.resolvers() if name in host.resolvers)


def steps_of(recorded: Recorded) -> tuple[tuple[AnyEvent, str], ...]:
    """The events with the digests of their decisions; none for those that were decided under another policy."""
    since = max((each.seq for each in host_record(recorded.record).migrations), default=0)
    return tuple((step.event, step.digest if n >= since else "") for n, step in enumerate(recorded.steps))


def named(host: Host) -> dict[str, tuple[str, str]]:
    """Wire format and model of each client, by name."""
    return {name: (client.wire, client.model) for name, client in host.clients.items()}


def record_of(spec: RunSpec, host: HostRecord) -> RunRecord:
    """The journal's record of a run that begins."""
    return RunRecord(
        run=spec.run,
        policy=spec.policy,
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
    ending: bool = False,
) -> RunSpec:
    """The spec of a journaled run, to go on under this policy with these clients.

    ``thread_used`` and ``infos`` are what a run would begin with now: one that has no event yet does. ``node``: it goes
    on as a run of a tree. ``ending``: only to be ended, for which no resolver is asked.

    Raises:
        ValueError: it began under another policy or with other clients; the first difference is named.
    """
    record = recorded.record
    if record.fingerprint != compiled.fingerprint:
        raise other_policy(record, compiled)
    then = host_record(record)
    if change := differing_host(then, compiled.policy, host, ending=ending):
        raise _otherwise(record, f"with another host: {change}")
    began: AnyEvent
    first = next((step.event for step in recorded.steps if not isinstance(step.event, PoolsSeen)), None)
    if first is not None:
        began = first
    else:
        if not then.messages:
            raise ValueError(f"run {record.run} was killed before its first event: start it anew, with another id")
        used = thread_used()
        began = RunStarted(
            record.started,
            record.run,
            fingerprint=record.fingerprint,
            thread_used=used,
            clients=infos,
            refs=then.messages,
        )
    if not isinstance(began, RunStarted):
        raise ValueError(f"the journal of run {record.run} does not begin with its start")
    return RunSpec(
        run=record.run,
        policy=record.policy,
        started=began.at,
        messages=began.refs,
        client=then.primary,
        model=then.first_model,
        models=then.models,
        thread=record.thread,
        parent=record.parent,
        fingerprint=began.fingerprint,
        thread_used=began.thread_used,
        max_output=then.max_output,
        overhead=then.overhead,
        clients=began.clients,
        node=(record.node or record.run) if node else "",
    )


def other_policy(record: RunRecord, compiled: Compiled) -> ValueError:
    """What is said of a run that began under another policy."""
    change = policy_change(record, compiled) or f"its fingerprint is {record.fingerprint[:12]} in the journal"
    return _otherwise(record, f"under another policy: {change}")


def role_below(above: Role | None, record: RunRecord) -> Role:
    """The role of the agent of a run below another. Raises ``ValueError`` if it cannot be taken up here."""
    if above is None:
        raise ValueError(f"run {record.run} is below a node that has never run: only its host can go on with it")
    if record.agent not in above.agents:
        raise ValueError(
            f"run {record.run} is one of the agent `{record.agent}`, which this driver does not have: "
            "pass it in `agents`"
        )
    return above.below(record.agent)


def policy_change(record: RunRecord, compiled: Compiled) -> str:
    """The first difference between the policy of a run and another, in words."""
    try:
        then = Policy.model_validate_json(record.policy)
    except ValueError:
        return "the policy in the journal cannot be read by this release"
    if found := first_difference(then, compiled.policy):
        return found
    if record.semantics != SEMANTICS_VERSION:
        return f"the semantics: version {record.semantics} in the journal, {SEMANTICS_VERSION} now"
    return ""


def _otherwise(record: RunRecord, how: str) -> ValueError:
    return ValueError(f"run {record.run} began {how} (it goes on as it began, unless it is resumed with `migrate`)")


def differing_host(then: HostRecord, policy: Policy, host: Host, *, ending: bool = False) -> str:
    """The first difference between what a run began with and a host, in words; empty if there is none that matters.

    ``ending``: only clients are compared.
    """
    now = named(host)
    for name, (wire, model) in then.clients.items():
        if name not in now:
            return f"client {name}: {wire} {model} in the journal, none now"
        if now[name] != (wire, model):
            return f"client {name}: {wire} {model} in the journal, {now[name][0]} {now[name][1]} now"
    if ending or then.resolvers is None:
        return ""
    have = resolvers_of(policy, host)
    for name in sorted({*then.resolvers, *have}):
        if name not in have:
            return f"resolver {name}: there in the journal, missing now"
        if name not in then.resolvers:
            return f"resolver {name}: missing in the journal, there now"
    return ""
