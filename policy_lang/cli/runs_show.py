"""One run of a journal: its outcome, where its limits stand, what it waits for, what happened last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from engine.core.decisions import End
from engine.core.state import LimitHit, Outcome, Used
from engine.core.vocabulary import RESOURCES
from engine.run.records import Migration, host_record
from engine.store.owners import owner_words
from engine.store.protocol import Lease, Recorded, RequestRecord, RunRecord
from engine.store.shared import moment
from policy_lang.cli import approvals_words, runs_words
from policy_lang.cli.journals import NotFound, drivers, plain, standing
from policy_lang.cli.run_report import amount, used_words
from policy_lang.cli.stand_ins import stored_policy
from policy_lang.why.happened import decision_words, event_words, seconds

if TYPE_CHECKING:
    from engine.store.sqlite import SqliteStore


@dataclass(frozen=True)
class Shown:
    """What is shown of a run. ``standings`` are its limits, ``problem`` says why they cannot be told."""

    record: RunRecord
    status: str
    lease: Lease | None
    outcome: Outcome | None
    used: Used | None
    standings: list[LimitHit]
    problem: str
    children: list[RunRecord]
    requests: list[RequestRecord]
    recorded: Recorded
    events: int
    now: int


def look(store: SqliteStore, record: RunRecord, events: int) -> Shown:
    """Read what is to be shown: the ``events`` last ones."""
    from engine.store.shared import wall_clock

    recorded, living = store.load(record.run), drivers(store.leases())
    record = recorded.record
    last = recorded.steps[-1].decision if recorded.steps else None
    used, standings, problem = record.used, list[LimitHit](), ""
    try:
        used, standings = _replayed(recorded)
    except NotFound as error:
        problem = str(error)
    return Shown(
        record,
        standing(record, living),
        None if record.ended else living.get(record.top),
        next((s.decision.outcome for s in recorded.steps if isinstance(s.decision, End)), None) if last else None,
        used,
        standings,
        problem,
        [each for each in store.runs(tree=record.top) if each.parent == record.run],
        store.requests(tree=record.run) if record.root is None else store.requests(run=record.run),
        recorded,
        events,
        wall_clock(),
    )


def _replayed(recorded: Recorded) -> tuple[Used, list[LimitHit]]:
    from engine.core.step import compile, replay

    compiled = compile(stored_policy(recorded.record))
    state = replay(compiled, (step.event for step in recorded.steps))
    if not recorded.steps:
        return compiled.used(state), []
    return compiled.used(state), compiled.standings(state, recorded.steps[-1].event.at)


def lines(shown: Shown) -> list[str]:
    """The run for people."""
    record = shown.record
    found = [f"run {plain(record.run)}", *(f"  {name:<9} {text}" for name, text in _facts(shown) if text)]
    found += _block("limits", [f"{_limit(hit):<{_width(shown)}}  {_standing(hit)}" for hit in shown.standings])
    if shown.used is not None:
        found.append(f"  {'used':<9} {used_words(shown.used)}")
    found += _block("children", [_child(child) for child in shown.children])
    found += _block("requests", [approvals_words.line(request, shown.now) for request in shown.requests])
    return found + _block("events", _events(shown))


def _facts(shown: Shown) -> list[tuple[str, str]]:
    record, lease, outcome = shown.record, shown.lease, shown.outcome
    facts = [("status", _status(shown)), ("agent", plain(record.agent))]
    if record.parent:
        facts.append(("parent", f"{plain(record.parent)} (root {plain(record.top)})"))
    facts += [("thread", plain(record.thread or "")), ("started", moment(record.started))]
    if lease is not None:
        facts.append(("driven by", f"{owner_words(lease.owner)}, since {moment(lease.since)}"))
    facts.append(("policy", f"{_policy_name(record)} (fingerprint {record.fingerprint[:12]})"))
    facts += [("changed", f"{plain(each.change)} ({moment(each.at)})") for each in _migrations(record)]
    if outcome is not None:
        facts += [("error", plain(outcome.error)), ("decided", outcome.because), ("client", plain(outcome.client))]
    return [*facts, ("problem", shown.problem)]


def _migrations(record: RunRecord) -> tuple[Migration, ...]:
    """When the run was made to go on under something else; hosts of another kind keep that in their own way."""
    try:
        return host_record(record).migrations
    except msgspec.MsgspecError:
        return ()


def _status(shown: Shown) -> str:
    outcome, status = shown.outcome, shown.status
    if outcome is not None:
        reason = "" if outcome.reason in ("", "answer") else f": {plain(outcome.reason)}"
        limit = f" ({_standing(outcome.limit, ' used')})" if outcome.limit else ""
        return f"{status}{reason}{limit}"
    if status == "suspended":
        return "suspended: it waits for people"
    return "dead: it has no end, and no process drives it" if status == "dead" else status


def _policy_name(record: RunRecord) -> str:
    try:
        return stored_policy(record).name
    except NotFound:
        return "unreadable"


def _limit(hit: LimitHit) -> str:
    return hit.resource if hit.scope == "run" else f"{hit.resource} per {hit.scope}"


def _standing(hit: LimitHit, used: str = "") -> str:
    unit = RESOURCES[hit.resource].unit if hit.resource in RESOURCES else "count"
    aside = f", {amount(unit, hit.set_aside)} set aside for agents" if hit.set_aside else ""
    return f"{amount(unit, hit.spent)} of {amount(unit, hit.maximum)}{used}{aside}"


def _width(shown: Shown) -> int:
    return max((len(_limit(hit)) for hit in shown.standings), default=0)


def _child(record: RunRecord) -> str:
    agent = f" ({plain(record.agent)})" if record.agent else ""
    return f"{plain(record.run)}{agent} {record.status}"


def _events(shown: Shown) -> list[str]:
    steps = shown.recorded.steps
    if not steps:
        return ["none was written down"]
    start = steps[0].event.at
    told = []
    for number, step in list(enumerate(steps))[-shown.events :]:
        what = f"{event_words(step.event)}: {decision_words(step.decision, step.event.at)}"
        told.append(f"{number + 1:>4} of {len(steps)}  {seconds(step.event.at - start):>9}  {plain(what)}")
    return told


def _block(name: str, found: list[str]) -> list[str]:
    return [f"  {name if not i else '':<9} {line}" for i, line in enumerate(found)]


def as_json(shown: Shown) -> str:
    """The run for programs: times in milliseconds, cost in micro-dollars."""
    record, outcome = shown.record, shown.outcome
    row = runs_words.Row(record, 0, shown.status, owner_words(shown.lease.owner) if shown.lease else "", shown.used)
    steps = list(enumerate(shown.recorded.steps))[-shown.events :]
    document: dict[str, Any] = row.plain() | {
        "fingerprint": record.fingerprint,
        "policy": _policy_name(record),
        "outcome": None if outcome is None else msgspec.to_builtins(outcome),
        "limits": [msgspec.to_builtins(hit) for hit in shown.standings],
        "migrations": [msgspec.to_builtins(each) for each in _migrations(record)],
        "children": [child.run for child in shown.children],
        "requests": [approvals_words.plain_data(request, shown.now) for request in shown.requests],
        "event_count": len(shown.recorded.steps),
        "events": [
            {"number": n + 1, "event": msgspec.to_builtins(s.event), "decision": msgspec.to_builtins(s.decision)}
            for n, s in steps
        ],
    }
    return runs_words.as_json(document)
