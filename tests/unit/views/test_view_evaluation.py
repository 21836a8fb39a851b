"""The records that a view returns of its source, compared one by one with an oracle in plain Python."""

from __future__ import annotations

import json
import random
from array import array
from typing import Any

import pytest
from harness.depth import deep, few
from harness.view_oracle import Seen, condition, selection

pytest.importorskip("duckdb")

import duckdb

from moldau.base.errors import MalformedData
from moldau.base.view_configs import (
    VIEW_FORMAT,
    VIEW_HEADERS,
    VIEW_KEY,
    VIEW_ON_ERROR,
    VIEW_SELECT,
    VIEW_WHERE,
)
from moldau.views.definition import view_definition
from moldau.views.engine import QUERIES_MAX, Engine, EngineFailed
from moldau.views.evaluation import Evaluated, evaluate, matching_offsets
from moldau.views.expressions import Field, walk
from moldau.views.prepared import PreparedQueries
from moldau.wire.batch import has_valid_crc, read_header, split_batches, stamp_crc
from moldau.wire.compression import Compression
from moldau.wire.records import EndTxnMarker, Record, build_batch, decode_records, end_txn_batch

PARTITION = 3
ENGINE = Engine()


def random_value(rng: random.Random) -> Any:
    return rng.choice(
        [0, 1, 5, 12, -3, 2.5, "x", "Anna", "bob", "12", "it's", "häß\n", "", True, False, None, [1], 10**6]
    )


def random_fields(rng: random.Random) -> dict[str, Any]:
    fields = {name: random_value(rng) for name in ("a", "b", "user", "flag") if rng.random() < 0.8}
    if rng.random() < 0.5:
        fields["deep"] = {name: random_value(rng) for name in ("a", "user")}
    return fields


def random_source(rng: random.Random) -> tuple[bytes, list[tuple[Record, dict[str, Any] | None]]]:
    """Batches of all kinds, and their records with the fields of their values; None if a value cannot be read."""
    content, records, offset = bytearray(), [], rng.randrange(1000)
    for _ in range(rng.randint(1, 6)):
        if rng.random() < 0.15:
            batch = end_txn_batch(EndTxnMarker(rng.random() < 0.5, 0), 5, 77, 1)
            batch[:8] = offset.to_bytes(8, "big")
            content += batch
            offset += 1
            continue
        rows, base = [], offset
        for _ in range(rng.randint(1, 30)):
            offset += rng.choice([1, 1, 1, 4])  # a compacted log has gaps
            kind, fields = rng.random(), random_fields(rng)
            value: bytes | None = json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode()
            readable: dict[str, Any] | None = fields
            if kind < 0.05:
                value, readable = rng.choice([b"{no json", b"\xff\xfe", b"", b"{} {}"]), None
            elif kind < 0.1:
                value, readable = None, {}
            key = rng.choice([None, b"k", b"Anna", b"\xff"])
            headers = tuple([("h", b"1"), ("h", None)][: rng.randrange(3)])
            record = Record(offset, 1_000 + rng.randrange(500), key, value, headers)
            rows.append(record)
            records.append((record, readable))
        is_transactional = rng.random() < 0.2
        content += build_batch(
            rows,
            base_offset=base,
            leader_epoch=4,
            compression=rng.choice(list(Compression)),
            producer_id=77 if is_transactional else -1,
            producer_epoch=1 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )
        offset += 1
    return bytes(content), records


def seen_by(record: Record, fields: dict[str, Any]) -> Seen:
    try:
        key = None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        key = None
    return Seen(fields, key, record.offset, PARTITION, record.timestamp)


def shown_records(result: Evaluated) -> list[Record]:
    shown = []
    for header, batch in split_batches(memoryview(result.batches)):
        assert has_valid_crc(batch)
        if not header.is_control:
            shown += decode_records(batch)
    return shown


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == pytest.approx(right, rel=1e-12)
    return bool(left == right)


@pytest.mark.parametrize("seed", range(deep(20, quick=8)))
def test_the_matching_records_are_those_that_a_view_shows(seed: int) -> None:
    rng = random.Random(seed)
    content, _ = random_source(rng)
    where, _ = condition(rng, 3)
    definition = view_definition({VIEW_WHERE: where})
    shown = shown_records(evaluate(ENGINE, definition, content, PARTITION))
    matching = matching_offsets(ENGINE, definition, content, PARTITION)
    assert [*array("q", matching.offsets)] == [record.offset for record in shown]


