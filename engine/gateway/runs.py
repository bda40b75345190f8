"""Which run a request belongs to: by the name it gives, else by its transcript; from memory, else from the journal.

A run's counters are its session's, whatever a transcript has lost: forked, cut and summarised histories go on in the
run they came from. A run that nobody knows begins with what its transcript shows.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from engine.adapters.governor import Governor
from engine.adapters.session import Session
from engine.core.events import ModelReplied
from engine.core.messages import Message, ToolCall
from engine.core.state import ClientInfo, Used, total
from engine.gateway.fold import Tools, fold
from engine.gateway.keys import Keys
from engine.gateway.settings import MAIN, Bounds, Route
from engine.gateway.transcripts import Asked
from engine.gateway.wires import Round
from engine.run.threads import used_of
from engine.store.protocol import JournalError, RunRecord, Store

_OVER = ("completed", "finalized")


class Kept(Struct, frozen=True, omit_defaults=True):
    """What the journal's record of a run says of it beside its events. ``key`` is hashed."""

    key: str = ""
    place: str = ""
    wire: str = ""


class Delivered(Struct, frozen=True, omit_defaults=True):
    """What a client got: an act of the run in the journal.

    ``calls`` are those it is to execute: the provider's id, the name, and the position among all calls of the reply.
    ``round`` is there if something was kept from it. ``said`` are names of replies and of the conversation by now.
    """

    calls: tuple[tuple[str, str, int], ...] = ()
    round: Round | None = None
    said: tuple[str, ...] = ()


class GatewayRun:
    """One run. ``lock`` is held while a request of it is in hand: there is one call at a time."""

    def __init__(self, session: Session, kept: Kept, failed: re.Pattern[str] | None) -> None:
        self.session, self.key, self.place = session, kept.key, kept.place
        self.tools = Tools(session, failed)
        self.lock = asyncio.Lock()
        self.rounds: dict[str, Round] = {}
        self.known: set[str] = set()
        """Ids of all calls that the client was given."""
        self.folds = False
        """Its transcript shows calls that nobody has told it of yet."""
        self.touched = time.monotonic()

    @property
    def id(self) -> str:
        return self.session.run

    def deliver(self, act: Delivered) -> None:
        self.known.update(call[0] for call in act.calls)
        if act.round is not None:
            self.rounds |= dict.fromkeys(act.round.ids, act.round)


class Denied(Exception):
    """A run that another key has begun is asked for."""


