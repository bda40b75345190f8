"""The rules about a tree of agents: what a run may spawn, and what it hears of its children (semantics, section 8)."""

from __future__ import annotations

from engine.core.machine.expr import TRUE, Eq, Field, Lit, Not
from engine.core.machine.machine import Effect, Rule
from engine.core.machine.rules import NOT_FINAL, Context


def spawn(c: Context) -> tuple[Rule, ...]:
    """The run wants a child to be spawned, or woken: the ledger has a say, and after the final call nothing starts."""
    refused, queued = Eq(Field("refused"), Lit(1)), Eq(Field("queued"), Lit(1))
    return (
        Rule("spawn.final", Not(NOT_FINAL), (), Effect("refuse_child", word="final"), "default: final"),
        Rule("spawn.refused", refused, (), Effect("refuse_child", word="refused"), "default: ledger"),
        Rule("spawn.queue", queued, (), Effect("queue_child"), "default: concurrent"),
        Rule("spawn.start", TRUE, (), Effect("start_child"), "default: spawn"),
    )