@pytest.mark.parametrize("seed", range(deep(20, quick=8)))
def test_a_view_returns_the_same_records_as_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    content, source = random_source(rng)
    where, compute = condition(rng, 3)
    select, selected = selection(rng)
    has_select, passes = rng.random() < 0.5, rng.random() < 0.3
    configs = {VIEW_WHERE: where, VIEW_ON_ERROR: "pass" if passes else "skip"}
    if has_select:
        configs[VIEW_SELECT] = select
    definition = view_definition(configs)
    reads_value = any(isinstance(part, Field) for each in definition.expressions for part in walk(each))
    result = evaluate(ENGINE, definition, content, PARTITION)
    expected = []
    for record, fields in source:
        if fields is None and not reads_value:
            fields = {}
        if fields is None and not passes:
            continue
        if fields is None or compute(seen_by(record, fields)) is True:
            value: Any = record.value
            if has_select and fields is not None and record.value is not None:
                value = selected(seen_by(record, fields))
            expected.append((record.offset, record.timestamp, record.key, value, record.headers))
    actual = [
        (
            each.offset,
            each.timestamp,
            each.key,
            json.loads(each.value)
            if has_select and each.value is not None and each.value.startswith(b'{"n0"')
            else each.value,
            each.headers,
        )
        for each in shown_records(result)
    ]
    assert [each[:3] for each in actual] == [each[:3] for each in expected], (where, select)
    for one, other in zip(actual, expected, strict=True):
        assert same(one[3], other[3]), (where, select, one, other)
        assert one[4] == other[4]
    batches = list(split_batches(memoryview(result.batches)))
    last = list(split_batches(memoryview(content)))[-1][0]
    assert batches[-1][0].next_offset == last.next_offset == result.next_offset, "consumers advance to the end"
    sources = {header.base_offset: header for header, _ in split_batches(memoryview(content))}
    for header, _ in batches:
        if not header.is_control:
            origin = sources[header.base_offset]
            assert header.last_offset == origin.last_offset
            assert (header.producer_id, header.is_transactional) == (origin.producer_id, origin.is_transactional)
            assert header.leader_epoch == origin.leader_epoch


def source_of(*values: bytes | None, key: bytes | None = b"k") -> bytes:
    rows = [Record(index, 5, key, value, (("trace", b"7"),)) for index, value in enumerate(values)]
    return bytes(build_batch(rows))


def values_shown(configs: dict[str, str], *values: bytes | None) -> list[bytes | None]:
    return [each.value for each in shown_records(evaluate(ENGINE, view_definition(configs), source_of(*values), 0))]


def test_a_batch_that_is_shown_whole_keeps_its_bytes() -> None:
    content = source_of(b'{"a":1}', b'{"a":2}')
    assert evaluate(ENGINE, view_definition({VIEW_WHERE: "a > 0"}), content, 0).batches == content


def test_batches_without_matching_records_become_a_marker() -> None:
    result = evaluate(ENGINE, view_definition({VIEW_WHERE: "a > 9"}), source_of(b'{"a":1}', b'{"a":2}'), 0)
    header = read_header(result.batches)
    assert (header.is_control, header.is_transactional, header.next_offset) == (True, False, 2)
    assert (result.shown, result.seen, result.holds_batches) == (0, 2, False)


def test_division_by_zero_and_missing_fields_are_null() -> None:
    assert values_shown({VIEW_WHERE: "1 / a > 0"}, b'{"a":0}', b'{"a":2}', b"{}") == [b'{"a":2}']
    assert values_shown({VIEW_WHERE: "nobody.has.this = 1"}, b'{"a":0}') == []


def test_an_even_number_of_minus_signs_converts_to_a_number() -> None:
    values = (b'{"price":"12"}', b'{"price":"abc"}', b'{"price":5}')
    shown = [b'{"p":12}', b'{"p":null}', b'{"p":5}']
    for select in ("- -price as p", "- - - -price as p", "-(-price) as p"):
        assert values_shown({VIEW_SELECT: select}, *values) == shown
    for where in ("- -'abc' = 'abc'", "-(-'abc') = 'abc'"):
        assert values_shown({VIEW_WHERE: where}, *values) == []


