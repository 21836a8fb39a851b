"""Who has too many bytes under way waits in turn, and a place that nobody wants any more is free again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from harness.depth import deep
from harness.virtual_loop import run_virtual, settle

from moldau.gateway.kafka.room import Room


def test_who_finds_no_room_waits_until_some_is_given_back() -> None:
    async def main() -> None:
        room = Room(10)
        await room.take(6)
        await room.take(4)
        waiting = asyncio.create_task(room.take(5))
        await settle()
        room.give_back(4)
        await settle()
        assert not waiting.done()
        room.give_back(6)
        await waiting
        assert room.bytes_taken == 5

    run_virtual(main)


def test_the_small_do_not_overtake_the_large() -> None:
    async def main() -> None:
        room = Room(10)
        order: list[int] = []

        async def take(size: int) -> None:
            await room.take(size)
            order.append(size)

        await room.take(8)
        tasks = [asyncio.create_task(take(size)) for size in (9, 1, 2)]
        await settle()
        assert order == []
        room.give_back(8)
        await settle()
        assert order == [9, 1]
        room.give_back(9)
        await asyncio.gather(*tasks)
        assert order == [9, 1, 2]

    run_virtual(main)


def test_what_is_larger_than_the_room_has_it_alone() -> None:
    async def main() -> None:
        room = Room(10)
        await room.take(1)
        large = asyncio.create_task(room.take(100))
        await settle()
        assert not large.done()
        room.give_back(1)
        await large
        small = asyncio.create_task(room.take(1))
        await settle()
        assert not small.done()
        room.give_back(100)
        await small

    run_virtual(main)


def test_one_account_that_takes_all_of_its_room_leaves_the_others_theirs() -> None:
    async def main() -> None:
        everybody = Room(100)
        anna, bob = Room(10, everybody), Room(10, everybody)
        await anna.take(10)
        waiting = asyncio.create_task(anna.take(1))
        await bob.take(10)
        assert everybody.bytes_taken == 20
        assert not waiting.done()
        anna.give_back(10)
        await waiting
        assert (anna.bytes_taken, everybody.bytes_taken) == (1, 11)

    run_virtual(main)


def test_who_waits_for_the_room_of_all_and_is_cancelled_gives_back_its_own() -> None:
    async def main() -> None:
        everybody = Room(10)
        anna, bob = Room(10, everybody), Room(10, everybody)
        await anna.take(10)
        waiting = asyncio.create_task(bob.take(5))
        await settle()
        assert bob.bytes_taken == 5
        waiting.cancel()
        await settle()
        assert (waiting.cancelled(), bob.bytes_taken) == (True, 0)

    run_virtual(main)


def test_the_next_has_the_turn_of_who_is_cancelled() -> None:
    async def main() -> None:
        room = Room(10)
        await room.take(6)
        large = asyncio.create_task(room.take(10))
        small = asyncio.create_task(room.take(4))
        await settle()
        assert not small.done()
        large.cancel()
        await small
        assert room.bytes_taken == 10

    run_virtual(main)


@pytest.mark.parametrize("is_cancelled_first", [True, False])
def test_room_is_given_back_in_the_turn_in_which_the_next_is_cancelled(is_cancelled_first: bool) -> None:
    """A device goes away in the turn of the event loop in which a broker answers."""

    async def main() -> None:
        room = Room(10)
        await room.take(10)
        gone = asyncio.create_task(room.take(3))
        stays = asyncio.create_task(room.take(4))
        await settle()
        if is_cancelled_first:
            gone.cancel()
        room.give_back(10)
        gone.cancel()
        await stays
        assert (gone.cancelled(), room.bytes_taken) == (True, 4)

    run_virtual(main)


@pytest.mark.parametrize("seed", range(deep(20, quick=10)))
def test_no_byte_is_lost_whoever_comes_and_goes(seed: int) -> None:
    rng = Random(seed)

    async def main() -> None:
        everybody = Room(50)
        rooms = [Room(30, everybody) for _ in range(3)]

        async def come(room: Room) -> None:
            size = rng.choice([0, 1, 5, 20, 40, 60])
            await room.take(size)
            try:
                await asyncio.sleep(rng.choice([0, 0, 1, 2]))
            finally:
                room.give_back(size)

        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(come(rng.choice(rooms))))
            if rng.random() < 0.3:
                rng.choice(tasks).cancel()
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice([0, 1]))
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [room.bytes_taken for room in (*rooms, everybody)] == [0, 0, 0, 0]
        await asyncio.gather(*(room.take(10) for room in rooms))

    run_virtual(main)
