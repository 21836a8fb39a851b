"""A record as the pages show it: text or binary, and the marks of cut values and omitted headers."""

from __future__ import annotations

import pytest

from moldau.console.records.shown import HEADERS_MAX, REASON_LENGTH_MAX, FoundRecord, record_data, shown
from moldau.share.dead_letters import DELIVERED_TOO_OFTEN, Content, DeadLetter, dead_letter_record
from moldau.share.ports import ShareKey
from moldau.wire.records import Record


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"abcdefgh", "text", "abcd"),
        ("abcü".encode(), "text", "abc"),
        ("abü€".encode(), "text", "abü"),
        ("a\U0001f600b".encode(), "text", "a"),
        (b"a\xffcdefgh", "binary", "61ff"),
        (b"\xff\xfe\xfd\xfcefgh", "binary", "fffe"),
        (b"abc\xffdefg", "binary", "6162"),
        (b"abc\x80defg", "binary", "6162"),
    ],
)
def test_only_the_end_of_a_cut_text_may_be_incomplete(data: bytes, kind: str, text: str) -> None:
    part = shown(data, 4)
    assert (part["kind"], part["text"], part["cut"], part["bytes"]) == (kind, text, True, len(data))


@pytest.mark.parametrize(("count", "is_cut"), [(HEADERS_MAX, False), (HEADERS_MAX + 1, True)])
def test_omitted_headers_are_marked(count: int, is_cut: bool) -> None:
    record = Record(0, 0, None, b"v", tuple((f"h{number}", b"") for number in range(count)))
    data = record_data(FoundRecord(0, record, False))
    assert len(data["headers"]) == HEADERS_MAX
    assert data.get("headers_cut", False) is is_cut


def letter_of(*headers: tuple[str, bytes | None]) -> object:
    return record_data(FoundRecord(0, Record(0, 0, None, b"v", headers), False)).get("dead_letter")


def test_a_dead_letter_of_a_pipeline_has_its_reason_and_its_place() -> None:
    written = {"error": "amount: not a number", "topic": "orders", "partition": "2", "offset": "17", "pipeline": "shop"}
    headers = [(f"moldau.{name}", text.encode()) for name, text in written.items()]
    assert letter_of(("trace", b"x"), *headers) == {
        "reason": "amount: not a number",
        "topic": "orders",
        "partition": 2,
        "offset": 17,
        "written_by": "shop",
        "deliveries": None,
    }


def test_a_dead_letter_of_kafka_connect_has_its_reason() -> None:
    letter = letter_of(("__connect.errors.topic", b"orders"), ("__connect.errors.exception.message", b"no schema"))
    assert letter == {
        "reason": "no schema", "topic": "orders", "partition": None, "offset": None, "written_by": None,
        "deliveries": None,
    }  # fmt: skip


def test_a_dead_letter_of_a_share_group_says_how_often_its_record_came() -> None:
    letter = DeadLetter(17, 17, 5, DELIVERED_TOO_OFTEN)
    record = dead_letter_record(ShareKey("workers", bytes(16), 2), "jobs", letter, 17, Content(), 0)
    assert letter_of(*record.headers) == {
        "reason": "Offset delivery count exceeded the threshold.", "topic": "jobs", "partition": 2, "offset": 17,
        "written_by": "workers", "deliveries": 5,
    }  # fmt: skip


def test_only_a_reason_that_is_text_makes_a_dead_letter() -> None:
    assert letter_of(("moldau.topic", b"orders")) is None
    assert letter_of(("moldau.error", None)) is None
    assert letter_of(("moldau.error", b"\xff\xfe")) is None
    assert letter_of(("moldau.error", b"x" * 5000), ("moldau.offset", "\u0663".encode())) == {
        "reason": "x" * REASON_LENGTH_MAX, "topic": None, "partition": None, "offset": None, "written_by": None,
        "deliveries": None,
    }  # fmt: skip
