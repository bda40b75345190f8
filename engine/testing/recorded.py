"""The laws and a policy's claims, watching runs that are over: a list of steps, a journal, a decision log.

The same monitors as everywhere (``engine.verify``); nothing of a run's state is read, so whatever made the run may be
judged, our own driver or somebody else's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from engine.core.claims import Claim
from engine.core.decisions import AnyDecision
from engine.core.events import AnyEvent, RunStarted
from engine.core.policy import Policy
from engine.run.records import host_record
from engine.store import Store
from engine.store.sqlite import SqliteStore
from engine.testing.coverage import SUITE
from engine.verify.promises import ClaimWatch
from engine.verify.watch import Watch

Pair = tuple[AnyEvent, AnyDecision]


@dataclass(frozen=True, slots=True)
class Checked:
    """What the laws and claims say of one run.

    ``broken``: each law that does not hold, in words. ``refuted``: claims that were not so, by name, with the number of
    the event (from 1) that broke each. ``met``: claims whose premise was so at least once. ``ended``: has the run an
    outcome? ``skipped``: why it could not be judged, and then nothing else is said.
    """

    run: str
    events: int
    broken: tuple[str, ...] = ()
    refuted: Mapping[str, int] = field(default_factory=dict)
    met: frozenset[str] = frozenset()
    ended: bool = False
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """Every law holds, and every claim."""
        return not self.broken and not self.refuted

    def assert_all(self) -> Checked:
        """Raise ``AssertionError`` with everything that does not hold, unless it is ``ok``."""
        if not self.ok:
            raise AssertionError(self.text())
        return self

    def text(self) -> str:
        """All in words, a line for each."""
        head = f"run {self.run or '?'}, {self.events} events"
        if self.skipped:
            return f"{head}: not judged: {self.skipped}"
        claims = [f'  the claim "{name}" is refuted by event {number}' for name, number in self.refuted.items()]
        return "\n".join([f"{head}: {'ok' if self.ok else 'broken'}", *(f"  {law}" for law in self.broken), *claims])


def check_trace(policy: Policy, steps: Iterable[Any], *, claims: Sequence[Claim] | None = None) -> Checked:
    """Judge one run by the laws and the policy's claims (or ``claims``).

    ``steps``: from the start of the run, pairs of an event and its decision, or anything with these two as attributes
    (steps of a journal, of a host, of a witness).
    """
    # Claims are about a run until its end; laws say too what may happen after it.
    laws, claimed = Watch(policy), ClaimWatch(policy, claims)
    pairs = [_pair(step) for step in steps]
    for event, decision in pairs:
        laws.see(event, decision)
        claimed.see(event, decision)
    SUITE.see(policy, pairs)
    run = next((event.run for event, _ in pairs if isinstance(event, RunStarted)), "")
    ended = laws.outcome is not None
    return Checked(run, len(pairs), tuple(laws.broken), dict(claimed.refuted), frozenset(claimed.met), ended)


def _pair(step: Any) -> Pair:
    if hasattr(step, "event"):
        return step.event, step.decision
    event, decision = step
    return event, decision


# -- journals


def check_journal(
    journal: Store | str | os.PathLike[str], *, claims: Sequence[Claim] | None = None, run: str | None = None
) -> list[Checked]:
    """Judge all runs of a journal (or one), each by the policy it was bound to, which stands in the journal.

    A run that was taken on under another policy is ``skipped``: its steps belong to no single one.

    Raises:
        JournalError: the file is no journal, or there is no such run.
    """
    if isinstance(journal, str | os.PathLike):
        store = SqliteStore(journal, read_only=True)
        try:
            return _journal(store, claims, run)
        finally:
            store.close()
    return _journal(journal, claims, run)


def _journal(store: Store, claims: Sequence[Claim] | None, run: str | None) -> list[Checked]:
    done = []
    for name in [run] if run is not None else [record.run for record in store.runs()]:
        recorded = store.load(name)
        if recorded.record.host != "{}" and host_record(recorded.record).migrations:
            done.append(Checked(name, len(recorded.steps), skipped="it was taken on under another policy"))
            continue
        policy = Policy.model_validate_json(recorded.record.policy)
        checked = check_trace(policy, recorded.steps, claims=claims)
        done.append(_named(checked, name))
    return done


def _named(checked: Checked, run: str) -> Checked:
    return Checked(run, checked.events, checked.broken, checked.refuted, checked.met, checked.ended)


# -- decision logs


class LogError(ValueError):
    """A decision log cannot be read. The message has the line."""


def check_log(
    log: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    policy: Policy,
    *,
    claims: Sequence[Claim] | None = None,
) -> list[Checked]:
    """Judge all runs of a decision log: a file of JSON lines, or the entries that a log's function was given.

    The log names no policy, so that runs of other policies in the same file would be judged by the wrong one. A run of
    which lines are missing is ``skipped``.

    Raises:
        LogError: a line that no decision log has.
        OSError: the file cannot be read.
    """
    entries = _lines(log) if isinstance(log, str | os.PathLike) else list(enumerate(log, 1))
    runs: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for number, entry in entries:
        if not isinstance(entry, Mapping) or "run" not in entry or "seq" not in entry:
            raise LogError(f"line {number} is no line of a decision log: it has no `run` and `seq`")
        if "note" not in entry:
            runs.setdefault(entry["run"], []).append((number, entry))
    return [_logged(run, lines, policy, claims) for run, lines in runs.items()]


def _lines(path: str | os.PathLike[str]) -> list[tuple[int, Any]]:
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                found.append((number, json.loads(line)))
            except ValueError as problem:
                raise LogError(f"{os.fspath(path)}, line {number}: no JSON: {problem}") from None
    return found


def _logged(
    run: str, lines: list[tuple[int, Mapping[str, Any]]], policy: Policy, claims: Sequence[Claim] | None
) -> Checked:
    missing = next((n for n, (_, entry) in enumerate(lines) if entry["seq"] != n), None)
    if missing is not None:
        return Checked(run, len(lines), skipped=f"decision number {missing} is not in the log")
    broken = next((entry["problem"] for _, entry in lines if "problem" in entry), "")
    if broken:
        return Checked(run, len(lines), skipped=f"a decision could not be logged: {broken}")
    return _named(check_trace(policy, [_read(number, entry) for number, entry in lines], claims=claims), run)


def _read(number: int, entry: Mapping[str, Any]) -> Pair:
    try:
        decision = _tagged(entry["decision"], "decision") | {"because": entry["rule"]}
        invalid = {v["id"] for v in decision.get("verdicts", ()) if v.get("why") == "bad_arguments"}
        event = _tagged(entry["event"], "event") | {"at": entry["at"]}
        if "calls" in event:
            # What was wrong with arguments is a text, which a log leaves out; that something was is in the verdict.
            event["calls"] = [{"problem": "not told"} | c if c["id"] in invalid else c for c in event["calls"]]
        return msgspec.convert(event, AnyEvent), msgspec.convert(decision, AnyDecision)
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as problem:
        raise LogError(f"line {number} is no line of a decision log: {problem}") from None


def _tagged(data: Mapping[str, Any], tag: str) -> dict[str, Any]:
    """Data of the log as the records' own JSON has it: kinds under their tag, texts that were left out empty."""
    out = {key: value for key, value in data.items() if key != "kind"} | {tag: data["kind"]}
    for name in ("verdicts", "close"):
        if name in out:
            out[name] = [_verdict(verdict) for verdict in out[name]]
    return out


def _verdict(data: Mapping[str, Any]) -> dict[str, Any]:
    verdict = {key: value for key, value in data.items() if key != "kind"} | {"decision": data["kind"]}
    return {"text": "", **verdict} if data["kind"] == "reply" else verdict
