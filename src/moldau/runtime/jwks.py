"""The keys of an identity provider in a running node: read in a thread, again and again, and kept when that fails."""

from __future__ import annotations

import asyncio
import logging

from moldau.base.clock import Clock
from moldau.base.promise import Promise
from moldau.base.setting_sources import SettingsError
from moldau.client.web_requests import RequestFailed, WebRequest, fetch
from moldau.security.sasl.oauthbearer.keys import JWKS_BYTES_MAX, VerificationKeys, parse_keys
from moldau.security.sasl.oauthbearer.refresh import RefreshSchedule
from moldau.security.sasl.oauthbearer.settings import JWKS_URL, JwksSettings
from moldau.security.sasl.oauthbearer.urls import parse_endpoint

log = logging.getLogger("moldau.oauth")


class JwksKeys:
    """`keys` are those that were last read without a fault."""

    def __init__(self, settings: JwksSettings, clock: Clock) -> None:
        self.keys = VerificationKeys([])
        self._url = settings.url
        self._request = WebRequest(settings.url, JWKS_BYTES_MAX, tls=settings.tls)
        self._schedule = RefreshSchedule(
            settings.refresh_ms,
            settings.retry_ms,
            settings.retry_ms_max,
            is_file=parse_endpoint(settings.url).is_file,
        )
        self._clock = clock
        self._data = b""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[Promise[None]] | None = None
        """Of those who wait for a read that is under way; None if there is none."""

    def read_first(self) -> None:
        """Read the keys, before the node starts; call it in a thread. Raise SettingsError if that is not possible."""
        try:
            self._use(*self._read())
        except (RequestFailed, ValueError) as failed:
            raise SettingsError(f"{JWKS_URL}={self._url}: {failed}") from None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._read_later(self._schedule.after_success_ms())

    def stop(self) -> None:
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def read_for_unknown_key(self) -> Promise[None] | None:
        """Read the keys now, because a token names a key that is not among them. Return None if that was tried
        recently: strangers can name any key."""
        if self._waiting is None and not self._schedule.allows_for_unknown_key(self._clock.monotonic_ms()):
            return None
        done: Promise[None] = Promise()
        self._start_reading()
        if self._waiting is None:  # the node is stopping, or has no thread
            return None
        self._waiting.append(done)
        return done

    def _read_later(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            self._timer = self._loop.call_later(delay_ms / 1000, self._start_reading)

    def _start_reading(self) -> None:
        if self._waiting is not None or self._loop is None:
            return
        try:
            reading = self._loop.run_in_executor(None, self._read)
        except RuntimeError as no_thread:
            self._on_failed(no_thread)
            return
        self._waiting = []
        reading.add_done_callback(self._on_read)

    def _read(self) -> tuple[bytes, VerificationKeys]:
        """Runs in a thread: it waits for the disk or the network."""
        data = fetch(self._request)
        return data, self.keys if data == self._data else parse_keys(data)

    def _on_read(self, reading: asyncio.Future[tuple[bytes, VerificationKeys]]) -> None:
        waiting, self._waiting = self._waiting or [], None
        try:
            self._use(*reading.result())
        except (RequestFailed, ValueError) as failed:
            self._on_failed(failed)
        except Exception:  # a fault of ours: the keys must be read again all the same
            log.exception("keys of %s: internal error; the last %d keys stay in use", self._url, len(self.keys))
            self._read_later(self._schedule.after_failure_ms())
        else:
            self._read_later(self._schedule.after_success_ms())
        for each in waiting:
            each.complete(None)

    def _on_failed(self, failed: Exception) -> None:
        log.warning("keys of %s: %s; the last %d keys stay in use", self._url, failed, len(self.keys))
        self._read_later(self._schedule.after_failure_ms())

    def _use(self, data: bytes, keys: VerificationKeys) -> None:
        if data != self._data:
            self._data, self.keys = data, keys
            log.info("keys of %s: %d keys verify tokens now", self._url, len(keys))
