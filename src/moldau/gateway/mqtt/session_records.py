"""The record of a session in `_mqtt_sessions`: the key is the user and the client identifier with U+0000 between, the
value is JSON; without a value the session has ended.

    {"version": 1, "expiry_s": 3600, "away_since_ms": 1763540000000,
     "subscriptions": [
         {"filter": "plants/#", "qos": 1, "no_local": false, "retain_as_published": false, "identifier": 7}],
     "places": {"telemetry": {"0": 1041, "1": 977}}}

`away_since_ms` is null while the client is connected. Places are the next offsets to deliver.
"""

from __future__ import annotations

import json
from typing import Any, Final

from moldau.base.errors import MalformedData
from moldau.gateway.mqtt.packets import Requested
from moldau.gateway.mqtt.properties import VARINT_MAX
from moldau.gateway.mqtt.session import Progress, Session, Subscription
from moldau.gateway.mqtt.topics import Refusal, TopicRules
from moldau.gateway.ports import FoundRecord, NewRecord

VERSION: Final = 1


def record_of(session: Session) -> NewRecord:
    value = {
        "version": VERSION,
        "expiry_s": session.expiry_s,
        "away_since_ms": session.away_since_ms,
        "subscriptions": [
            {
                "filter": each.filter,
                "qos": each.qos,
                "no_local": each.no_local,
                "retain_as_published": each.retain_as_published,
                "identifier": each.identifier,
            }
            for each in session.subscriptions.values()
        ],
        "places": session.places(),
    }
    return NewRecord(json.dumps(value, separators=(",", ":")).encode(), session.key.encode())


def tombstone(key: str) -> NewRecord:
    return NewRecord(None, key.encode())


def session_of(record: FoundRecord, rules: TopicRules) -> Session:
    """Return the session as it was written; `away_since_ms` is None if its client was connected then. Filters that the
    rules no longer allow are left out. MalformedData if it is not a record of a session."""
    try:
        value = json.loads(record.value or b"")
        if value["version"] != VERSION:
            raise MalformedData(f"the record of a session has version {value['version']!r}")
        away_since_ms = None if value["away_since_ms"] is None else int(value["away_since_ms"])
        session = Session((record.key or b"").decode(), int(value["expiry_s"]), away_since_ms=away_since_ms)
        for each in value["subscriptions"]:
            _add_subscription(session, each, rules)
        for topic, places in value["places"].items():
            session.progress[str(topic)] = Progress({int(index): int(offset) for index, offset in places.items()})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise MalformedData(f"not the record of a session: {type(error).__name__}") from error
    session.is_written = True
    session.written_offset = record.offset
    session.places_written = session.places()
    return session


def _add_subscription(session: Session, value: dict[str, Any], rules: TopicRules) -> None:
    request = Requested(
        str(value["filter"]), int(value["qos"]), bool(value["no_local"]), bool(value["retain_as_published"])
    )
    identifier = None if value["identifier"] is None else int(value["identifier"])
    if request.qos not in (0, 1) or (identifier is not None and not 1 <= identifier <= VARINT_MAX):
        raise MalformedData("a subscription that no client could have made")
    topics = rules.topics(request.filter)
    if not isinstance(topics, Refusal):
        session.subscriptions[request.filter] = Subscription.of(request, topics, identifier)
