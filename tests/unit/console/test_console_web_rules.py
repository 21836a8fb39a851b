"""Functions of the console without I/O: allowed hosts, logins, sessions, lists, shown records, cursors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from moldau import console
from moldau.base.errors import UnusableProperty
from moldau.cli.console import access_warnings, split_listen
from moldau.console import problems
from moldau.console.listing import list_query, page_of
from moldau.console.next_steps import API_ERRORS
from moldau.console.options import ConsoleOptions, properties_of
from moldau.console.pages import QUERY_LENGTH_MAX
from moldau.console.records.search import cursor_text, parse_cursor
from moldau.console.records.shown import FoundRecord, record_data, shown
from moldau.console.sessions import IDLE_SECONDS, SESSIONS_MAX, Sessions
from moldau.operations.failures import NotFound
from moldau.operations.next_steps import NextStep
from moldau.web.failures import ApiError
from moldau.web.hosts import allowed_hosts
from moldau.wire.records import Record


def test_browsers_reach_the_console_by_its_host_and_allowed_names() -> None:
    options = ConsoleOptions("b", host="Console.example.com", allowed_hosts=allowed_hosts(["proxy.example.com:80"]))
    assert options.host_names == {"console.example.com", "proxy.example.com"}


def test_an_answer_has_the_words_of_the_console_for_what_helps() -> None:
    answer = API_ERRORS.of(NotFound("group billing does not exist", NextStep.MAKE_GROUP))
    assert answer.message == (
        "group billing does not exist; the page Groups shows the groups there are,"
        " and `new` sets the offsets of a group before it exists"
    )
    assert API_ERRORS.of(ZeroDivisionError()).message.startswith("a mistake of the console: ZeroDivisionError; ")


def test_a_login_replaces_the_credentials_of_the_file() -> None:
    options = ConsoleOptions(
        "b", {"security.protocol": "SASL_SSL", "ssl.ca.pem": "CA", "sasl.username": "admin", "sasl.password": "secret"}
    )
    assert options.login_required
    assert properties_of(options, "alice", "pw", "SCRAM-SHA-256") == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": "CA",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "pw",
    }
    with pytest.raises(UnusableProperty):
        properties_of(options, "alice", "pw", "GSSAPI")
    assert "secret" not in repr(options)


def test_without_sasl_or_with_no_login_no_login_is_required() -> None:
    assert not ConsoleOptions("b", {"security.protocol": "SSL"}).login_required
    assert not ConsoleOptions("b", {"security.protocol": "SASL_SSL"}, asks_login=False).login_required


def test_access_warnings() -> None:
    sasl, ssl = {"security.protocol": "SASL_SSL"}, {"security.protocol": "SSL"}
    assert access_warnings(ConsoleOptions("b", sasl, asks_login=False)) == []
    open_to_all = access_warnings(ConsoleOptions("b", sasl, "0.0.0.0", asks_login=False))
    assert len(open_to_all) == 2
    assert "--no-login" in open_to_all[0]
    assert access_warnings(ConsoleOptions("b", sasl, "0.0.0.0", certificate="c.pem")) == []
    assert access_warnings(ConsoleOptions("b", ssl)) == []
    assert "the cluster has no logins" in access_warnings(ConsoleOptions("b", ssl, "0.0.0.0"))[0]
    for host in ("localhost", "0.0.0.0"):
        (line, *_) = access_warnings(ConsoleOptions("b", {**ssl, "ssl.certificate.location": "me.pem"}, host))
        assert line.startswith(f"everybody who can reach http://{host}:8080/ acts as the owner of the console's cert")
    assert split_listen("[::1]:80", "--listen") == ("::1", 80)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_sessions(clock: Clock) -> tuple[Sessions[str], list[str]]:
    ended: list[str] = []
    numbers = iter(range(10_000))
    return Sessions(b"secret", lambda: f"id-{next(numbers)}", clock, ended.append), ended


def test_a_session_ends_when_it_is_idle() -> None:
    clock = Clock()
    sessions, ended = make_sessions(clock)
    session_id = sessions.add("alice", "access")
    clock.now = IDLE_SECONDS - 1
    assert sessions.login(session_id) is not None
    clock.now += IDLE_SECONDS - 1
    assert sessions.login(session_id) is not None
    clock.now += IDLE_SECONDS + 1
    assert sessions.login(session_id) is None
    assert ended == ["access"]


def test_sessions_are_bounded_and_visitors_need_none() -> None:
    sessions, _ = make_sessions(Clock())
    for _ in range(SESSIONS_MAX):
        sessions.add("alice", "access")
    with pytest.raises(ApiError) as refused:
        sessions.add("alice", "access")
    assert refused.value.status == 429
    for _ in range(1000):
        sessions.token(sessions.new_id())
    assert len(sessions) == SESSIONS_MAX


def test_a_token_belongs_to_one_session() -> None:
    sessions, _ = make_sessions(Clock())
    token = sessions.token("one")
    assert sessions.has_token("one", token)
    assert not sessions.has_token("two", token)
    assert not sessions.has_token("one", token[:-1] + "ü")
    assert not sessions.has_token("one", None)
    assert not sessions.has_token(None, token)
    assert not sessions.has_token("x" * 10_000, sessions.token("x" * 10_000))


ROWS = [{"name": name, "lag": lag} for name, lag in (("b", 5), ("a", None), ("Cab", 7), ("d", 5))]


def names(sort: str, **parameters: str) -> list[str]:
    query = list_query({"sort": sort, **parameters}, ("name", "lag"), "name")
    return [row["name"] for row in page_of(ROWS, query, "name")["rows"]]


def test_pages_have_one_word_for_each_state() -> None:
    """A broker is down, a partition is offline or under-replicated, a replica is not in sync."""
    other_words = re.compile(r"\b(is gone|out of sync|(without a|has no|have no) leader)\b|badge\(\"gone\"")
    scripts = [*(Path(console.__file__).parent / "static/js").rglob("*.js"), Path(problems.__file__)]
    assert len(scripts) > 20
    found = [each.name for each in scripts if other_words.search(each.read_text(encoding="utf-8"))]
    assert found == []


def test_a_list_is_sorted_with_unknown_values_last_filtered_and_paged() -> None:
    assert names("lag") == ["b", "d", "Cab", "a"]
    assert names("-lag") == ["Cab", "b", "d", "a"]
    assert names("name") == ["Cab", "a", "b", "d"]
    assert names("name", filter="AB") == ["Cab"]
    assert names("lag", size="3", page="2") == ["a"]
    assert names("lag", page="9") == []


def test_a_list_may_be_filtered_by_several_columns() -> None:
    rows = [{"name": "a", "host": "one"}, {"name": "b", "host": "two"}, {"name": "onerous", "host": None}]
    query = list_query({"filter": "ONE"}, ("name",), "name")
    found = page_of(rows, query, "name", filtered=("name", "host"))
    assert [row["name"] for row in found["rows"]] == ["a", "onerous"]
    assert page_of(rows, query, "name")["matching"] == 1


@pytest.mark.parametrize(
    "parameters",
    [{"sort": "password"}, {"page": "0"}, {"size": "501"}, {"page": "٣"}, {"page": "9" * 30}, {"size": "-1"}],
)
def test_invalid_list_parameters_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(ApiError):
        list_query(parameters, ("name", "lag"), "name")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "null"),
        (b"", "text"),
        (b"hello\n", "text"),
        (b'{"a": 1}', "json"),
        (b"[1]", "json"),
        (b"12", "text"),
        (b'{"a": NaN}', "text"),
        (b'{"a": 1e999}', "text"),
        (b'[-1e999, {"b": 1e-999}]', "text"),
        (b'{"a": 9007199254740992}', "json"),
        (b'{"a": [{"b": 9007199254740993}]}', "text"),
        (b"[-9007199254740993]", "text"),
        (b"{broken", "text"),
        ("ěšč".encode(), "text"),
        (b"\xff\xfe", "binary"),
        (b"\x00\x01", "binary"),
        (b"[" * 50_000, "text"),
        (b"[" * 150 + b"]" * 150, "text"),
        (b"[" * 99 + b"]" * 99, "json"),
        (b"[" * 100 + b"]" * 100, "text"),
    ],
)
def test_the_kind_of_a_shown_value(data: bytes | None, kind: str) -> None:
    result = shown(data, 64 << 10)
    assert result["kind"] == kind
    assert ("json" in result) is (kind == "json")
    json.dumps(result, allow_nan=False)


def test_long_values_are_cut_and_marked() -> None:
    text = shown("ě".encode() * 1000, 101)
    assert (text["kind"], text["cut"], text["bytes"], text["text"]) == ("text", True, 2000, "ě" * 50)
    binary = shown(b"\xff" * 1000, 100)
    assert (binary["kind"], binary["cut"], len(binary["text"])) == ("binary", True, 100)
    assert "cut" not in shown(b"a" * 100, 100)


def test_the_json_of_a_record() -> None:
    record = Record(17, -1, b"k", None, (("h", None),))
    data = record_data(FoundRecord(3, record, True))
    assert data["timestamp_ms"] is None
    assert data["timestamp_type"] == "append"
    assert data["headers"] == [{"name": "h", "value": {"kind": "null", "text": None, "bytes": 0}}]
    assert data["size_bytes"] == 2


def test_cursors_are_read_back_and_invalid_ones_are_refused() -> None:
    assert cursor_text({1: 5, 0: 17}) == "0:17,1:5"
    assert cursor_text(None) is None
    assert parse_cursor("0:17,1:5", [0, 1]) == {0: 17, 1: 5}
    many = {index: 1_000_000 + index * 7919 % 5000 for index in range(4000)}
    packed = cursor_text(many)
    assert packed is not None
    assert len(packed) < QUERY_LENGTH_MAX - 4000
    assert parse_cursor(packed, range(4000)) == many
    far = {index: 2**63 - 1 if index % 2 else 0 for index in range(1, 1000, 3)}
    assert parse_cursor(cursor_text(far) or "", range(1000)) == far
    for wrong in (
        packed[:-1],
        packed[:50] + "=" + packed[50:],
        "~ž",
        "~!",
        "~____________",
        "~AAAB" * 9,
        "0:1" + packed,
    ):
        with pytest.raises(ApiError):
            parse_cursor(wrong, range(4000))
    with pytest.raises(ApiError):
        parse_cursor(packed, range(3999))
    for wrong in ("", "0", "0:", "2:1", "0:-1", "a:b", "0:" + "9" * 40):
        with pytest.raises(ApiError):
            parse_cursor(wrong, [0, 1])
