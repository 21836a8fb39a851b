"""A request with the same Idempotency-Key is done once within an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.gateway.http import repeats
from moldau.gateway.http.answers import Answer
from moldau.gateway.http.repeats import Repeats
from moldau.web.failures import ApiError

DONE = Answer(200, b"done")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Counts how often it is done."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.count = 0
        self._answers = answers or (DONE,)
        self.gate: asyncio.Event | None = None

    async def __call__(self) -> Answer:
        self.count += 1
        answer = self._answers[min(self.count, len(self._answers)) - 1]
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def once(
    to: Repeats, do: Callable[[], Awaitable[Answer]], key: bytes = b"k", user: str = "anna", body: bytes = b"b"
) -> Awaitable[Answer]:
    return to.once(user, "topic", key, body, do)


def test_a_repetition_gets_the_answer_of_the_first() -> None:
    async def main() -> None:
        clock, work = Clock(), Work()
        seen = Repeats(clock)
        assert [await once(seen, work) for _ in range(3)] == [DONE] * 3
        assert work.count == 1
        await once(seen, work, user="bert")
        await once(seen, work, key=b"other")
        assert work.count == 3
        clock.now = repeats.REMEMBERED_S
        await once(seen, work)
        assert work.count == 3
        clock.now += 1
        await once(seen, work)
        assert work.count == 4

    asyncio.run(main())


def test_a_repetition_waits_while_the_first_is_under_way() -> None:
    async def main() -> None:
        work = Work()
        work.gate = asyncio.Event()
        seen = Repeats(Clock())
        both = [asyncio.ensure_future(once(seen, work)) for _ in range(2)]
        await asyncio.sleep(0)
        work.gate.set()
        assert await asyncio.gather(*both) == [DONE, DONE]
        assert work.count == 1

    asyncio.run(main())


@pytest.mark.parametrize("failed", [Answer(503, b"busy"), ApiError(503, "BUSY", "busy"), Answer(207, b"some")])
def test_what_was_refused_is_tried_again_and_what_is_done_in_part_is_not(failed: Answer | Exception) -> None:
    async def main() -> None:
        work = Work(failed, DONE)
        seen = Repeats(Clock())
        for _ in range(3):
            try:
                await once(seen, work)
            except ApiError:
                assert isinstance(failed, ApiError)
        assert work.count == (1 if failed == Answer(207, b"some") else 2)

    asyncio.run(main())


def test_what_may_be_done_is_not_done_again() -> None:
    """After 504 the records may be there: the repetition is told the same."""

    async def main() -> None:
        work = Work(Answer(504, b"perhaps"), DONE)
        seen = Repeats(Clock())
        assert [(await once(seen, work)).status for _ in range(2)] == [504, 504]

    asyncio.run(main())


def test_waiters_of_a_cancelled_request_are_told_that_it_may_be_done() -> None:
    async def main() -> None:
        work = Work()
        work.gate = asyncio.Event()
        seen = Repeats(Clock())
        first, second = (asyncio.ensure_future(once(seen, work)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(ApiError, match="may have been appended"):
            await second

    asyncio.run(main())


def test_another_body_under_the_same_key_is_refused() -> None:
    async def main() -> None:
        seen = Repeats(Clock())
        await once(seen, Work())
        with pytest.raises(ApiError, match="another body"):
            await once(seen, Work(), body=b"c")

    asyncio.run(main())


@pytest.mark.parametrize("key", [b"", b"k" * 201])
def test_a_key_that_cannot_be_is_refused(key: bytes) -> None:
    async def main() -> None:
        with pytest.raises(ApiError, match="must have 1 to 200 bytes"):
            await once(Repeats(Clock()), Work(), key=key)

    asyncio.run(main())


def test_the_oldest_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "BYTES_MAX", 10 * repeats.ENTRY_BYTES)

    async def main() -> None:
        work, seen = Work(), Repeats(Clock())
        for number in range(12):
            await once(seen, work, key=b"%d" % number)
        await once(seen, work, key=b"11")
        assert work.count == 12
        await once(seen, work, key=b"0")
        assert work.count == 13

    asyncio.run(main())


def test_a_request_under_way_is_not_forgotten_for_the_answers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(repeats, "BYTES_MAX", 2 * repeats.ENTRY_BYTES)
        seen, slow, quick = Repeats(Clock()), Work(), Work()
        slow.gate = asyncio.Event()
        first = asyncio.ensure_future(once(seen, slow))
        await asyncio.sleep(0)
        for number in range(5):
            await once(seen, quick, key=b"%d" % number)
        second = asyncio.ensure_future(once(seen, slow))
        await asyncio.sleep(0)
        slow.gate.set()
        assert await asyncio.gather(first, second) == [DONE, DONE]
        assert slow.count == 1
        await once(seen, quick, key=b"last")
        await once(seen, quick, key=b"last")
        assert quick.count == 6

    asyncio.run(main())