class Runs:
    """See the module."""

    def __init__(
        self,
        governor: Governor,
        routes: Mapping[str, Route],
        journal: Store | None,
        keys: Keys | None,
        bounds: Bounds,
        failed: re.Pattern[str] | None,
        threads: bool,
    ) -> None:
        self._governor, self._journal, self._keys = governor, journal, keys
        self._routes, self._bounds, self._failed = routes, bounds, failed
        self._counts_threads = threads
        self._runs: OrderedDict[str, GatewayRun] = OrderedDict()
        self._places: dict[str, list[str]] = {}
        self._recorded: dict[str, Kept] = {}
        self._threads: dict[str, str] = {}
        """Threads by the conversations and replies that are known of them."""
        self._index()

    def _index(self) -> None:
        for record in self._journal.runs() if self._journal is not None else ():
            kept = kept_of(record)
            if kept is None or record.fingerprint != self._governor.compiled.fingerprint:
                continue
            self._recorded[record.run] = kept
            self._places.setdefault(kept.place, []).append(record.run)
            if self._counts_threads and record.thread:
                for act in self._acts(record.run):
                    self._threads |= dict.fromkeys(act.said, record.thread)

    def of(self, asked: Asked) -> GatewayRun:
        """The run that a request belongs to, begun if there is none.

        Raises:
            Denied: it is named, and another key's.
            JournalError: the journal cannot be read or written.
        """
        run = self._named(asked) if asked.run else self._placed(asked)
        if run is None:
            run = self._begin(asked)
        run.touched = time.monotonic()
        self._runs.move_to_end(run.id)
        self._forget()
        return run

    def get(self, id: str, key: str) -> GatewayRun | None:
        """A run by its id, for whom it belongs to."""
        run = self._known(id)
        return run if run is not None and run.key == key else None

    def _named(self, asked: Asked) -> GatewayRun | None:
        run = self._known(asked.run)
        if run is not None and run.key != asked.key:
            raise Denied(asked.run)
        return run

    def _placed(self, asked: Asked) -> GatewayRun | None:
        if not asked.replies:
            return None
        ids = {call.id for reply in asked.replies for call in reply.tool_calls}
        others = []
        for id in reversed(self._places.get(asked.place, ())):
            run = self._known(id)
            if run is None or (run.session.outcome is not None and run.session.outcome.status in _OVER):
                continue
            if ids & run.known:
                return run
            others.append(run)
        return others[0] if others else None

    def _known(self, id: str) -> GatewayRun | None:
        run = self._runs.get(id)
        if run is None and id in self._recorded:
            run = self._runs[id] = self._taken_up(id, self._recorded[id])
        return run

    # A run that begins.

    def _begin(self, asked: Asked) -> GatewayRun:
        id = self._free(asked.run) if asked.run else uuid.uuid4().hex
        kept = Kept(asked.key, asked.place, asked.wire.name)
        session = self._session(asked, id, self._thread(asked), msgspec.json.encode(kept).decode())
        run = GatewayRun(session, kept, self._failed)
        run.folds = bool(asked.replies)
        self._runs[id] = run
        self._places.setdefault(asked.place, []).append(id)
        if self._journal is not None:
            self._recorded[id] = kept
        return run

    def _session(self, asked: Asked, id: str, thread: str | None, kept: str) -> Session:
        governor = self._governor
        clients: tuple[ClientInfo, ...] = ()
        if governor.policy.clients():
            others = (ClientInfo(r.name, r.model) for r in self._routes.values() if r.wire == asked.wire.name)
            clients = (ClientInfo(MAIN, asked.model), *others)
        account = self._keys.account(asked.key, id, governor.compiled, governor.clock()) if self._keys else None
        return governor.session(run=id, thread=thread, clients=clients, account=account, kept=kept)

    def _free(self, name: str) -> str:
        """The name, or one like it where the journal has a run of it that was begun otherwise."""
        if self._journal is None:
            return name
        candidate, n = name, 1
        while self._taken(candidate):
            n += 1
            candidate = f"{name}~{n}"
        return candidate

    def _taken(self, id: str) -> bool:
        assert self._journal is not None
        try:
            self._journal.record(id)
        except JournalError:
            return False
        return True

    def _thread(self, asked: Asked) -> str | None:
        if asked.thread:
            return f"{asked.key}/{asked.thread}" if asked.key else asked.thread
        if not self._counts_threads:
            return None
        found = self._threads.get(asked.before) if asked.before else None
        found = found or next((self._threads[name] for name in asked.known_replies if name in self._threads), None)
        return found or f"conversation {uuid.uuid4().hex}"

    def begun(self, run: GatewayRun, asked: Asked) -> None:
        """Before its first call: what its transcript shows is told to it."""
        if run.folds:
            run.folds = False
            fold(run.session, run.tools, asked, asked.wanted(size=True))

    # What a client got.

    def delivered(
        self, run: GatewayRun, asked: Asked, said: Message, kept: list[ToolCall], round: Round | None
    ) -> None:
        """Remember it; in the journal, too, before the client has it."""
        names: tuple[str, ...] = ()
        thread = run.session.thread
        if self._counts_threads and thread:
            names = tuple(filter(None, (asked.after(said), asked.distinct(said))))
            self._threads |= dict.fromkeys(names, thread)
        positions = {call.id: n for n, call in enumerate(said.tool_calls)}
        act = Delivered(tuple((call.id, call.name, positions[call.id]) for call in kept), round, names)
        run.deliver(act)
        if self._journal is not None and (act.calls or act.said or act.round):
            self._journal.act(_acts_of(run.id), msgspec.json.encode(act).decode())
        if run.session.outcome is not None and self._keys is not None:
            self._keys.close(run.id, self._governor.clock())

    def _acts(self, id: str) -> list[Delivered]:
        assert self._journal is not None
        return [msgspec.json.decode(act, type=Delivered) for act in self._journal.acts(_acts_of(id))]

    # A run that is taken up.

    def _taken_up(self, id: str, kept: Kept) -> GatewayRun:
        assert self._journal is not None
        recorded, acts = self._journal.load(id), self._acts(id)
        governor = self._governor
        keys = self._keys
        account = keys.account(kept.key, id, governor.compiled, governor.clock()) if keys is not None else None
        session = governor.session(
            run=id, thread=recorded.record.thread, account=account, kept="{}", seq=len(recorded.steps)
        )
        events = [step.event for step in recorded.steps]
        last = next((event for event in reversed(events) if isinstance(event, ModelReplied)), None)
        given = acts[-1].calls if acts and last is not None else ()
        session.replay(events, {id: last.calls[n].id for id, _, n in given if last is not None and n < len(last.calls)})
        run = GatewayRun(session, kept, self._failed)
        for act in acts:
            run.deliver(act)
        run.tools.names = {id: name for id, name, _ in given}
        return run

    # What is forgotten.

    def _forget(self) -> None:
        """Runs that nobody has asked for in a long time, and those beyond what memory is for."""
        now = time.monotonic()
        while self._runs:
            id, run = next(iter(self._runs.items()))
            idle = now - run.touched > self._bounds.idle_seconds
            if run.lock.locked() or not (idle or len(self._runs) > self._bounds.runs):
                return
            del self._runs[id]
            if self._keys is not None:
                self._keys.close(id, self._governor.clock())
            if self._journal is None:
                self._places[run.place].remove(id)
                if not self._places[run.place]:
                    del self._places[run.place]


def kept_of(record: RunRecord) -> Kept | None:
    """What the record of a gateway's run says; ``None`` for a run of anybody else."""
    try:
        kept = msgspec.json.decode(record.host, type=Kept)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    return kept if kept.place else None


def spent_by_key(journal: Store) -> dict[str, Used]:
    """What the runs of a journal have used so far, by the hash of their key. Raises ``JournalError``."""
    found: dict[str, list[Used]] = {}
    for record in journal.runs():
        kept = kept_of(record)
        if kept is not None:
            found.setdefault(kept.key, []).append(used_of(journal, record))
    return {key: total(each) for key, each in found.items()}


def _acts_of(run: str) -> str:
    """Under which name the acts of a run stand: not its own, for that would be a tree that a host of ours drives."""
    return f"gateway:{run}"
