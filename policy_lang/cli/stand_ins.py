"""What a recorded run needs to be looked at or ended without what it ran with: its policy, clients that say nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from policy_lang.cli.journals import NotFound

if TYPE_CHECKING:
    from engine.core.messages import Reply
    from engine.core.policy import Policy
    from engine.run.agents import Agent
    from engine.store.protocol import RunRecord
    from engine.store.sqlite import SqliteStore


@dataclass(frozen=True)
class Absent:
    """Stands in for a client of a run that is ended: it has the same name and model, and cannot be called."""

    name: str
    wire: str
    model: str

    async def complete(self, request: Any, **_: Any) -> Reply:
        from engine.clients.base import ModelError

        raise ModelError("host", f"client `{self.name}` is not here: the run is only being ended")

    async def aclose(self) -> None:
        """Nothing is open."""


def clients(record: RunRecord) -> dict[str, Absent]:
    """Clients with the names and models that a run began with, the first one in front."""
    import msgspec

    from engine.run.records import host_record

    try:
        host = host_record(record)
    except msgspec.MsgspecError:
        raise NotFound(
            f"run {record.run} was begun by a host of another kind, which alone can end it: its record names no clients"
        ) from None
    names = [host.primary, *(name for name in host.clients if name != host.primary)]
    return {name: Absent(name, *host.clients[name]) for name in names}


def agents(store: SqliteStore, record: RunRecord) -> list[Agent]:
    """Agents with the names of those in the tree of a run; one at least if it could have delegated to any."""
    from engine.core.events import PoolsSeen
    from engine.run.agents import Agent

    names = {each.agent for each in store.runs(tree=record.run) if each.agent}
    if not names and any(isinstance(step.event, PoolsSeen) for step in store.load(record.run).steps):
        names = {"nobody"}
    return [Agent(name, "It is not here: the run is only being ended.") for name in sorted(names)]


def stored_policy(record: RunRecord) -> Policy:
    """The policy that a run is bound to. Raises ``NotFound`` if this release cannot read it."""
    from engine.core.policy import Policy

    try:
        return Policy.model_validate_json(record.policy)
    except ValueError:
        raise NotFound(
            f"the policy stored with run {record.run} cannot be read by this release: use the release that wrote it"
        ) from None
