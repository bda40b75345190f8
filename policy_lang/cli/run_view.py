"""A run while it goes on, for people: plain lines, or in a terminal bars of the budgets below them.

Views read stream events and print; they decide nothing and never touch the run. What a model or a
tool has written is shown without control characters, so that no text can drive the terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

from engine.core.texts import quantity
from engine.run import streaming as s
from policy_lang.cli.run_report import amount

if TYPE_CHECKING:
    from rich.console import RenderableType

_LONGEST = 100
_BAR = 24
_TAIL = 400
"""Characters of a streamed text that are shown while it grows."""


def printable(text: str) -> str:
    """Text without control characters, but for line ends and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def one_line(text: str) -> str:
    """The beginning of a text on one line."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


class PlainView:
    """One line for each thing that happens, what runs below do indented under their agents' names.

    ``limits`` are the names of the policy's limits in its file's order.
    """

    def __init__(self, out: TextIO | None = None, limits: Sequence[str] = ()) -> None:
        self.out = out or sys.stderr
        self.limits = limits
        self._top = ""
        self._budgets: dict[str, s.Budget] = {}

    @property
    def budgets(self) -> list[s.Budget]:
        """Where each limit stands, in the file's order: it is told in the order in which limits are looked at."""
        known = list(self._budgets.values())  # asked for from another thread too
        place = {name: number for number, name in enumerate(self.limits)}
        return sorted(known, key=lambda budget: place.get(budget.limit, len(place)))

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def paused(self) -> AbstractContextManager[None]:
        """While this is entered nothing is drawn over what others write."""
        return nullcontext()

    def show(self, event: s.AnyStreamEvent) -> None:
        """Tell about an event. Where nothing can be written any more nothing is told: the run is worth more."""
        try:
            self._show(event)
        except OSError:
            self._mute()

    def _mute(self) -> None:
        self.out = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115

    def _show(self, event: s.AnyStreamEvent) -> None:
        if isinstance(event, s.Budget):
            self._budgets[event.limit] = event
            return
        if isinstance(event, s.RunBegan):
            self._top = event.run
        below, what = (whose(event, self._top), event.event) if isinstance(event, s.Below) else ("", event)
        if line := self.line(what):
            self.print(line, below)

    def print(self, line: str, below: str = "") -> None:
        """Tell a line; ``below`` says which run below the top it is about, and stands before it."""
        print(below + line, file=self.out, flush=True)

    def line(self, event: s.StreamEvent) -> str:
        """What to say about an event, empty if nothing."""
        match event:
            case s.RunBegan(run=run):
                return f"run {run}"
            case s.CallStarted(call=call, attempt=attempt, client=client):
                again = f" (attempt {attempt})" if attempt > 1 else ""
                final = f", final: {event.why}, {event.because}" if event.final else ""
                return f"call {call}{again} to {client}{final}"
            case s.CallEnded(call=call):
                return f"call {call} {_ended(event)}"
            case s.RetryPlanned(call=call):
                return f"call {call} {retrying(event, event.wait)}"
            case s.TextRetracted(call=call, attempt=attempt):
                return f"call {call}: what attempt {attempt} had said is taken back"
            case s.ToolRetryPlanned(id=id, name=name, attempt=attempt):
                ended = f"{event.status.replace('_', ' ')}: {one_line(event.text)}"
                return f"tool {id} {one_line(name)} {ended}; retrying in {waiting(event.wait)} (attempt {attempt})"
            case s.ApprovalAsked(id=id, name=""):
                where = f"  [{event.because}]" if event.because else ""
                return f"more {id} waits for a person{where}"
            case s.ApprovalAnswered(id=id, name=""):
                return f"more {id} {_ANSWERS[event.answer]}"
            case s.ApprovalAsked(id=id, name=name):
                where = f"  [{event.because}]" if event.because else ""
                return f"tool {id} {one_line(name)} {one_line(event.arguments)} waits for a person{where}"
            case s.ApprovalAnswered(id=id, name=name):
                edited = f" as {one_line(event.arguments)}" if event.arguments else ""
                return f"tool {id} {one_line(name)} {_ANSWERS[event.answer]}{edited}"
            case s.ToolStarted(id=id, name=name):
                return f"tool {id} {one_line(name)} {one_line(event.arguments)}"
            case s.ToolFinished(id=id, name=name, status=status):
                return f"tool {id} {one_line(name)} {status.replace('_', ' ')}: {one_line(event.text)}"
            case s.ToolRefused(id=id, name=name):
                return f"tool {id} {one_line(name)} not run ({event.why.replace('_', ' ')}): {one_line(event.text)}"
            case s.Noted(note=note) if note.kind == "child":
                return f"child {note.text.removeprefix(f'{self._top}.')}"
            case s.Noted(note=note):
                where = f"  [{note.because}]" if note.because else ""
                return f"note {one_line(note.text)}{where}"
        return ""


