"""OpenSearch's bulk call against a small server that follows its documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from harness.bulk_server import BulkServer
from harness.web_server import WebServer, response

from moldau.backends.catalog import KINDS
from moldau.backends.delivery import Delivery
from moldau.backends.interface import Away, Backend, Failed, Refused, Retry, Row
from moldau.backends.opensearch import ANSWER_BYTES_MAX
from moldau.backends.options import Options
from moldau.backends.policy import Traffic
from moldau.backends.sending import Sending

opened: list[Backend] = []


@pytest.fixture
def bulk() -> BulkServer:
    return BulkServer()


@pytest.fixture
def url(bulk: BulkServer) -> Iterator[str]:
    with WebServer(bulk.answer) as server:
        yield server.url
        while opened:
            opened.pop().close()


def backend(url: str, **options: str) -> Backend:
    one = KINDS["opensearch"].prepare(url, Options({"index": "orders"} | options), Delivery())()
    opened.append(one)
    return one


def document(key: str, index: str | None = None, **content: object) -> Row:
    return Row(key, {"document": json.dumps(content), "index": index})


def failures(one: Backend, *rows: Row) -> list[tuple[int, type[Exception], str]]:
    found: list[Failed] = list(one.write(rows) or ())
    return [(failed.index, type(failed.error), str(failed.error)) for failed in found]


def test_documents_have_the_rows_key_as_id_so_that_a_repetition_changes_nothing(bulk: BulkServer, url: str) -> None:
    one = backend(url)
    for _ in range(2):
        assert failures(one, document("1", n=1), document("2", "returns-2026", n=2)) == []
    assert bulk.documents == {("orders", "1"): {"n": 1}, ("returns-2026", "2"): {"n": 2}}


def test_a_document_that_is_there_is_no_error_for_create(bulk: BulkServer, url: str) -> None:
    one = backend(url, op_type="create")
    assert failures(one, document("1", n=1)) == []
    assert failures(one, document("1", n=2), document("2", n=2)) == []
    assert bulk.documents == {("orders", "1"): {"n": 1}, ("orders", "2"): {"n": 2}}


def test_each_document_has_its_own_outcome(bulk: BulkServer, url: str) -> None:
    bulk.faults = {
        "2": [(400, "mapper_parsing_exception")],
        "3": [(429, "rejected_execution_exception")],
        "4": [(503, "unavailable_shards_exception")],
    }
    rows = [document(str(number)) for number in range(1, 6)]
    assert failures(backend(url), *rows) == [
        (1, Refused, "400 mapper_parsing_exception: 2 failed"),
        (2, Retry, "429 rejected_execution_exception: 3 failed"),
        (3, Retry, "503 unavailable_shards_exception: 4 failed"),
    ]
    assert {id_ for _, id_ in bulk.documents} == {"1", "5"}


def test_all_are_delivered_in_the_end(bulk: BulkServer, url: str) -> None:
    bulk.faults = {"2": [(400, "mapper_parsing_exception")], "3": [(429, "rejected_execution_exception")] * 2}
    bulk.whole = [response(503, Retry_After="0"), response(429, Retry_After="0")]
    delivery = Delivery(batch_rows=2)
    sending = Sending(lambda: backend(url), delivery, Traffic(delivery.limits(), lambda: 0.0))
    dead = list(sending.send(document(str(number)) for number in range(6)))
    assert [each.row.key for each in dead] == ["2"]
    assert {id_ for _, id_ in bulk.documents} == {"0", "1", "3", "4", "5"}


def test_a_request_that_is_too_large_is_halved(bulk: BulkServer, url: str) -> None:
    bulk.lines_max = 4
    assert failures(backend(url), *(document(str(number)) for number in range(7))) == []
    assert len(bulk.documents) == 7
    bulk.lines_max = 1
    assert [failure[1] for failure in failures_or_error(backend(url), document("x"))] == [Refused]


def test_a_document_that_is_too_large_is_refused_alone(bulk: BulkServer, url: str) -> None:
    bulk.whole = [response(413)] * 3  # all four, the first two, the first
    rows = [document(str(number)) for number in range(4)]
    assert failures(backend(url), *rows) == [(0, Refused, "HTTP 413")]
    assert {id_ for _, id_ in bulk.documents} == {"1", "2", "3"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (response(503), Away),
        (response(502), Retry),
        (response(400), Refused),
        (response(200, b"<html>"), Retry),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\n", ConnectionResetError),
    ],
)
def test_each_half_has_its_own_outcome(bulk: BulkServer, url: str, answer: bytes, error: type[Exception]) -> None:
    bulk.whole = [response(413), answer]
    bulk.faults = {"3": [(400, "mapper_parsing_exception")]}
    found = failures(backend(url), *(document(str(number)) for number in range(4)))
    assert [(index, kind) for index, kind, _ in found] == [(0, error), (1, error), (3, Refused)]
    assert {id_ for _, id_ in bulk.documents} == {"2"}


def failures_or_error(one: Backend, row: Row) -> list[tuple[int, type[Exception], str]]:
    try:
        return failures(one, row)
    except Refused as error:
        return [(0, Refused, str(error))]


@pytest.mark.parametrize(
    "row",
    [
        Row("1", {"document": "not json"}),
        Row("1", {"document": "[1]"}),
        Row("1", {"document": '{"a":' * 100_000}),
        Row("1", {"document": None}),
        Row("1", {"document": "{}", "index": "Upper"}),
        Row("1", {"document": "{}", "index": "a/_bulk"}),
        Row("1", {"document": "{}", "index": "_all"}),
        Row("x" * 513, {"document": "{}"}),
    ],
)
def test_what_cannot_be_a_document_is_refused_alone(bulk: BulkServer, url: str, row: Row) -> None:
    found = failures(backend(url), row, document("2"))
    assert [(index, kind) for index, kind, _ in found] == [(0, Refused)]
    assert bulk.documents.keys() == {("orders", "2")}


def test_line_ends_in_a_document_do_not_begin_another(bulk: BulkServer, url: str) -> None:
    evil = '{"a":\n1}\n{"delete": {"_index": "orders", "_id": "1"}}'
    assert [kind for _, kind, _ in failures(backend(url), Row("1", {"document": evil}))] == [Refused]
    assert failures(backend(url), Row("2", {"document": '{"a":\n1}'})) == []
    assert bulk.documents == {("orders", "2"): {"a": 1}}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (response(429, Retry_After="9"), Away),
        (response(502), Retry),
        (response(401), Retry),
        (response(400, b"bad"), Refused),
        (response(200, b"<html>"), Retry),
        (response(200, b'{"errors": true}'), Retry),
        (response(200, b'{"errors": true, "items": []}'), Retry),
        (response(200, b'{"errors": true, "items": [{"index": {}}]}'), None),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (ANSWER_BYTES_MAX + 1), Retry),
    ],
)
def test_whole_answers(bulk: BulkServer, url: str, answer: bytes, error: type[Exception] | None) -> None:
    bulk.whole = [answer]
    if error is None:
        assert [kind for _, kind, _ in failures(backend(url), document("1"))] == [Retry]
        return
    with pytest.raises(error) as raised:
        backend(url).write([document("1")])
    assert type(raised.value) is error


@pytest.mark.parametrize("options", [{"index": "Orders"}, {"op_type": "delete"}])
def test_settings_that_cannot_work_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="option"):
        KINDS["opensearch"].prepare("http://h/", Options(options), Delivery())
