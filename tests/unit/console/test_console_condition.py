"""Which records a search wants: the condition, in the language of views, and the simple filters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kept_batches import KeptBatches

pytest.importorskip("duckdb")

from moldau.base.view_configs import VIEW_WHERE
from moldau.client.cluster import Cluster
from moldau.console import condition_workers
from moldau.console.condition_workers import Conditions
from moldau.console.records import fetching, search
from moldau.console.records.choosing import choice_of
from moldau.console.records.condition import Condition
from moldau.console.records.fetching import fetch
from moldau.console.records.search import NewestFirst, Work, oldest_first
from moldau.console.records.shown import FoundRecord
from moldau.runtime.views.ports import BatchesTask, match_or_fail
from moldau.views.definition import view_definition
from moldau.views.engine import Engine
from moldau.views.jobs import Matching, ViewFailed
from moldau.views.parser import TEXT_CHARACTERS_MAX, BadExpression
from moldau.web.failures import ApiError
from moldau.wire.messages.fetch import AbortedTransaction
from moldau.wire.records import Record, build_batch

VALUE = {"amount": 120, "customer": {"city": "Praha", "vip": True}, "items": [{"id": 7}], "none": None}
ENGINE = Engine()


def match(task: BatchesTask) -> Matching | ViewFailed:
    return match_or_fail(ENGINE, task)


def found(key: bytes | None = b"anna", value: Any = VALUE, **headers: str) -> FoundRecord:
    data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    pairs = tuple((name, text.encode()) for name, text in headers.items())
    return FoundRecord(2, Record(17, 1000, key, data, pairs), False)


def wants(record: FoundRecord, **parameters: str) -> bool:
    """Whether a search finds this record, which is the only one of its partition."""
    batch = bytes(build_batch([record.record], base_offset=record.record.offset))
    cluster = cast(Cluster, KeptBatches({record.partition: [batch]}))
    at, end = {record.partition: 0}, {record.partition: record.record.offset + 1}
    return bool(oldest_first(cluster, "t", at, end, choice_of(parameters, match), 1, Work()).records)


def refused(text: str) -> ApiError:
    with pytest.raises(ApiError) as error:
        Condition(text, match)
    return error.value


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 100",
        "amount > 100 and key = 'anna'",
        "customer.city == 'Praha' AND NOT customer.vip = false",
        "items[0].id in (6, 7)",
        "amount between 120 and 130",
        "contains(lower(customer.city), 'rah') or key is null",
        "header('trace') = 'ab'",
        "partition = 2 and offset = 17 and timestamp = 1000",
        "missing is null and none is null",
        "value like '%Praha%'",
        "length(value) > 10",
    ],
)
def test_conditions_that_match(text: str) -> None:
    assert wants(found(trace="ab"), where=text)


@pytest.mark.parametrize(
    "text", ["amount < 100", "missing > 0", "items[5].id = 7", "customer > 'a' and key = 'ben'", "false", "null"]
)
def test_conditions_that_do_not_match(text: str) -> None:
    assert not wants(found(), where=text)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("amount >", 9),
        ("  amount > and", 12),
        ("(amount) is 5", 13),
        ("key = 'ž' or # 5", 14),
        ("key = 'anna", 7),
        ("amount if key", 8),
        ("", 1),
        ("key = '\ud800'", 8),
    ],
)
def test_a_mistake_is_refused_with_its_column(text: str, column: int) -> None:
    error = refused(text)
    assert (error.status, error.extra["column"]) == (400, column)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "startswith(key, 'a')",
        "amount >",
        "amount + 1",
        "(" * 60 + "key" + ")" * 60,
        "key = 'a' or " * 700 + "key = 'b'",
        "a" * (TEXT_CHARACTERS_MAX + 1),
    ],
)
def test_a_search_refuses_what_a_view_refuses_in_the_same_words(text: str) -> None:
    with pytest.raises(BadExpression) as of_view:
        view_definition({VIEW_WHERE: text})
    assert refused(text).message.removeprefix("where: ") == str(of_view.value).removeprefix(f"{VIEW_WHERE}: ")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('value.amount > 100 and key == "anna"', "\"anna\" is a field of the value; a text is written 'anna'"),
        ("headers.trace = 'ab'", "headers is a field of the value; a header is header('name')"),
        ("contains(text, 'a')", "text is a field of the value; the whole value as text is value"),
        ("value.none == null", "nothing is equal to null or different from it; write IS NULL or IS NOT NULL"),
    ],
)
def test_a_condition_of_earlier_versions_that_means_something_else_now_is_explained(text: str, hint: str) -> None:
    assert Condition(text, match).hints == [hint]


def test_a_condition_of_a_view_has_no_hints() -> None:
    assert Condition('"order id" > 3 and customer."full name" is not null and key = \'text\'', match).hints == []


@pytest.mark.parametrize("depth", [500, 5_000])
def test_a_deeply_nested_value_does_not_stop_a_search(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    wants(found(value=f'{{"a": {nested}, "b": {nested}}}'.encode()), where="a = b or c = 1")


def test_half_a_surrogate_pair_does_not_stop_a_search() -> None:
    """It is no JSON for DuckDB: the record has no fields, and is found by its text."""
    half = found(value=rb'{"city": "\ud800Praha", "amount": 120}')
    assert wants(half, where="value like '%Praha%'")
    assert wants(half, text="praha")
    assert not wants(half, where="amount = 120 or city is null")


def log_with_amounts(count: int, per_batch: int = 10) -> list[bytes]:
    return [
        bytes(
            build_batch(
                [Record(-1, at, b"k", b'{"amount": %d}' % at) for at in range(base, base + per_batch)],
                base_offset=base,
            )
        )
        for base in range(0, count, per_batch)
    ]


def test_a_search_with_a_condition_counts_what_it_looked_at_and_goes_on_behind_it() -> None:
    cluster = cast(Cluster, KeptBatches({0: log_with_amounts(100), 1: log_with_amounts(100)}))
    choice = choice_of({"where": "amount % 10 = 3", "key": "k"}, match)
    work = Work()
    some = oldest_first(cluster, "t", {0: 0, 1: 0}, {0: 100, 1: 100}, choice, 5, work)
    assert [(each.record.offset, each.partition) for each in some.records] == [
        (3, 0),
        (3, 1),
        (13, 0),
        (13, 1),
        (23, 0),
    ]
    assert (some.next, work.records) == ({0: 24, 1: 14}, 200)
    rest = oldest_first(cluster, "t", cast(dict[int, int], some.next), {0: 100, 1: 100}, choice, 50, Work())
    assert (len(rest.records), rest.next) == (15, None)
    newest = NewestFirst(cluster, "t", {0: 0, 1: 0}, {0: 100, 1: 100})
    last = newest.search(choice, 3, Work(), {}).records
    assert [each.record.offset for each in last] == [93, 93, 83]


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_a_search_with_a_slow_condition_ends_after_its_time_and_gets_ahead(
    monkeypatch: pytest.MonkeyPatch, is_newest_first: bool
) -> None:
    seconds = 0.0
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(fetching, "time", SimpleNamespace(monotonic=lambda: seconds))

    def match_slowly(task: BatchesTask) -> Matching | ViewFailed:
        nonlocal seconds
        seconds += 2.0
        return match(task)

    partitions = range(5)
    cluster = cast(Cluster, KeptBatches({index: log_with_amounts(30) for index in partitions}))
    choice = choice_of({"where": "amount % 10 = 3"}, match_slowly)
    starts, ends = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 30)
    at: dict[int, int] | None = ends if is_newest_first else starts
    found: list[FoundRecord] = []
    while at is not None:
        before, begin = at, seconds
        work = Work(seconds_max=3.0, begin=seconds)
        if is_newest_first:
            answer = NewestFirst(cluster, "t", starts, at).search(choice, 50, work, {})
        else:
            answer = oldest_first(cluster, "t", at, ends, choice, 50, work)
        found += answer.records
        at = answer.next
        assert at != before
        assert seconds - begin <= 6.0
    assert sorted((each.partition, each.record.offset) for each in found) == [
        (index, offset) for index in partitions for offset in (3, 13, 23)
    ]


def test_only_records_from_the_position_to_the_end_are_found() -> None:
    cluster = cast(Cluster, KeptBatches({0: log_with_amounts(30)}))
    part = fetch(cluster, "t", {0: 14}, partition_bytes=1 << 20, ends={0: 30}, where=Condition("amount > 11", match))[0]
    assert [each.record.offset for each in part.records] == [*range(14, 30)]
    assert (part.seen, part.next_offset) == (16, 30)


def test_only_batches_with_records_of_the_search_are_evaluated() -> None:
    """Those of aborted transactions may be anything: large, slow to evaluate, or damaged."""
    tasks: list[BatchesTask] = []

    def note(task: BatchesTask) -> Matching | ViewFailed:
        tasks.append(task)
        return match(task)

    records = [Record(-1, 0, b"k", b'{"amount": 1}')]
    aborted = bytes(build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True))
    readable = bytes(build_batch([Record(-1, 0, b"k", b'{"amount": %d}' % at) for at in range(5)], base_offset=1))
    cluster = cast(Cluster, KeptBatches({0: [aborted, readable]}, [AbortedTransaction(5, 0)]))
    part = fetch(cluster, "t", {0: 0}, partition_bytes=1 << 20, where=Condition("amount < 3", note))[0]
    assert [each.record.offset for each in part.records] == [1, 2, 3]
    assert [task.content for task in tasks] == [readable]


def test_a_failed_condition_is_an_answer_and_not_a_mistake_of_the_console() -> None:
    for is_retriable, status in ((True, 503), (False, 422)):
        failed = ViewFailed("it took too long", is_retriable)
        with pytest.raises(ApiError, match="where could not be evaluated for t-0: it took too long") as error:
            fetch(
                cast(Cluster, KeptBatches({0: log_with_amounts(10)})), "t", {0: 0},
                partition_bytes=1 << 20, where=Condition("amount > 1", lambda _, failed=failed: failed),
            )  # fmt: skip
        assert error.value.status == status


@contextmanager
def conditions(loop: asyncio.AbstractEventLoop) -> Iterator[Conditions]:
    started = Conditions()
    started.start(loop)
    try:
        yield started
    finally:
        started.close()


def test_a_hostile_condition_is_stopped_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition_workers, "CPU_SECONDS", 0.5)
    large = bytes(build_batch([Record(-1, 0, b"k", b"ab" * 20_000_000)]))
    hostile = " or ".join(f"contains(upper(value || '{n}'), 'b{n}')" for n in range(150))
    harmless = BatchesTask(Condition("amount = 7", match).definition, log_with_amounts(10)[0], 0)

    async def run() -> None:
        with conditions(asyncio.get_running_loop()) as workers:
            task = BatchesTask(Condition(hostile, match).definition, large, 0)
            failing = asyncio.create_task(asyncio.to_thread(workers.match, "eve", task))
            for _ in range(2):
                found = await asyncio.to_thread(workers.match, "ann", harmless)
                assert found == Matching((7).to_bytes(8, "little"))
            failed = await failing
            assert isinstance(failed, ViewFailed)
            assert not failed.is_retriable
            assert await asyncio.to_thread(workers.match, "eve", harmless) == found

    asyncio.run(run())


def test_who_waits_too_long_for_a_worker_may_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition_workers, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(condition_workers, "WORKERS", 0)
    task = BatchesTask(Condition("amount = 7", match).definition, log_with_amounts(10)[0], 0)

    async def run() -> Conditions:
        with conditions(asyncio.get_running_loop()) as workers:
            with pytest.raises(ApiError) as error:
                await asyncio.to_thread(workers.match, "ann", task)
            assert error.value.status == 429
        return workers

    stopped = asyncio.run(run())
    assert stopped.match("ann", task) == condition_workers.STOPS


def test_without_duckdb_a_condition_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition_workers, "missing_for_views", lambda: "DuckDB")
    with pytest.raises(ApiError, match="pip install 'moldau\\[views\\]'") as error:
        Conditions().match("", BatchesTask(Condition("amount = 7", match).definition, b"", 0))
    assert error.value.code == "NEEDS_DUCKDB"


@pytest.mark.parametrize(
    ("parameters", "matches"),
    [
        ({"key": "nn"}, True),
        ({"key": "=anna"}, True),
        ({"key": "=ann"}, False),
        ({"header": "trace"}, True),
        ({"header": "trace:a"}, True),
        ({"header": "trace:x"}, False),
        ({"header": "other"}, False),
        ({"text": "praHA"}, True),
        ({"text": "AB"}, True),
        ({"text": "nowhere"}, False),
        ({"tombstones": "without"}, True),
        ({"tombstones": "only"}, False),
        ({"key": "anna", "where": "amount < 1"}, False),
        ({}, True),
    ],
)
def test_simple_filters(parameters: dict[str, str], matches: bool) -> None:
    assert wants(found(trace="ab"), **parameters) is matches


def test_all_headers_of_one_name_are_searched() -> None:
    record = Record(17, 1000, b"anna", b"", (("trace", b"first"), ("trace", None), ("trace", b"last")))
    twice = FoundRecord(2, record, False)
    assert wants(twice, header="trace:first")
    assert wants(twice, header="trace:last")
    assert wants(twice, text="FIRST")
    assert wants(twice, where="header('trace') = 'last'")
    assert not wants(twice, header="trace:other")


def test_a_tombstone_and_bytes_have_no_fields() -> None:
    assert wants(found(value=None), tombstones="only")
    assert not wants(found(value=None), where="amount > 1")
    assert not wants(found(value=b"\x00\xff"), where="amount > 1")
    assert wants(found(key=b"\x00\xff"), key="00ff")


@pytest.mark.parametrize("parameters", [{"field": "amount>100"}, {"tombstones": "x"}, {"text": "a" * 2000}])
def test_invalid_filters_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(ApiError):
        choice_of(parameters, match)
