"""The generator and the recomputation of examples/bookstore, without Spark: properties of the generated events, and
cases small enough to count by hand."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

BOOKSTORE = Path(__file__).parents[3] / "examples" / "bookstore"
sys.path.insert(0, str(BOOKSTORE))

import checks  # noqa: E402
import events  # noqa: E402
import recompute  # noqa: E402
import report  # noqa: E402

USERS = {"u-1": {"user_id": "u-1", "name": "Ottla Samsa", "country": "CZ", "segment": "reader"}}
TEN = datetime(2026, 3, 14, 22, tzinfo=UTC)


@pytest.fixture(scope="module")
def whole_night() -> events.Night:
    return events.night(6000, events.users(200))


@pytest.fixture(scope="module")
def rows(whole_night: events.Night) -> list[dict[str, Any]]:
    """The events that can be read, each once, in the order of their times."""
    values = [record.value for minute in [*whole_night.minutes, whole_night.late] for record in minute]
    found = {row["event_id"]: row for value in values if (row := recompute.parsed(value))}
    return sorted(found.values(), key=lambda row: (row["ts"], row["event_id"]))


class TestGenerator:
    def test_the_same_seed_generates_the_same_night(self) -> None:
        people = events.users(50, seed=3)
        assert people == events.users(50, seed=3) != events.users(50, seed=4)
        assert events.night(500, people, seed=3) == events.night(500, people, seed=3)
        assert events.night(500, people, seed=3) != events.night(500, people, seed=4)

    def test_the_users_beside_the_pipeline_are_the_generated_ones(self) -> None:
        assert (BOOKSTORE / "data" / "users.csv").read_text() == events.users_csv(events.users(60))

    def test_about_as_many_events_as_requested_are_generated(self, whole_night: events.Night) -> None:
        assert whole_night.total == pytest.approx(6000, rel=0.1)

    def test_every_kind_of_event_and_of_fault_occurs(self, whole_night: events.Night) -> None:
        result = recompute.recompute([whole_night.minutes, [whole_night.late]], {})
        assert result.by_type.keys() == set(events.TYPES)
        assert {day for day, _ in result.by_day_and_type} == {"2026-03-14", "2026-03-15"}
        assert min(result.dead.total(), result.duplicates, result.too_late, len(result.suspicious)) > 0
        assert result.too_late == len(whole_night.late)

    def test_sessions_begin_with_a_login_and_end_with_a_logout(self, rows: list[dict[str, Any]]) -> None:
        sessions = defaultdict(list)
        for row in rows:
            sessions[row["session_id"]].append(row)
        visits = [session for session in sessions.values() if {row["type"] for row in session} != {"login"}]
        assert len(visits) > 400
        for session in visits:
            assert session[0]["type"] == "login"
            assert session[-1]["type"] == "logout"
            assert [row["type"] for row in session].count("logout") == 1
            assert len({row["user_id"] for row in session}) == 1

    def test_orders_exist_before_their_status_is_queried_or_they_are_returned(self, rows: list[dict[str, Any]]) -> None:
        owner, returned = {}, set()
        for row in rows:
            if row["type"] == "buy":
                owner[row["order_id"]] = row["user_id"], row["book_id"], row["price"]
            if row["type"] in ("order_status", "return"):
                assert owner[row["order_id"]][0] == row["user_id"]
                assert row["order_id"] not in returned
            if row["type"] == "return":
                assert owner[row["order_id"]] == (row["user_id"], row["book_id"], row["price"])
                returned.add(row["order_id"])
        assert returned

    def test_events_are_out_of_order_by_no_more_than_the_documented_time(self, whole_night: events.Night) -> None:
        newest = datetime.min.replace(tzinfo=UTC)
        for minute in whole_night.minutes:
            times = [row["ts"] for _, value in minute if (row := recompute.parsed(value))]
            newest = max([newest, *times])
            for moment in times:
                assert newest - moment <= timedelta(milliseconds=events.DISORDER_MS + events.MINUTE_MS)

    def test_all_four_kinds_of_bad_records_occur(self) -> None:
        night = events.night(15_000, events.users(500))
        bad = [value for minute in night.minutes for _, value in minute if recompute.parsed(value) is None]
        ways: Counter[str] = Counter()
        for value in bad:
            try:
                row = json.loads(value)
            except ValueError:
                ways["broken"] += 1
                continue
            ways["no id" if "event_id" not in row else "price" if "price" in row else "time"] += 1
        assert ways.keys() == {"broken", "no id", "price", "time"}


def record(event_id: str, at: timedelta, kind: str = "login", user: str = "u-1", **details: object) -> recompute.Bytes:
    price = details.pop("price", None)
    fields = {"event_id": event_id, "ts": (TEN + at).isoformat(), "type": kind, "user_id": user, **details}
    text = json.dumps(fields)
    return user.encode(), (f'{text[:-1]}, "price": {price}}}' if price else text).encode()


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


CLOSING = record("e-last", minutes(100), "logout", "u-2")
"""An event so much later than the others that all their windows close."""


class TestRecompute:
    def test_counts_and_turnover_by_window_and_type(self) -> None:
        sent = [
            record("e-1", minutes(0), "buy", price="12.90"),
            record("e-2", minutes(9.99), "buy", price="7.20"),
            record("e-3", minutes(10), "buy", price="1.10"),
            record("e-4", minutes(11), "return", price="7.20"),
            record("e-5", minutes(12), "list_books"),
        ]
        result = recompute.recompute([[[each] for each in sent], [[CLOSING]]], USERS)
        second = TEN + minutes(10)
        assert result.counts == {
            (TEN, "buy"): (2, Decimal("20.10")),
            (second, "buy"): (1, Decimal("1.10")),
            (second, "return"): (1, Decimal("-7.20")),
            (second, "list_books"): (1, Decimal(0)),
        }
        assert result.open_events == 1
        assert result.watermark == TEN + minutes(95)

    def test_a_window_closes_when_the_watermark_reaches_its_end(self) -> None:
        first = record("e-1", minutes(1))
        just_before = record("e-2", minutes(15) - timedelta(milliseconds=1))
        reached = record("e-2", minutes(15))
        assert recompute.recompute([[[first]], [[just_before]]], USERS).counts == {}
        assert recompute.recompute([[[first]], [[reached]]], USERS).counts == {(TEN, "login"): (1, 0)}

    def test_an_event_id_counts_once(self) -> None:
        twice = record("e-1", minutes(1))
        result = recompute.recompute([[[twice, twice]], [[twice]]], USERS)
        assert (len(result.events), result.duplicates, result.read) == (1, 2, 3)

    def test_an_event_behind_the_watermark_is_too_late(self) -> None:
        waves = [[[CLOSING]], [[record("e-1", minutes(95)), record("e-2", minutes(95.1))]]]
        result = recompute.recompute(waves, USERS)
        assert result.too_late == 1
        assert result.events.keys() == {"e-last", "e-2"}

    def test_a_late_event_within_a_wave_is_refused(self) -> None:
        early = record("e-1", minutes(1))
        with pytest.raises(recompute.ChanceDecides, match="e-1"):
            recompute.recompute([[[early, CLOSING]]], USERS)
        with pytest.raises(recompute.ChanceDecides, match="e-1"):
            recompute.recompute([[[CLOSING], [early]]], USERS)

    def test_events_are_enriched_with_their_user(self) -> None:
        known, unknown = record("e-1", minutes(1)), record("e-2", minutes(125), user="u-9")
        found = recompute.recompute([[[known]], [[unknown]]], USERS).events
        assert [found["e-1"][name] for name in ("user_name", "home_country", "segment", "day")] == [
            "Ottla Samsa",
            "CZ",
            "reader",
            "2026-03-14",
        ]
        assert (found["e-2"]["user_name"], found["e-2"]["day"]) == (None, "2026-03-15")

    @pytest.mark.parametrize(("failed", "suspicious"), [(4, False), (5, True)])
    def test_five_failed_logins_are_suspicious(self, failed: int, suspicious: bool) -> None:
        sent = [record(f"e-{number}", minutes(number), success=False, country="CZ") for number in range(failed)]
        sent.append(record("e-good", minutes(3), success=True, country="CZ"))
        result = recompute.recompute([[sent], [[CLOSING]]], USERS)
        assert result.suspicious == ({(TEN, "u-1"): ("Ottla Samsa", failed, ("CZ",))} if suspicious else {})

    @pytest.mark.parametrize(("countries", "suspicious"), [("CZ DE DE", False), ("CZ JP DE", True)])
    def test_logins_from_three_countries_are_suspicious(self, countries: str, suspicious: bool) -> None:
        sent = [record(f"e-{number}", minutes(1), country=each) for number, each in enumerate(countries.split())]
        sent.append(record("e-book", minutes(1), "buy", country="US", price="1.00"))
        result = recompute.recompute([[sent], [[CLOSING]]], USERS)
        assert list(result.suspicious.values()) == ([("Ottla Samsa", 0, ("CZ", "DE", "JP"))] if suspicious else [])

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"null",
            b"[1]",
            b'{"event_id": "e-1", "ts": "2026-03-1',
            b'{"ts": "2026-03-14T22:00:00Z", "type": "login", "user_id": "u-1"}',
            b'{"event_id": "e-1", "ts": "soon", "type": "login", "user_id": "u-1"}',
            b'{"event_id": "e-1", "ts": "2026-03-14T22:00:00Z", "type": "buy", "user_id": "u-1", "price": "dear"}',
            b'{"event_id": "e-1", "ts": "2026-03-14T22:00:00Z", "type": "login", "user_id": "u-1", "success": "no"}',
        ],
    )
    def test_a_record_that_does_not_fit_the_schema_is_a_dead_letter(self, value: bytes) -> None:
        result = recompute.recompute([[[(b"k", value)]]], USERS)
        assert result.dead == {(b"k", value): 1}
        assert not result.events


class TestChecks:
    """The comparison with the recomputation finds every kind of error in the output of the pipeline."""

    @staticmethod
    def written(result: recompute.Result) -> checks.Written:
        """Return the output of a correct pipeline."""
        rows = [{name: value for name, value in row.items() if value is not None} for row in result.events.values()]
        return checks.Written(
            by_type={kind: [row for row in rows if row["type"] == kind] for kind in result.by_type},
            counts=[
                {"window_start": start, "type": kind, "events": count.events, "turnover": count.turnover}
                for (start, kind), count in result.counts.items()
            ],
            suspicious=[
                {
                    "window_start": start,
                    "user_id": user,
                    "user_name": s.name,
                    "failed": s.failed,
                    "countries": s.countries,
                }
                for (start, user), s in result.suspicious.items()
            ],
            dead=[
                checks.DeadLetter(
                    record,
                    {
                        "moldau.topic": b"bookstore.events",
                        "moldau.error": b"bad",
                        "moldau.partition": b"0",
                        "moldau.offset": str(number).encode(),
                    },
                )
                for number, record in enumerate(result.dead.elements())
            ],
            lake=rows,
            lake_partitions=set(result.by_day_and_type),
        )

    @pytest.fixture
    def result(self) -> recompute.Result:
        sent = [record(f"e-{number}", minutes(1), success=False, country="CZ") for number in range(6)]
        sent += [record("e-buy", minutes(2), "buy", price="3.00"), (b"k", b"{")]
        return recompute.recompute([[sent], [[CLOSING]]], USERS)

    def test_a_correct_output_passes_all_checks(self, result: recompute.Result) -> None:
        compared = checks.compare(self.written(result), result)
        assert compared
        assert [check.what for check in compared if not check.agrees] == []

    @pytest.mark.parametrize(
        ("corrupt", "failed_check"),
        [
            (lambda w: w.by_type["buy"].clear(), "topic bookstore.buy"),
            (lambda w: w.by_type["login"].append(w.by_type["login"][0]), "topic bookstore.login"),
            (lambda w: w.by_type["buy"][0].update(price=Decimal("3.01")), "topic bookstore.buy"),
            (lambda w: w.counts[0].update(events=0), "topic bookstore.counts"),
            (lambda w: w.counts.append(w.counts[0]), "topic bookstore.counts"),
            (lambda w: w.suspicious[0].update(failed=7), "topic bookstore.suspicious"),
            (lambda w: w.dead.clear(), "topic bookstore.dead"),
            (lambda w: w.dead[0].headers.pop("moldau.error"), "topic bookstore.dead"),
            (lambda w: w.lake.pop(), "lake table"),
            (lambda w: w.lake_partitions.pop(), "  its partitions"),
        ],
    )
    def test_a_wrong_output_fails_its_check(self, result: recompute.Result, corrupt: Any, failed_check: str) -> None:
        written = self.written(result)
        corrupt(written)
        assert failed_check in {check.what for check in checks.compare(written, result) if not check.agrees}


class TestReport:
    def test_the_chart_has_a_line_for_every_window_and_a_mark_for_every_suspicion(self) -> None:
        sent = [record(f"e-{number}", minutes(1), success=False, country="CZ") for number in range(6)]
        sent.append(record("e-later", minutes(31), "buy", price="3.00"))
        result = recompute.recompute([[[each] for each in sent], [[CLOSING]]], USERS)
        console = Console(width=120, file=StringIO())
        report.print_chart(console, result.counts, result.suspicious)
        assert isinstance(console.file, StringIO)
        lines = console.file.getvalue().splitlines()
        assert [line[:5] for line in lines if line[2:3] == ":"] == ["22:00", "22:10", "22:20", "22:30"]
        assert [line.count("▲") for line in lines if line.startswith("22:00")] == [1]
        assert any("3.00 €" in line for line in lines if line.startswith("22:30"))

    def test_the_picture_is_a_png(self, whole_night: events.Night, tmp_path: Path) -> None:
        result = recompute.recompute([whole_night.minutes, [whole_night.late]], {})
        report.draw_picture(tmp_path / "report.png", result.counts, result.suspicious)
        assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
