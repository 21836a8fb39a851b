"""What happens in a bookstore in one night: users, sessions that make sense, and everything that goes wrong on the way.

    python events.py --events 1000 | moldau produce bookstore.events --key-separator '|'
    python events.py --users 60 > data/users.csv

The same seed gives the same bytes. A user logs in before buying, buys before asking for an order or returning it, and
logs out last. On top of that come the troubles of a real stream:

* events arrive out of order, by at most `DISORDER_MS` of event time;
* some arrive twice, with the same `event_id`: a client that did not see the acknowledgement;
* some cannot be read: broken JSON, a field missing, a field of the wrong type, a time that is none;
* some arrive hours late, after the pipeline has closed their windows: a phone that was switched off;
* some logins are suspicious: many failures in a row, or one user from several countries within minutes.

Records come minute by minute of arrival. Whoever sends one minute only after the one before has been acknowledged knows
that no event is ever more than `DISORDER_MS` and a minute behind an event that is already in the topic.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

TYPES = ("login", "list_books", "book_details", "buy", "order_status", "return", "logout")
COUNTRIES = ("CZ", "DE", "AT", "PL", "SK", "FR", "GB", "US", "BR", "IN", "JP", "NG")
SEGMENTS = ("reader", "student", "collector", "library")
FIRST_NAMES = ("Felice", "Milena", "Ottla", "Max", "Josef", "Karl", "Frieda", "Gregor", "Grete", "Leni", "Georg")
LAST_NAMES = ("Bauer", "Brod", "Jesenska", "Samsa", "Bendemann", "Rossmann", "Barnabas", "Huld", "Blumfeld", "Klamm")

START_MS = int(datetime(2026, 3, 14, 22, tzinfo=UTC).timestamp() * 1000)
"""A Saturday at ten in the evening: the night has two days, so the lake table has two partitions by day."""
NIGHT_MS = 4 * 3600 * 1000
MINUTE_MS = 60_000
DISORDER_MS = 2 * MINUTE_MS

EVENTS_PER_SESSION = 8.0
"""About so many come out of `_session`; it only sets how many sessions are tried for a wanted number of events."""
BOOKS = 300
SLOW_SHARE, DUPLICATE_SHARE, BAD_SHARE, LATE_SHARE = 0.03, 0.005, 0.003, 0.001
ATTACK_SHARE = 0.0015
"""Of all sessions, so many are no sessions but somebody at the door."""


class User(NamedTuple):
    user_id: str
    name: str
    country: str
    segment: str


class Record(NamedTuple):
    """As it is sent to the topic."""

    key: bytes
    value: bytes


class _Order(NamedTuple):
    order_id: str
    book_id: str
    price: str


@dataclass(slots=True)
class Night:
    """All records, in the order of their arrival."""

    minutes: list[list[Record]] = field(default_factory=list)
    late: list[Record] = field(default_factory=list)
    """To be sent when the pipeline has seen all of `minutes`."""

    @property
    def total(self) -> int:
        return sum(map(len, self.minutes)) + len(self.late)


@dataclass(slots=True)
class _Event:
    ts_ms: int
    type: str
    user_id: str
    session_id: str
    country: str
    details: dict[str, object] = field(default_factory=dict)


def users(count: int, seed: int = 7) -> list[User]:
    rng = Random(f"users {seed}")
    return [
        User(
            f"u-{number:05}",
            f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}",
            rng.choices(COUNTRIES, weights=range(len(COUNTRIES), 0, -1))[0],
            rng.choices(SEGMENTS, weights=(60, 20, 15, 5))[0],
        )
        for number in range(count)
    ]


def users_csv(people: list[User]) -> str:
    return "".join(",".join(row) + "\n" for row in [User._fields, *people])


def night(count: int, people: list[User], seed: int = 7) -> Night:
    """About `count` records of one night; a few percent more or less."""
    rng = Random(f"night {seed}")
    events = sorted(_sessions(rng, round(count / EVENTS_PER_SESSION), people), key=lambda event: event.ts_ms)
    arrivals, late = _arrivals(rng, events)
    arrivals.sort(key=lambda arrival: arrival[0])
    result = Night(late=late)
    for arrival_ms, record in arrivals:
        while len(result.minutes) <= (arrival_ms - START_MS) // MINUTE_MS:
            result.minutes.append([])
        result.minutes[-1].append(record)
    return result


def _sessions(rng: Random, count: int, people: list[User]) -> Iterator[_Event]:
    """Nobody has two sessions at a time, so that what a user bought earlier really was earlier."""
    orders: dict[str, list[_Order]] = {}
    busy_until: dict[str, int] = {}
    for number, start_ms in enumerate(sorted(_moment(rng) for _ in range(count))):
        user = rng.choice(people)
        if busy_until.get(user.user_id, 0) >= start_ms:
            continue
        if rng.random() < ATTACK_SHARE:
            events = list(_attack(rng, f"s-{number:06}", user, start_ms))
        else:
            events = list(_session(rng, f"s-{number:06}", user, start_ms, orders.setdefault(user.user_id, [])))
        busy_until[user.user_id] = events[-1].ts_ms
        yield from events


def _moment(rng: Random) -> int:
    """Most come before midnight, and some cannot sleep at three quarters of the night."""
    share = rng.betavariate(2, 4) if rng.random() < 0.8 else rng.gauss(0.75, 0.05)
    return START_MS + int(min(max(share, 0.0), 0.999) * NIGHT_MS)


def _session(rng: Random, session_id: str, user: User, now_ms: int, orders: list[_Order]) -> Iterator[_Event]:
    def event(kind: str, **details: object) -> _Event:
        nonlocal now_ms
        now_ms += rng.randrange(1_000, 25_000)
        return _Event(now_ms, kind, user.user_id, session_id, user.country, details)

    if rng.random() < 0.04:
        yield event("login", success=False)
    yield event("login", success=True)
    for _ in range(rng.randrange(1, 4)):
        yield event("list_books")
        for _ in range(rng.randrange(0, 4)):
            book_id = _book(rng)
            yield event("book_details", book_id=book_id)
            if rng.random() < 0.25:
                order = _Order(f"o-{session_id[2:]}-{len(orders)}", book_id, _price(book_id))
                orders.append(order)
                yield event("buy", book_id=book_id, order_id=order.order_id, price=order.price)
    if orders and rng.random() < 0.5:
        yield event("order_status", order_id=rng.choice(orders).order_id)
    if orders and rng.random() < 0.12:
        order = orders.pop(rng.randrange(len(orders)))
        yield event("return", book_id=order.book_id, order_id=order.order_id, price=order.price)
    yield event("logout")


def _attack(rng: Random, session_id: str, user: User, now_ms: int) -> Iterator[_Event]:
    """Either somebody guesses a password, or one user is on three continents at once."""
    guessing = rng.random() < 0.6
    countries = rng.sample(COUNTRIES, 4)
    for attempt in range(rng.randrange(8, 14) if guessing else 4):
        now_ms += rng.randrange(500, 8_000)
        country = countries[0 if guessing else attempt]
        yield _Event(now_ms, "login", user.user_id, session_id, country, {"success": not guessing})


def _book(rng: Random) -> str:
    """A few sell by the hundred, most hardly ever."""
    return f"b-{min(int(rng.paretovariate(0.7)), BOOKS):03}"


def _price(book_id: str) -> str:
    return f"{5 + int(book_id[2:]) * 7 % 40}.{int(book_id[2:]) * 13 % 10}0"


def _arrivals(rng: Random, events: list[_Event]) -> tuple[list[tuple[int, Record]], list[Record]]:
    """Each event with the time of its arrival, and those that come when nobody waits for them any more."""
    arrivals: list[tuple[int, Record]] = []
    late = []
    last_ms = events[-1].ts_ms
    for number, event in enumerate(events):
        record = Record(event.user_id.encode(), _value(number, event))
        # Only looking around is held back or spoilt: a lost purchase would leave a return without its order.
        expendable = event.type in ("list_books", "book_details")
        chance = rng.random()
        delay_ms = rng.randrange(DISORDER_MS // 2 if rng.random() < SLOW_SHARE else 2_000)
        if expendable and chance < LATE_SHARE and event.ts_ms < last_ms - NIGHT_MS // 4:
            late.append(record)
            continue
        if expendable and LATE_SHARE <= chance < LATE_SHARE + BAD_SHARE and event.ts_ms < last_ms - NIGHT_MS // 4:
            record = _spoilt(rng, record)
        elif chance > 1 - DUPLICATE_SHARE:
            arrivals.append((event.ts_ms + delay_ms + rng.randrange(DISORDER_MS // 2), record))
        arrivals.append((event.ts_ms + delay_ms, record))
    return arrivals, late


def _value(number: int, event: _Event) -> bytes:
    fields = {
        "event_id": f"e-{number:07}",
        "ts": _iso(event.ts_ms),
        "type": event.type,
        "user_id": event.user_id,
        "session_id": event.session_id,
        "country": event.country,
        **event.details,
    }
    price = fields.pop("price", None)
    text = json.dumps(fields, separators=(",", ":"))
    # A price is a decimal number, which the json module would make a float of.
    return (text if price is None else f'{text[:-1]},"price":{price}}}').encode()


def _spoilt(rng: Random, record: Record) -> Record:
    """One of four ways in which a record cannot be read."""
    text = record.value.decode()
    fields = json.loads(text)
    spoilt = (
        text[: len(text) * 2 // 3],
        json.dumps({name: value for name, value in fields.items() if name != "event_id"}),
        json.dumps({**fields, "price": "for nothing"}),
        json.dumps({**fields, "ts": "yesterday evening"}),
    )
    return Record(record.key, rng.choice(spoilt).encode())


def _iso(ts_ms: int) -> str:
    seconds, rest = divmod(ts_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"


def main() -> None:
    parser = argparse.ArgumentParser(description="Events of a bookstore, one record a line: key|value.")
    parser.add_argument("--events", type=int, default=1000, metavar="N", help="about so many (default 1000)")
    parser.add_argument("--users", type=int, metavar="N", help="print the table of N users as CSV instead")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    if args.users is not None:
        sys.stdout.write(users_csv(users(args.users, args.seed)))
        return
    whole = night(args.events, users(60, args.seed), args.seed)
    for record in [record for minute in whole.minutes for record in minute] + whole.late:
        sys.stdout.write(f"{record.key.decode()}|{record.value.decode()}\n")


if __name__ == "__main__":
    main()
