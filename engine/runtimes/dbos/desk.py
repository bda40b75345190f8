"""The thread of a worker that looks after all of its runs: signals in, reports out, heartbeat, runs of the dead.

One for all of them, so that what a waiting run costs does not grow with how often it is looked after. A thread, so that
a tool that blocks the event loop does not make the worker look dead.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from engine.runtimes.dbos.board import Board
from engine.runtimes.dbos.environment import Message
from engine.runtimes.dbos.heirs import Heirs
from engine.runtimes.records import Report, decode, encode

_log = logging.getLogger(__name__)
_BEATS = 4
"""Heartbeats in a lease."""
_SHOWN_AFTER = 5
"""Ticks that a run waits before it shows where it stands: one that goes on at once has nothing to show."""

Arrived = Callable[[int, Message], None]


@dataclass
class _Waiting:
    """A run that waits. ``shown``: its report lies on the board."""

    report: Report
    arrived: Arrived
    since: float
    shown: bool = False


class Desk:
    """See the module. ``tick`` and ``lease`` in seconds.

    ``go_on`` puts the runs of a dead worker back into the queue and says how many there were; ``lost`` is called once,
    in the event loop, when others have taken this worker for dead.
    """

    def __init__(
        self,
        board: Board,
        worker: str,
        *,
        tick: float,
        lease: float,
        go_on: Callable[[str], int],
        lost: Callable[[], None],
    ) -> None:
        self._board = board
        self._worker = worker
        self._tick = tick
        self._beat_every = lease / _BEATS
        self._go_on = go_on
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._heirs = Heirs(board, worker, lease, time.monotonic)
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._recorded: list[int] = []
        self._over: list[str] = []
        self._stop = threading.Event()
        self._next_beat = 0.0
        self._seen = True
        self._thread = threading.Thread(target=self._work, name="policy-desk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, after what is still to be written. Waits for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    # Called from the event loop.

    def waits(self, run: str, report: Report, arrived: Arrived) -> None:
        """A run waits, and shows this to whoever asks; signals for it are given to ``arrived``, in the event loop."""
        with self._lock:
            self._waiting[run] = _Waiting(report, arrived, time.monotonic())

    def recorded(self, number: int) -> None:
        """A signal is on record: it need not lie on the board any more."""
        with self._lock:
            self._recorded.append(number)

    def parted(self, run: str) -> None:
        """Nobody here goes on with a run any more."""
        with self._lock:
            self._waiting.pop(run, None)

    def over(self, run: str) -> None:
        """A run has ended: nothing of it is left on the board."""
        with self._lock:
            self._waiting.pop(run, None)
            self._over.append(run)

    # The thread.

    def _work(self) -> None:
        going = True
        while going:
            going = not self._stop.wait(self._tick)
            try:
                self._exchange()
                if going and time.monotonic() >= self._next_beat:
                    self._next_beat = time.monotonic() + self._beat_every
                    self._live()
                self._seen = True
            except DBAPIError as exc:
                self._heirs.blind()
                if self._seen:
                    _log.warning("the database cannot be reached, runs wait for it: %s", str(exc.orig).strip())
                self._seen = False

    def _exchange(self) -> None:
        shown_from = time.monotonic() - self._tick * _SHOWN_AFTER
        with self._lock:
            waiting = dict(self._waiting)
            recorded, over = list(self._recorded), list(self._over)
        if not (waiting or recorded or over):
            return
        new = {run: each for run, each in waiting.items() if not each.shown and each.since <= shown_from}
        reports = {run: encode(each.report) for run, each in new.items()}
        found = self._board.exchange(list(waiting), reports, recorded, over)
        with self._lock:
            del self._recorded[: len(recorded)]
            del self._over[: len(over)]
            for each in new.values():
                each.shown = True
        for signal in found:
            message = decode(signal.body, Message)
            self._in_loop(waiting[signal.run].arrived, signal.number, message)

    def _live(self) -> None:
        if not self._board.beat(self._worker):
            self._stop.set()
            self._in_loop(self._lost)
            return
        for worker in self._heirs.dead():
            if self._go_on(worker):
                self._heirs.had_runs(worker)

    def _in_loop(self, call: Callable[..., None], *args: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)
