"""Transactional producers and read_committed consumers of every library, in common use."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import transactional_libraries
from clients import write_values
from harness.patience import PATIENCE_S
from transaction_requests import describe_producers, fetch_offset, new_transactional_producer, until
from transactional_copier import Copier, CopierProcess, copied, group_of, java_copier, needs_java, transactional_id_of
from transactional_libraries import LIBRARIES, Found, is_fenced
from wire_client import Wire

CreateTopic = Callable[..., str]
END = b"the end"


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def calls_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node dies here, so no call needs a second try."""
    monkeypatch.setattr(transactional_libraries, "TRY_S", PATIENCE_S)


def read_to_the_end(reading: str, bootstrap: str, topic: str) -> list[bytes]:
    """Return what a read_committed consumer sees in partition 0 before the end mark."""
    source = LIBRARIES[reading].input(bootstrap, f"reader-{uuid.uuid4().hex[:8]}", topic)
    found: list[Found] = []
    try:
        until(
            lambda: found.extend(source.poll()),
            lambda _: bool(found) and found[-1].value == END,
            f"{reading} reads to the end",
        )
    finally:
        source.close()
    return [each.value for each in found[:-1]]


def test_all_libraries_read_committed_and_skip_aborted_transactions(
    bootstrap: str, create_topic: CreateTopic, transactional_id: str, library: str
) -> None:
    topic = create_topic()
    with LIBRARIES[library].writer(bootstrap, transactional_id) as writer:
        for number, committed in enumerate((True, False, True, False, False, True)):
            writer.begin()
            for place in "abc":
                writer.send(topic, f"{number}{place}".encode())
            if committed:
                writer.commit()
            else:
                writer.abort()
    write_values(bootstrap, topic, [END])
    for reading in LIBRARIES:
        found = read_to_the_end(reading, bootstrap, topic)
        assert found == [f"{number}{place}".encode() for number in (0, 2, 5) for place in "abc"], reading


def test_readers_wait_for_an_open_transaction(
    bootstrap: str, create_topic: CreateTopic, transactional_id: str, library: str
) -> None:
    """Neither its records nor later ones, transactional or not, are read until the successor ends the transaction."""
    topic = create_topic()
    write_values(bootstrap, topic, [b"before"])
    reader = LIBRARIES[library].input(bootstrap, f"reader-{uuid.uuid4().hex[:8]}", topic)
    found: list[bytes] = []

    def seen() -> list[bytes]:
        found.extend(each.value for each in reader.poll())
        return found

    try:
        with LIBRARIES[library].writer(bootstrap, transactional_id) as writer:
            writer.begin()
            writer.send(topic, b"never")
            with Wire(bootstrap) as wire:
                until(lambda: open_producers(wire, topic), lambda ids: len(ids) == 1, "it is written")
            write_values(bootstrap, topic, [b"after"])
            until(seen, lambda values: bool(values), "something is read")
            assert [*seen(), *reader.poll()] == [b"before"]
        with LIBRARIES[library].writer(bootstrap, transactional_id):
            until(seen, lambda values: b"after" in values, "the rest is read")
        assert found == [b"before", b"after"]
    finally:
        reader.close()


def open_producers(wire: Wire, topic: str) -> list[int]:
    return [each.producer_id for each in describe_producers(wire, topic).values() if each.current_txn_start_offset >= 0]


def test_a_second_instance_fences_the_first(
    bootstrap: str, create_topic: CreateTopic, transactional_id: str, library: str
) -> None:
    topic = create_topic()
    kind = LIBRARIES[library]
    with kind.writer(bootstrap, transactional_id) as first:
        first.begin()
        first.send(topic, b"of the first, never committed")
        with kind.writer(bootstrap, transactional_id) as second:
            with pytest.raises(kind.errors) as refused:  # noqa: PT012
                first.send(topic, b"too late")
                first.commit()
            assert is_fenced(refused.value), refused.value
            second.begin()
            second.send(topic, b"of the second")
            second.commit()
    write_values(bootstrap, topic, [END])
    assert read_to_the_end(library, bootstrap, topic) == [b"of the second"]


def test_offsets_are_committed_with_their_transaction(
    bootstrap: str, wire: Wire, create_topic: CreateTopic, transactional_id: str, library: str
) -> None:
    topic, output, group = create_topic(), create_topic(), f"group-{transactional_id}"

    def committed() -> int:
        return until(
            lambda: fetch_offset(wire, group, topic, require_stable=True),
            lambda answer: answer.error_code == 0,
            "no offset is pending",
        ).committed_offset  # type: ignore[no-any-return]

    with LIBRARIES[library].writer(bootstrap, transactional_id) as writer:
        for offset, is_committed, expected in ((5, True, 5), (7, False, 5), (9, True, 9)):
            writer.begin()
            writer.send(output, b"x")
            writer.send_offsets({(topic, 0): offset}, group)
            if is_committed:
                writer.commit()
            else:
                writer.abort()
            assert committed() == expected


def test_a_transaction_that_times_out_is_aborted(
    bootstrap: str, wire: Wire, create_topic: CreateTopic, transactional_id: str, library: str
) -> None:
    """The producer then gets an error of its library's kind; none of its records are visible."""
    topic, kind = create_topic(), LIBRARIES[library]
    with kind.writer(bootstrap, transactional_id, timeout_ms=3000) as writer:
        writer.begin()
        writer.send(topic, b"never")
        until(lambda: open_producers(wire, topic), lambda ids: len(ids) == 1, "it is written")
        until(lambda: open_producers(wire, topic), lambda ids: not ids, "it is aborted")
        with pytest.raises(kind.errors):  # noqa: PT012
            writer.send(topic, b"too late")
            writer.commit()
    write_values(bootstrap, topic, [END])
    assert read_to_the_end(library, bootstrap, topic) == []


def await_copy(wire: Wire, copier: Copier | CopierProcess, source: str, target: str, count: int) -> None:
    until(
        lambda: (copier.fault, fetch_offset(wire, group_of(target), source).committed_offset),
        lambda state: state[0] is not None or state[1] == count,
        "all records are copied",
    )


def test_a_copy_is_exact_although_every_third_transaction_is_aborted(
    bootstrap: str, wire: Wire, create_topic: CreateTopic, library: str
) -> None:
    source, target = create_topic(), create_topic()
    values = [b"%d" % number for number in range(400)]
    write_values(bootstrap, source, values)
    with Copier(library, bootstrap, source, target, 1, abort_every=3) as copier:
        await_copy(wire, copier, source, target, len(values))
    assert copier.errors == []
    assert copier.begun > copier.committed
    write_values(bootstrap, target, [END])
    assert read_to_the_end(library, bootstrap, target) == [copied(value) for value in values]


@needs_java
def test_a_fenced_java_copier_restarts_and_copies_exactly(
    bootstrap: str, wire: Wire, create_topic: CreateTopic
) -> None:
    source, target = create_topic(), create_topic()
    values = [b"%d" % number for number in range(800)]
    write_values(bootstrap, source, values[:400])
    with java_copier(bootstrap, source, target) as copier:
        await_copy(wire, copier, source, target, 400)
        assert copier.errors == []
        new_transactional_producer(wire, transactional_id_of(target))
        write_values(bootstrap, source, values[400:])
        await_copy(wire, copier, source, target, 800)
        assert any("ProducerFencedException" in each for each in copier.errors), copier.errors
    write_values(bootstrap, target, [END])
    for reading in LIBRARIES:
        assert read_to_the_end(reading, bootstrap, target) == [copied(value) for value in values], reading
