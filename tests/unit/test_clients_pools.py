"""Several small pools of connections in the place of one large one: who gets which, and when one is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from engine.clients.pools import SIZE, Pools


class Made:
    def __init__(self, made: list[Made]) -> None:
        made.append(self)
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def pools(**options: Any) -> tuple[Pools, list[Made]]:
    made: list[Made] = []
    return Pools(lambda: Made(made), **options), made  # type: ignore[arg-type, return-value]


def test_a_pool_that_is_full_is_followed_by_another() -> None:
    them, made = pools()
    taken = [them.take() for _ in range(2 * SIZE + 1)]
    assert len(made) == 3
    assert [sum(pool.http is each for pool in taken) for each in made] == [SIZE, SIZE, 1]


def test_requests_go_to_the_first_pool_with_room() -> None:
    async def main() -> None:
        them, made = pools()
        taken = [them.take() for _ in range(SIZE + 1)]
        await them.give(taken[0])
        assert them.take().http is made[0]
        assert len(made) == 2

    asyncio.run(main())


def test_empty_pools_are_closed_when_there_is_room_enough_without_them() -> None:
    async def main() -> None:
        them, made = pools()
        taken = [them.take() for _ in range(4 * SIZE)]
        for pool in reversed(taken):
            await them.give(pool)
        assert [each.closed for each in made] == [False, True, True, True]
        assert them.take().http is made[0]
        await them.aclose()
        assert all(each.closed for each in made)

    asyncio.run(main())


def test_a_request_more_or_less_than_a_pool_carries_opens_nothing_anew() -> None:
    async def main() -> None:
        them, made = pools()
        for _ in range(SIZE):
            them.take()
        for _ in range(10):
            await them.give(them.take())
        assert (len(made), made[1].closed) == (2, False)

    asyncio.run(main())


def test_a_transport_of_the_host_s_own_is_one_pool() -> None:
    them, made = pools(one=True)
    for _ in range(3 * SIZE):
        them.take()
    assert len(made) == 1
