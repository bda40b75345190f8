"""A small agent loop of one's own: no engine in it, only counters. The suite beside it finds out whether it keeps to
``desk.policy``."""

from __future__ import annotations

from dataclasses import dataclass, field

CALLS, ROUNDS = 5, 3
DENIED = {"refund"}


@dataclass
class Desk:
    """One run: what may happen next is asked before it happens."""

    tools: set[str] = field(default_factory=lambda: {"search", "lookup", "refund"})
    calls: int = 0
    rounds: int = 0
    final: str = ""
    running: set[str] = field(default_factory=set)
    outcome: tuple[str, str] | None = None

    def next_call(self) -> bool:
        """A model is about to be called. Is it the final call, without tools?"""
        self.calls += 1
        self.final = "llm_calls" if self.calls >= CALLS else "tool_iterations" if self.rounds >= ROUNDS else ""
        return bool(self.final)

    def replied(self, text: bool, wanted: list[tuple[str, str]]) -> list[bool]:
        """A reply with calls of tools (id and name): which of them may run? Without any, the run is over."""
        if not wanted:
            answered = ("finalized", self.final) if self.final else ("completed", "answer")
            self.outcome = answered if text else ("failed", "empty_answer")
            return []
        if self.final:
            self.outcome = ("failed", "finalization_disobeyed")
            return []
        self.rounds += 1
        allowed = [name in self.tools and name not in DENIED for _, name in wanted]
        self.running = {id for (id, _), may in zip(wanted, allowed, strict=True) if may}
        return allowed

    def ended(self, id: str) -> bool:
        """A tool has ended. Is the round complete?"""
        self.running.discard(id)
        return not self.running

    def failed(self) -> None:
        """The model cannot be reached: this loop tries nothing else."""
        self.outcome = ("failed", "llm_failure")

    def cancelled(self) -> None:
        """Somebody ends the run."""
        self.outcome = ("cancelled", "user")
