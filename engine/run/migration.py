"""Going on with a run under another policy, or with other clients, than it began with: only when that is asked for.

The state is what the other policy makes of the run's events. Where it would have decided one of them otherwise in kind,
it cannot take the run over: what has happened cannot be undone. The journal keeps from which event on it holds.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.step import Compiled
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.run.host import Host
from engine.run.records import Migration, differing_host, host_record, named, policy_change, resolvers_of
from engine.store import Recorded, RunRecord
from engine.store.protocol import Step


def migrated(recorded: Recorded, compiled: Compiled, policy: str, host: Host, at: int) -> RunRecord | None:
    """The record of the run with what it goes on under from here; ``None`` if that is what it has. ``policy`` is JSON.

    Raises:
        ValueError: the other policy would have decided an event of the run otherwise; it says which.
    """
    record, then = recorded.record, host_record(recorded.record)
    change = differing_host(then, compiled.policy, host)
    if record.fingerprint != compiled.fingerprint:
        change = policy_change(record, compiled) or change
    if not change:
        return None
    if record.ended:
        raise ValueError(f"run {record.run} has ended ({record.status}): nothing is left to go on with otherwise")
    if then.primary not in host.clients:
        raise ValueError(f"run {record.run} calls the client `{then.primary}`: this driver must have one of that name")
    _check(recorded, compiled)
    step = Migration(
        len(recorded.steps), at, change, record.fingerprint, then.clients[then.primary][1], _calls(recorded)
    )
    after = structs.replace(
        then,
        clients=named(host),
        resolvers=resolvers_of(compiled.policy, host),
        migrations=(*then.migrations, step),
    )
    return structs.replace(
        record,
        policy=policy,
        fingerprint=compiled.fingerprint,
        semantics=SEMANTICS_VERSION,
        host=msgspec.json.encode(after, order="sorted").decode(),
    )


def _check(recorded: Recorded, compiled: Compiled) -> None:
    """Raise ``ValueError`` at the first event that the policy would have decided otherwise in kind."""
    state = compiled.initial
    for number, step in enumerate(recorded.steps, 1):
        state, decision = compiled.step(state, step.event)
        if _kind(decision) != _kind(step.decision):
            what = type(step.event).__struct_config__.tag
            raise ValueError(
                f"run {recorded.record.run} cannot go on under this policy: of its event {number} ({what}) came "
                f"{_words(step.decision)}, and under this policy {_words(decision)} would have"
            )


def _kind(decision: d.AnyDecision) -> tuple[object, ...]:
    verdicts = decision.verdicts if isinstance(decision, d.RunTools) else ()
    return (type(decision), *((type(v), v.id) for v in verdicts))


def _words(decision: d.AnyDecision) -> str:
    said = str(type(decision).__struct_config__.tag)
    if isinstance(decision, d.End):
        return f"{said} ({decision.outcome.status}, {decision.outcome.reason})"
    if isinstance(decision, d.Illegal):
        return f"{said} ({decision.problem})"
    if isinstance(decision, d.RunTools):
        return f"{said} ({', '.join(str(type(v).__struct_config__.tag) for v in decision.verdicts)})"
    return said


def _calls(recorded: Recorded) -> int:
    """The highest number that a call of the run has so far."""
    steps: tuple[Step, ...] = recorded.steps
    asked = [s.event.call for s in steps if isinstance(s.event, e.CallRequested)]
    made = [s.decision.call for s in steps if isinstance(s.decision, d.Call)]
    return max((int(call) for call in (*asked, *made) if call.isdecimal()), default=0)
