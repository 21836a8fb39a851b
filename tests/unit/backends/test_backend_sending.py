"""Threads that send to a backend: chunks, bad rows, retries, outages, back pressure, errors, a prompt end."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.error import URLError

import pytest
from harness.patience import wait_until

from moldau.backends.delivery import Delivery
from moldau.backends.interface import Away, Failed, Misconfigured, Refused, Retry, Row
from moldau.backends.policy import Outage, Traffic
from moldau.backends.sending import BackendGivenUp, Dead, Sending, retry_of

Write = Callable[[Sequence[Row]], "Sequence[Failed] | None"]


@dataclass
class Scripted:
    """A backend whose `write` is a function, and who counts."""

    on_write: Write
    opened: int = 0
    closed: int = 0
    taken: list[str] = field(default_factory=list)

    def open(self) -> None:
        self.opened += 1

    def write(self, rows: Sequence[Row]) -> Sequence[Failed] | None:
        failures = self.on_write(rows)
        failed = {failure.index for failure in failures or ()}
        self.taken += [row.key for index, row in enumerate(rows) if index not in failed]
        return failures

    def close(self) -> None:
        self.closed += 1


def rows(count: int) -> Iterator[Row]:
    return (Row(str(number), {}) for number in range(count))


def sending(
    backend: Scripted, on_outage: Callable[[Outage | None], None] = lambda _: None, **delivery: object
) -> Sending:
    settings = Delivery(**delivery)  # type: ignore[arg-type]
    return Sending(lambda: backend, settings, Traffic(settings.limits(), lambda: 0.0), on_outage=on_outage)


def test_all_rows_are_sent_in_order_by_one_thread() -> None:
    sizes: list[int] = []
    backend = Scripted(lambda rows: sizes.append(len(rows)))
    delivered: list[str] = []
    one = sending(backend, batch_rows=3)
    one.on_delivered = lambda rows: delivered.extend(row.key for row in rows)
    assert list(one.send(rows(10))) == []
    assert backend.taken == delivered == [str(number) for number in range(10)]
    assert sizes == [3, 3, 3, 1]
    assert (backend.opened, backend.closed) == (1, 1)


def test_rows_that_are_tried_again_are_told_with_the_error() -> None:
    attempts: list[int] = []

    def write(batch: Sequence[Row]) -> Sequence[Failed]:
        attempts.append(len(batch))
        return [Failed(0, Retry("full")), Failed(2, Refused("bad"))] if len(attempts) == 1 else []

    told: list[tuple[int, str]] = []
    one = sending(Scripted(write), batch_rows=3)
    one.on_retries = lambda rows, error: told.append((rows, str(error)))
    assert [dead.reason for dead in one.send(rows(3))] == ["bad"]
    assert told == [(1, "full")], "a refused row is not tried again"


def test_a_backend_without_rows_is_not_opened() -> None:
    backend = Scripted(lambda rows: None)
    assert list(sending(backend).send(rows(0))) == []
    assert backend.opened == 0


def test_bad_rows_are_left_out_and_the_others_go_on() -> None:
    def write(batch: Sequence[Row]) -> Sequence[Failed]:
        return [Failed(index, Refused(f"no {row.key}")) for index, row in enumerate(batch) if int(row.key) % 4 == 1]

    backend = Scripted(write)
    dead = list(sending(backend, batch_rows=3, parallel=2).send(rows(8)))
    assert sorted((each.row.key, each.reason) for each in dead) == [("1", "no 1"), ("5", "no 5")]
    assert sorted(backend.taken) == ["0", "2", "3", "4", "6", "7"]


def test_only_rows_that_failed_are_sent_again() -> None:
    attempts: list[list[str]] = []

    def write(batch: Sequence[Row]) -> Sequence[Failed]:
        attempts.append([row.key for row in batch])
        return [Failed(1, Retry("later"))] if len(attempts) == 1 else []

    assert list(sending(Scripted(write), batch_rows=3).send(rows(3))) == []
    assert attempts == [["0", "1", "2"], ["1"]]


def test_a_row_that_failed_with_an_error_of_the_network_is_sent_again() -> None:
    attempts: list[list[str]] = []

    def write(batch: Sequence[Row]) -> Sequence[Failed]:
        attempts.append([row.key for row in batch])
        return [Failed(1, ConnectionResetError(104, "reset"))] if len(attempts) == 1 else []

    assert list(sending(Scripted(write), batch_rows=3).send(rows(3))) == []
    assert attempts == [["0", "1", "2"], ["1"]]


@pytest.mark.parametrize("failed", [(0, ValueError("a bug")), (-1, Retry("later")), (3, Retry("later"))])
def test_a_failure_that_says_nothing_of_a_row_fails_the_query(failed: tuple[int, Retry]) -> None:
    with pytest.raises(TypeError, match="Failed"):
        list(sending(Scripted(lambda batch: [Failed(*failed)]), batch_rows=3).send(rows(3)))


def test_a_row_that_always_fails_is_dead_after_its_retries() -> None:
    def write(batch: Sequence[Row]) -> None:
        if batch[0].key == "1":
            raise Retry("HTTP 500")

    backend = Scripted(write)
    dead = list(sending(backend, retries=1, parallel=2).send(rows(4)))
    assert [(each.row.key, each.reason) for each in dead] == [("1", "HTTP 500 (after 2 attempts)")]
    assert sorted(backend.taken) == ["0", "2", "3"]


def test_an_outage_is_told_and_nothing_is_lost() -> None:
    calls: list[str] = []
    told: list[str | None] = []

    def write(batch: Sequence[Row]) -> None:
        calls.append(batch[0].key)
        if len(calls) < 7:
            raise ConnectionRefusedError(111, "Connection refused")

    backend = Scripted(write)
    one = sending(backend, lambda outage: told.append(outage and outage.reason), parallel=3, retries=0)
    assert list(one.send(rows(5))) == []
    assert sorted(backend.taken) == ["0", "1", "2", "3", "4"]
    assert told == ["ConnectionRefusedError: Connection refused", None]


def test_an_outage_is_seen_by_one_chunk_of_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.backends.policy.PAUSE_S", 0.001)
    calls: list[int] = []
    told: list[str | None] = []

    def write(batch: Sequence[Row]) -> None:
        calls.append(len(batch))
        if len(calls) < 9:
            raise Retry("HTTP 502")

    backend = Scripted(write)
    one = sending(backend, lambda outage: told.append(outage and outage.reason), batch_rows=3, retries=4)
    assert list(one.send(rows(3))) == []
    assert calls == [3] * 9
    assert told == ["HTTP 502", None]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EHOSTUNREACH, "No route to host"), Away),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), Away),
        (OSError(errno.ECONNREFUSED, "Connection refused"), Away),
        (URLError(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")), Away),
        (URLError("unknown url type"), Retry),
        (TimeoutError("timed out"), Retry),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), Retry),
    ],
)
def test_an_error_of_the_network_says_whether_anybody_is_there(error: OSError, kind: type[Retry]) -> None:
    assert type(retry_of(error)) is kind


def test_a_backend_that_stays_away_fails_or_makes_dead_letters() -> None:
    def write(batch: Sequence[Row]) -> None:
        raise Away("nobody there")

    dead: list[Dead] = []
    with pytest.raises(BackendGivenUp, match="nobody there"):
        dead.extend(sending(Scripted(write), retry_for_s=0.01).send(rows(3)))
    assert dead == []
    dead = list(sending(Scripted(write), retry_for_s=0.01, give_up="dead_letter").send(rows(3)))
    assert [each.row.key for each in dead] == ["0", "1", "2"]


@pytest.mark.parametrize("error", [Misconfigured("wrong password"), KeyError("a bug")])
def test_other_errors_fail_the_query(error: Exception) -> None:
    def write(batch: Sequence[Row]) -> None:
        raise error

    backend = Scripted(write)
    with pytest.raises(type(error)):
        list(sending(backend, parallel=2).send(rows(1000)))
    wait_until(lambda: backend.opened == backend.closed, "all are closed")


def test_a_slow_backend_makes_the_caller_wait() -> None:
    may_go = threading.Event()
    asked: list[str] = []

    def read() -> Iterator[Row]:
        for row in rows(1000):
            asked.append(row.key)
            yield row

    def write(batch: Sequence[Row]) -> None:
        may_go.wait()

    backend = Scripted(write)
    dead: list[Dead] = []
    caller = threading.Thread(target=lambda: dead.extend(sending(backend, parallel=2).send(read())), daemon=True)
    caller.start()
    wait_until(lambda: len(asked) == 5, "two rows are sent, two wait, one is in the hand of the caller")
    time.sleep(0.05)
    assert len(asked) == 5
    may_go.set()
    caller.join()
    assert len(backend.taken) == 1000


def test_the_end_of_the_caller_ends_a_long_pause() -> None:
    sent = threading.Event()

    def write(batch: Sequence[Row]) -> Sequence[Failed]:
        if batch[0].key == "0":
            return [Failed(0, Refused("the first"))]
        sent.set()
        raise Away("come back tomorrow", 3600.0)

    backend = Scripted(write)
    iterator = sending(backend).send(rows(10))
    assert next(iterator).reason == "the first"
    assert sent.wait()
    iterator.close()  # type: ignore[attr-defined]
    assert backend.closed == 1