def test_masking_of_keys_and_headers() -> None:
    configs = {VIEW_KEY: "sha256", VIEW_HEADERS: "drop", VIEW_SELECT: "a, left(name, 1) as name"}
    content = source_of(b'{"a":1.50,"name":"Anna"}')
    (record,) = shown_records(evaluate(ENGINE, view_definition(configs), content, 0))
    assert record.value == b'{"a":1.5,"name":"A"}'
    assert record.key is not None
    assert len(record.key) == 64
    assert record.headers == ()


def test_conditions_on_headers() -> None:
    assert values_shown({VIEW_WHERE: "header('trace') = 7"}, b"not json at all") == [b"not json at all"]
    assert values_shown({VIEW_WHERE: "header('other') = 7"}, b"{}") == []


def test_a_header_whose_name_has_a_negative_length_is_refused() -> None:
    batch = build_batch([Record(0, 0, None, b"{}", (("trace", b"7"),))])
    length_at = batch.index(b"trace") - 1
    for length in (1, 99):  # the varints of -1 and -50
        batch[length_at] = length
        stamp_crc(memoryview(batch))
        with pytest.raises(MalformedData, match="the record at offset 0: a header without a name"):
            evaluate(ENGINE, view_definition({VIEW_WHERE: "header('trace') = 7"}), bytes(batch), 0)


def test_csv_values() -> None:
    configs = {VIEW_FORMAT: "csv(id, name, amount)", VIEW_WHERE: "amount > 5", VIEW_SELECT: "name, amount * 2 as twice"}
    shown = values_shown(configs, b"1,Anna,6", b'2,"Smith, John",7\n', b"3,Eve,5", b"4,Short", b'5,"open', b"6,x,8,9")
    assert shown == [
        b'{"name":"Anna","twice":12}',
        b'{"name":"Smith, John","twice":14}',
        b'{"name":"x","twice":16}',
    ]


def test_deeply_nested_and_long_values_are_read() -> None:
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    long = b'{"b":"' + b"x" * 5_000_000 + b'","a":{"a":1}}'
    assert values_shown({VIEW_WHERE: "a.a is not null"}, deep, long, b"[" * 50_000) == [deep, long]


def test_unreadable_values_are_counted() -> None:
    definition = view_definition({VIEW_WHERE: "a = 1"})
    result = evaluate(ENGINE, definition, source_of(b"x", b'{"a":1}', b"\xff"), 0)
    assert (result.unreadable, result.shown) == (2, 1)


def test_whole_numbers_become_texts_without_a_fraction() -> None:
    select = "text(5) as a, text(n * 2) as b, 'n' || (0 - n) as c, text(n * 1e300 * 1e300) as d, text(n / 2) as e"
    assert values_shown({VIEW_SELECT: select}, b'{"n":3}') == [b'{"a":"5","b":"6","c":"n-3","d":null,"e":"1.5"}']
    assert values_shown({VIEW_SELECT: "text(n * 1e20) as a"}, b'{"n":1}') == [b'{"a":"100000000000000000000"}']
    assert values_shown({VIEW_WHERE: "text(n + 1) = '4'"}, b'{"n":3}') == [b'{"n":3}']


def test_numbers_that_json_does_not_have_become_null() -> None:
    value = b'{"a":NaN,"b":[1,-Infinity,{"c":inf,"d":"x:NaN,\\",-inf"}],"e":":nan"}'
    assert values_shown({VIEW_SELECT: "a, b, e, n * 1e308 * 1e308 as f"}, value, b'{"n":2}') == [
        b'{"a":null,"b":[1,null,{"c":null,"d":"x:NaN,\\",-inf"}],"e":":nan","f":null}',
        b'{"a":null,"b":null,"e":null,"f":null}',
    ]


def test_long_csv_fields_are_read() -> None:
    long = b'1,"' + b"x" * 200_000 + b'"'
    assert values_shown({VIEW_FORMAT: "csv(a, b)", VIEW_WHERE: "length(b) = 200000"}, long) == [long]


