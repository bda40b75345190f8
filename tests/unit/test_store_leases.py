"""Leases: one process drives a run, and one that has lost it writes nothing any more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from store_views import Place, file, place

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import Request
from engine.store import Asked, LeaseError, RunRecord
from engine.store.leases import thread_key
from engine.store.owners import gone, known_dead, new_owner, owner_words

__all__ = ["file", "place"]

TICK = (e.Tick(1), d.Wait(9))
TTL = 30_000


def begun(place: Place, *runs: str, root: str | None = None) -> None:
    store = place.view()
    for run in runs:
        store.begin(RunRecord(run, "{}", place.now, root=root, parent=root))


def test_one_owner_has_it(place: Place) -> None:
    lease = place.view().acquire("r", "ann", TTL)
    assert (lease.key, lease.owner, lease.since, lease.until) == ("r", "ann", place.now, place.now + TTL)
    assert place.view().leases() == [lease]
    with pytest.raises(LeaseError) as caught:
        place.view().acquire("r", "bob", TTL)
    said = "run 'r' is driven by ann since 2023-11-14 22:13:20 UTC: wait for its end, or stop that process"
    assert str(caught.value) == said
    place.view().acquire("q", "bob", TTL)


def test_whoever_has_it_may_take_it_again(place: Place) -> None:
    store = place.view()
    first = store.acquire("r", "ann", TTL)
    place.now += 10
    again = store.acquire("r", "ann", TTL)
    assert (again.since, again.until) == (first.since, place.now + TTL)


def test_a_thread_has_its_own(place: Place) -> None:
    store = place.view()
    store.acquire(thread_key("t"), "ann", TTL)
    store.acquire("t", "bob", TTL)
    with pytest.raises(LeaseError, match="thread 't' is driven by ann since"):
        place.view().acquire(thread_key("t"), "bob", TTL)


def test_given_back_it_is_free(place: Place) -> None:
    store = place.view()
    lease = store.acquire("r", "ann", TTL)
    store.release(lease)
    store.release(lease)
    assert place.view().leases() == []
    other = place.view().acquire("r", "bob", TTL)
    store.release(lease)
    assert place.view().leases() == [other]


def test_renewed_it_holds_longer(place: Place) -> None:
    store = place.view()
    lease = store.acquire("r", "ann", TTL)
    place.now += TTL - 1
    renewed = store.renew(lease, TTL)
    assert (renewed.since, renewed.until) == (lease.since, place.now + TTL)
    place.now += TTL - 1
    with pytest.raises(LeaseError):
        place.view().acquire("r", "bob", TTL)


def test_run_out_it_is_taken_over_and_the_first_owner_writes_nothing_more(place: Place) -> None:
    begun(place, "r")
    first = place.view()
    lease = first.acquire("r", "ann", TTL)
    first.append("r", 0, *TICK)
    place.now += TTL
    assert place.view().leases() == []
    first.append("r", 1, *TICK)  # nobody has taken it over yet
    if place.kind == "memory":
        return  # it has one view only, whose owner is the last one
    second = place.view()
    second.acquire("r", "bob", TTL)
    said = "run 'r' is driven by another process since 2023-11-14 22:13:50 UTC (bob): nothing is written here any more"
    ref = first.put(b"content")
    for write in (
        lambda: first.append("r", 2, *TICK),
        lambda: first.ask("r", [Asked(Request("1.0", "tool", "send"))]),
        lambda: first.begin(RunRecord("r.1", "{}", 0, root="r")),
        lambda: first.renew(lease, TTL),
    ):
        with pytest.raises(LeaseError) as caught:
            write()
        assert str(caught.value) == said
    assert first.get(ref) == b"content"
    assert len(second.load("r").steps) == 2
    assert [record.run for record in second.runs()] == ["r"]
    assert second.requests() == []
    assert second.record("r").status == "running"
    second.append("r", 2, *TICK)


def test_taken_over_and_given_back_it_is_still_lost(file: Place) -> None:
    begun(file, "r")
    first = file.view()
    first.acquire("r", "ann", TTL)
    file.now += TTL
    second = file.view()
    second.release(second.acquire("r", "bob", TTL))
    with pytest.raises(LeaseError, match="was driven by another process meanwhile, which has let it go"):
        first.append("r", 0, *TICK)


def test_the_lease_of_the_root_guards_the_whole_tree(file: Place) -> None:
    begun(file, "r")
    begun(file, "r.1", root="r")
    first = file.view()
    first.acquire("r", "ann", TTL)
    first.load("r.1")
    first.begin(RunRecord("r.2", "{}", 0, root="r", parent="r"))
    for run in ("r", "r.1", "r.2"):
        first.append(run, 0, *TICK)
    file.now += TTL
    file.view().acquire("r", "bob", TTL)
    for run in ("r", "r.1", "r.2"):
        with pytest.raises(LeaseError):
            first.append(run, 1, *TICK)
    begun(file, "q")
    first.append("q", 0, *TICK)  # another tree is none of its business


def test_an_owner_of_a_living_process() -> None:
    owner = new_owner()
    assert owner != new_owner()
    assert owner_words(owner).startswith(f"process {os.getpid()} on ")
    assert not known_dead(owner)
    assert owner_words("somebody else") == "somebody else"
    assert not known_dead("somebody else")


def test_a_process_that_is_known_to_be_dead_keeps_nothing(place: Place) -> None:
    script = "from engine.store.owners import new_owner; print(new_owner())"
    owner = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert known_dead(owner)
    place.view().acquire("r", owner, TTL)
    assert place.view().acquire("r", "bob", TTL).owner == "bob"


def test_a_process_elsewhere_is_waited_for(place: Place) -> None:
    pid, _, rest = new_owner().partition("@")
    host, seen, token = rest.split("/")
    assert not known_dead(f"{pid}@elsewhere/{seen}/{token}")
    dead = f"999999999@{host}/000000000000/{token}"  # the same name, another machine or container
    assert not known_dead(dead)
    place.view().acquire("r", dead, TTL)
    with pytest.raises(LeaseError, match=f"process 999999999 on {host} since .*, or stop that process"):
        place.view().acquire("r", "bob", TTL)


def test_an_owner_that_could_not_give_back_keeps_nothing_from_its_own_process(place: Place) -> None:
    owner = new_owner()
    place.view().acquire("r", owner, TTL)
    gone(owner)
    assert place.view().acquire("r", "bob", TTL).owner == "bob"
