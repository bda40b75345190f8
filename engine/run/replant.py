"""A tree that a host drives by itself, taken up from the journal: its nodes as the host made them, then its runs."""

from __future__ import annotations

import collections

from engine.core import events as e
from engine.core.step import Compiled
from engine.run.acts import AnyAct, Closed, Opened, Posted, Spawned, decoded
from engine.run.records import host_record, policy_change
from engine.run.regrow import regrow
from engine.run.tree import Tree
from engine.store import JournalError, RunRecord, Store


def acts_of(store: Store, id: str) -> tuple[Opened, tuple[AnyAct, ...]] | None:
    """How the host has opened a tree, and what it did to it then; ``None`` if no host drives a tree of this id."""
    try:
        acts = [decoded(text) for text in store.acts(id)]
    except ValueError as exc:
        raise JournalError(f"what the host of tree {id} has done is damaged: {exc}") from None
    if not acts:
        return None
    first = acts[0]
    if not isinstance(first, Opened):
        raise JournalError(f"what the host of tree {id} has done does not begin with its opening")
    return first, tuple(acts[1:])


def replant(tree: Tree, store: Store, opened: Opened, acts: tuple[AnyAct, ...], compiled: Compiled) -> tuple[str, ...]:
    """Rebuild such a tree and let its runs go on. The nodes that were being closed: their runs only end.

    Raises:
        ValueError: it began with other agents, clients or policy than the driver has.
    """
    if opened.fingerprint != compiled.fingerprint:
        change = policy_change(RunRecord(opened.id, opened.policy, opened.at, opened.fingerprint), compiled)
        raise ValueError(f"tree {opened.id} was opened under another policy: {change}; it goes on as it began")
    tree.earlier, tree.root.kept = opened.earlier, True
    tree.open(opened.at, opened.budget)
    closing = tuple(act.id for act in acts if isinstance(act, Closed))
    regrow(tree, store, planted=[act for act in acts if isinstance(act, Spawned)], closing=closing)
    _unread(tree, store, [act for act in acts if isinstance(act, Posted)])
    return closing


def _unread(tree: Tree, store: Store, posts: list[Posted]) -> None:
    """Messages that joined neither a call of a node nor the beginning of one of its runs wait for the next one."""
    read: collections.Counter[str] = collections.Counter()
    for record in store.runs(tree=tree.root.id):
        node = record.node or record.run
        joined = (len(s.event.refs) for s in store.load(record.run).steps if isinstance(s.event, e.CallRequested))
        read[node] += host_record(record).posts + sum(joined)
    for post in posts:
        if read[post.id]:
            read[post.id] -= 1
        elif (seat := tree.seats.get(post.id)) is not None:
            seat.posts.append(post.ref)
