"""Which policy a recorded run is replayed under: its own, or what another one means for its place in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.core.step import Compiled
    from engine.store.protocol import RunRecord


class UnreadablePolicyError(Exception):
    """The policy stored with a run cannot be read by this release. The message says what can be done."""


class Policies:
    """The policies of the runs of one journal, each compiled once; ``other`` goes before those they are bound to."""

    def __init__(self, records: Iterable[RunRecord], other: Policy | None) -> None:
        self._nodes = {record.node or record.run: record for record in records}
        self._other = other
        self._stored: dict[str, Policy] = {}
        self._compiled: dict[str, Compiled] = {}

    def of(self, record: RunRecord) -> Compiled:
        """The policy to decide by. Raises ``UnreadablePolicyError``."""
        from engine.core.step import compile

        policy = self._own(record) if self._other is None else self._under(self._other, record)
        key = policy.model_dump_json()
        if key not in self._compiled:
            self._compiled[key] = compile(policy)
        return self._compiled[key]

    def _own(self, record: RunRecord) -> Policy:
        from engine.core.policy import Policy

        text = record.policy
        if text not in self._stored:
            try:
                self._stored[text] = Policy.model_validate_json(text)
            except ValueError:
                raise UnreadablePolicyError(
                    f"the policy stored with run {record.run} cannot be read by this release:"
                    " use the release that wrote it, or name a policy with --policy"
                ) from None
        return self._stored[text]

    def _under(self, other: Policy, record: RunRecord) -> Policy:
        """What the other policy is for this run: for an agent's, its block, and no more than it was given then."""
        from engine.core.giving import within
        from engine.core.narrowing import narrowed_alike

        budgets = _budgets(record)
        if not record.depth:
            return within(other, budgets[-1])
        above = self._nodes.get((record.node or record.run).rpartition(".")[0])
        if above is None:  # the host has never woken the one above
            return self._below(other, record, budgets)
        written = self._own(above).of_agent(record.agent)
        alike = narrowed_alike(self._under(other, above).of_agent(record.agent), written, self._own(record))
        return within(alike, budgets[-1])

    def _below(self, other: Policy, record: RunRecord, budgets: Sequence[dict[str, int]]) -> Policy:
        """The blocks on the way from the top to a run, each with the budget that the host gave for it."""
        from engine.core.giving import within

        policy = within(other, budgets[0])
        agents = self._own(record).name.split("/")[-record.depth :]
        for agent, budget in zip(agents, budgets[1:], strict=True):
            policy = within(policy.of_agent(agent), budget)
        return policy


def _budgets(record: RunRecord) -> Sequence[dict[str, int]]:
    """What the host has given each node from the top of the tree to that of a run, beside the policy."""
    import msgspec

    from engine.run.records import host_record

    nothing: list[dict[str, int]] = [{}] * (record.depth + 1)
    try:
        budgets = host_record(record).budgets
    except msgspec.MsgspecError:  # hosts of another kind keep that in their own way
        return nothing
    return budgets if len(budgets) == record.depth + 1 else nothing
