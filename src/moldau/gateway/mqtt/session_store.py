"""Keeps persistent sessions in `_mqtt_sessions`: reads them at the start, writes those that change."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from moldau.base.errors import KafkaError, MalformedData
from moldau.gateway.mqtt.session import Session
from moldau.gateway.mqtt.session_records import record_of, session_of, tombstone
from moldau.gateway.mqtt.sessions import Sessions
from moldau.gateway.mqtt.stored import StoredTopic
from moldau.gateway.mqtt.topics import SESSIONS_TOPIC, TopicRules
from moldau.gateway.ports import Account, FoundRecord, NewRecord

log = logging.getLogger(__name__)

Holder = TypeVar("Holder")


class SessionStore:
    def __init__(self, own: Account, sessions: Sessions[Holder], rules: TopicRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms
        self._is_loaded = False
        self._get: Callable[[str], Session | None] = sessions.get
        self._is_held: Callable[[str], bool] = sessions.is_held
        self._restore: Callable[[Session], None] = sessions.restore
        self._forget: Callable[[str], None] = sessions.forget
        self._topic = StoredTopic(own, SESSIONS_TOPIC, self._apply)
        self._changed: dict[str, Session] = {}
        self._ended: set[str] = set()
        self._being_written: Counter[str] = Counter()
        self._read_meanwhile: dict[str, FoundRecord] = {}
        """The last record of each session that is being written: it may be our own, which the answer will tell."""

    async def load(self) -> None:
        await self._topic.load()
        self._is_loaded = True

    async def stop(self) -> None:
        await self._topic.stop()

    def changed(self, session: Session) -> None:
        """Write it with the next flush."""
        if session.is_persistent or session.is_written:
            self._changed[session.key] = session

    def ended(self, session: Session) -> None:
        self._changed.pop(session.key, None)
        if session.is_written:
            self._ended.add(session.key)

    async def save(self, session: Session) -> None:
        """Write it now. KafkaError if that fails."""
        if session.is_persistent:
            await self._write([session])

    async def flush(self) -> None:
        """Write what has changed. What cannot be written is written with the next flush."""
        changed = [session for session in self._changed.values() if self._get(session.key) is session]
        ended = [key for key in self._ended if (known := self._get(key)) is None or not known.is_persistent]
        self._changed, self._ended = {}, set()
        try:
            if ended:
                await self._topic.append([tombstone(key) for key in ended])
            await self._write(changed)
        except KafkaError as error:
            log.warning("mqtt: sessions cannot be written now: %s", error.code.name)
            self._changed = {session.key: session for session in changed} | self._changed
            self._ended.update(ended)

    async def _write(self, sessions: Iterable[Session]) -> None:
        written = [session for session in sessions if session.is_persistent]
        records: list[NewRecord] = []
        for session in written:
            session.places_written = session.places()
            session.is_written = True
            records.append(record_of(session))
        if not records:
            return
        self._being_written.update(session.key for session in written)
        try:
            places = await self._topic.append(records)
            for session, place in zip(written, places, strict=True):
                session.written_offset = max(session.written_offset, place.offset)
        finally:
            for session in written:
                self._apply_what_was_read(session.key)

    def _apply_what_was_read(self, key: str) -> None:
        self._being_written[key] -= 1
        if not self._being_written[key]:
            del self._being_written[key]
            if (record := self._read_meanwhile.pop(key, None)) is not None:
                self._apply(record)

    def _apply(self, record: FoundRecord) -> None:
        """Take a record that was read: at the start, or of another gateway."""
        try:
            key = (record.key or b"").decode()
            known = self._get(key)
            if key in self._being_written:
                self._read_meanwhile[key] = record
            elif key in self._ended or (known is not None and known.written_offset >= record.offset):
                return  # it is older than what is known, or its session has ended
            elif self._is_held(key):
                if record.value is None and known is not None:
                    self.changed(known)  # another gateway, which does not see its client, has ended it
            elif record.value is None:
                self._forget(key)
            else:
                session = session_of(record, self._rules)
                if session.away_since_ms is None and not self._is_loaded:
                    session.away_since_ms = self._now_ms()  # its client was connected when the gateway ended
                self._restore(session)
        except (MalformedData, UnicodeDecodeError) as error:
            log.warning(
                "mqtt: %s-%d, offset %d: %s", SESSIONS_TOPIC, record.partition, record.offset, type(error).__name__
            )