def test_the_size_of_a_result_is_limited() -> None:
    select = ", ".join(f"a as a{number}" for number in range(30))
    content = source_of(json.dumps({"a": "x" * 100_000}).encode(), *[b"{}"] * 5)
    assert evaluate(ENGINE, view_definition({VIEW_SELECT: select}), content, 0).shown == 6, (
        "16 MiB are allowed, however small the source"
    )
    content = source_of(json.dumps({"a": "x" * 1_000_000}).encode())
    with pytest.raises(EngineFailed, match=r"the view shows more than 16 MiB of [0-9,]+ bytes of its source"):
        evaluate(ENGINE, view_definition({VIEW_SELECT: select}), content, 0)


FLAT, OPEN = b"[" + b"1," * (25 << 20) + b"1]", b"[" * (50 << 20)


@pytest.mark.parametrize("value", few([FLAT], of=[FLAT, OPEN]), ids=lambda value: value[:2].decode())
@pytest.mark.parametrize(("on_error", "shown"), [("skip", [1, 3]), ("pass", [0, 1, 2, 3])])
def test_a_value_that_exceeds_the_memory_does_not_hide_others(value: bytes, on_error: str, shown: list[int]) -> None:
    content = source_of(value, b'{"a":1}', b"no JSON", b'{"a":1}')
    definition = view_definition({VIEW_WHERE: "a = 1", VIEW_SELECT: "a", VIEW_ON_ERROR: on_error})
    result = evaluate(ENGINE, definition, content, 0)
    assert ([record.offset for record in shown_records(result)], result.unreadable) == (shown, 2)


def test_an_engine_that_is_not_fresh_does_not_decide_that_a_value_is_too_large() -> None:
    engine = Engine()
    engine.is_fresh = False
    with pytest.raises(EngineFailed, match="OutOfMemoryException in offsets 0 to 1"):
        evaluate(engine, view_definition({VIEW_WHERE: "a = 1"}), source_of(OPEN, b'{"a":1}'), 0)


def test_error_messages_contain_no_values() -> None:
    class Failing:
        def register(self, *_: object) -> None:
            raise duckdb.ConversionException("cannot convert 'secret'")

    engine = Engine()
    engine._queries = PreparedQueries(Failing())
    with pytest.raises(EngineFailed) as failed:
        evaluate(engine, view_definition({VIEW_WHERE: "a = 1"}), source_of(b"{}", b"{}"), 0)
    assert str(failed.value) == "the query of the view failed with ConversionException in offsets 0 to 1"


@pytest.mark.parametrize(("boolean", "number"), [("true", "1"), ("false", "0")])
def test_a_boolean_and_the_number_that_python_takes_for_equal_are_different_views(boolean: str, number: str) -> None:
    engine, content = Engine(), source_of(f'{{"paid":{boolean}}}'.encode(), f'{{"paid":{number}}}'.encode())
    definitions = [view_definition({VIEW_WHERE: f"paid = {literal}"}) for literal in (boolean, number)]
    assert definitions[0] != definitions[1]
    alone = [shown_records(evaluate(Engine(), each, content, 0)) for each in definitions]
    assert alone[0] != alone[1]
    assert [shown_records(evaluate(engine, each, content, 0)) for each in definitions] == alone


def test_the_number_of_compiled_queries_is_limited() -> None:
    engine = Engine()
    for number in range(QUERIES_MAX + 5):
        evaluate(engine, view_definition({VIEW_WHERE: f"a = {number}"}), source_of(b"{}"), 0)
    assert engine._compile.cache_info().currsize == QUERIES_MAX


def test_damaged_batches_are_refused() -> None:
    content = bytearray(source_of(b'{"a":1}'))
    content[-2] ^= 1
    with pytest.raises(MalformedData, match="CRC"):
        evaluate(ENGINE, view_definition({VIEW_WHERE: "a = 1"}), bytes(content), 0)
    with pytest.raises(MalformedData, match="no whole batch"):
        evaluate(ENGINE, view_definition({}), b"x" * 30, 0)


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    content = source_of(b'{"a":1}')
    second = build_batch([Record(5, 0, None, b'{"a":1}')], base_offset=5)
    assert evaluate(ENGINE, view_definition({}), content + bytes(second[:-3]), 0).next_offset == 1
