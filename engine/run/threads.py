"""What the earlier runs of a thread have used, for the limits that count per thread."""

from __future__ import annotations

from engine.core.policy import Policy
from engine.core.state import Used, total
from engine.core.step import compile, replay
from engine.store.protocol import Journal, RunRecord


def counts_threads(policy: Policy) -> bool:
    """Is there a limit that counts per thread?"""
    return any(limit.scope == "thread" and limit.max is not None for limit in policy.limits)


def used_by(journal: Journal, thread: str) -> Used:
    """What all runs of a thread have used. A run that was killed counts with what it had used by then."""
    return total(used_of(journal, record) for record in journal.runs(thread))


def used_of(journal: Journal, record: RunRecord) -> Used:
    """What a run has used, by now if it has not ended."""
    if record.used is not None:
        return record.used
    compiled = compile(Policy.model_validate_json(record.policy))
    state = replay(compiled, (step.event for step in journal.load(record.run).steps))
    return compiled.used(state)