def whose(event: s.Below, top: str) -> str:
    """What stands before a line about a run below the one at the top: two blanks a level, its agent, its place."""
    place = event.run.removeprefix(f"{top}.")
    return f"{'  ' * (place.count('.') + 1)}{event.agent} {place}: "


_ANSWERS = {
    "granted": "allowed",
    "refused": "not allowed",
    "expired": "not allowed in time",
    "nobody": "not allowed: nobody can be asked",
}


def waiting(ms: int) -> str:
    """A wait for people: whole seconds, rounded up, from one second on."""
    return quantity("duration", ms if ms < 1000 else -(-ms // 1000) * 1000)


def retrying(event: s.RetryPlanned, left: int) -> str:
    """What a planned attempt is, with so much of its wait left (ms)."""
    if not event.of:
        return f"goes on (attempt {event.attempt})"
    return f"retrying in {waiting(left)} ({event.retry} of {event.of}): {event.reason}"


def _ended(event: s.CallEnded) -> str:
    if event.error:
        return f"failed: {event.error}{f', {one_line(event.message)}' if event.message else ''}"
    usage = f" ({event.usage.input:,} in, {event.usage.output:,} out)" if event.usage else ""
    if event.tools:
        return f"asks for {', '.join(one_line(name) for name in event.tools)}{usage}"
    return f"answers{usage}"


class LiveView(PlainView):
    """The same lines, and below them the budgets as bars and the text that is just being written."""

    def __init__(self, out: TextIO | None = None) -> None:
        super().__init__(out)
        from rich.console import Console
        from rich.live import Live

        class Quiet(Console):
            def on_broken_pipe(self) -> None:
                """Its own way is to leave the program, and with it the run."""
                raise BrokenPipeError

        self._console = Quiet(file=self.out, highlight=False)
        self._said = s.ShownText()
        self._retry: s.RetryPlanned | None = None
        # It draws by itself, eight times a second: a wait counts down.
        self._live = Live(console=self._console, refresh_per_second=8, transient=True, get_renderable=self._panel)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):
            self._live.stop()

    def _mute(self) -> None:
        super()._mute()
        self._console.file = self.out

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def _show(self, event: s.AnyStreamEvent) -> None:
        self._said.show(event)
        if isinstance(event, s.RetryPlanned):
            self._retry = event
        elif isinstance(event, s.CallStarted):
            self._retry = None
        elif isinstance(event, s.CallEnded):
            self._said = s.ShownText()
        super()._show(event)
        self._live.refresh()

    def print(self, line: str, below: str = "") -> None:
        from rich.text import Text

        kind = line.partition(" ")[0]
        style = "yellow" if " retrying in " in line else {"call": "bold", "note": "yellow"}.get(kind, "")
        if " failed" in line or " not run " in line or " timed out" in line:
            style = "red"
        self._console.print(Text(below, style="cyan").append(line, style=style or "default"))

    def _panel(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        for budget in self.budgets:
            numbers = f"{amount(budget.unit, budget.used)} of {amount(budget.unit, budget.maximum)}"
            table.add_row(budget.limit, bar(budget.used, budget.maximum), numbers)
        parts: list[RenderableType] = [table]
        retry = self._retry
        if retry is not None:
            left = max(retry.not_before - round(time.time() * 1000), 0)
            parts.insert(0, Text(retrying(retry, left), style="yellow"))
        elif text := self._said.text:
            parts.insert(0, Text(printable(text[-_TAIL:]), style="dim"))
        return Group(*parts)


def bar(used: int, maximum: int) -> RenderableType:
    """A bar that is full where everything is used."""
    from rich.text import Text

    share = min(used / maximum, 1.0) if maximum else 1.0
    full = round(share * _BAR)
    colour = "red" if share >= 1 else "yellow" if share >= 0.8 else "green"
    return Text("█" * full, style=colour).append("░" * (_BAR - full), style="dim")


def view_for(out: TextIO) -> PlainView:
    """Bars for a terminal that can show them, plain lines for everything else."""
    if out.isatty() and os.environ.get("TERM") != "dumb":
        return LiveView(out)
    return PlainView(out)
