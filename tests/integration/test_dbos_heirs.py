"""Who goes on with the runs of a dead worker: one alone, nobody for one that lives, and somebody for the heir's too."""

import random

import pytest

pytest.importorskip("dbos", reason="DBOS is not here: pip install 'policy-lang[dbos]'")

import sqlalchemy as sa

from engine.runtimes.dbos.board import METADATA, Board
from engine.runtimes.dbos.heirs import Heirs

LEASE = 10.0


class World:
    """Workers with a board in memory, and a clock that only a test moves on."""

    def __init__(self, *names):
        engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
        METADATA.create_all(engine)
        self.board = Board(engine)
        self.now = 0.0
        self.heirs = {}
        for name in names:
            self.enter(name)

    def enter(self, name):
        self.board.enter(name)
        self.heirs[name] = Heirs(self.board, name, LEASE, lambda: self.now)

    def pass_time(self, seconds, *alive, step=2.5):
        """So much time goes by, in which these are alive and look; who is an heir of whom in the end."""
        found = {}
        for _ in range(round(seconds / step)):
            self.now += step
            for name in alive:
                if self.board.beat(name):
                    found[name] = self.heirs[name].dead()
        return {name: dead for name, dead in found.items() if dead}


def test_nobody_is_the_heir_of_the_living():
    assert World("a", "b", "c").pass_time(100, "a", "b", "c") == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_dead_worker_has_one_heir_after_a_lease(seed):
    world = World("a", "b", "c", "d")
    world.pass_time(20, "a", "b", "c", "d")
    alive = ["b", "c", "d"]
    random.Random(seed).shuffle(alive)
    assert world.pass_time(LEASE - 2.5, *alive) == {}
    found = world.pass_time(5, *alive)
    assert list(found.values()) == [["a"]]


def test_the_heir_of_an_heir_has_the_runs_of_both():
    world = World("a", "b", "c")
    assert world.pass_time(30, "b") == {"b": ["a", "c"]}
    world.enter("d")
    found = world.pass_time(30, "d")
    assert sorted(found["d"]) == ["a", "b", "c"]


def test_who_has_left_is_inherited_at_once():
    world = World("a", "b")
    world.board.leave("a")
    assert world.pass_time(2.5, "b") == {"b": ["a"]}


def test_time_without_the_board_condemns_nobody():
    world = World("a", "b")
    world.pass_time(20, "a", "b")
    world.now += 100  # nobody could write
    world.heirs["b"].blind()
    assert world.pass_time(LEASE - 2.5, "b") == {}
    assert world.pass_time(50, "a", "b") == {}


def test_who_was_taken_for_dead_is_told_with_the_next_heartbeat():
    world = World("a", "b")
    assert world.pass_time(20, "b") == {"b": ["a"]}
    assert not world.board.beat("a")


def test_who_comes_back_in_the_last_moment_is_not_inherited():
    world = World("a", "b")
    (peer,) = [peer for peer in world.board.peers() if peer.worker == "a"]
    world.board.beat("a")
    assert not world.board.inherit(peer, "b")
    assert world.board.beat("a")


def test_a_dead_worker_without_runs_is_forgotten_some_time():
    world = World("a", "b")
    world.pass_time(20, "b")
    world.heirs["b"].had_runs("a")
    world.pass_time(LEASE * 25, "b")
    assert [peer.worker for peer in world.board.peers()] == ["b"]
