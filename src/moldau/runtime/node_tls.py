"""The TLS of a node: the contexts of all its listeners, which follow changes of their files and of their dynamic
configs without a restart."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from moldau.base.setting_sources import SettingsError
from moldau.platforms.key_files import DiskKeyFiles
from moldau.runtime.internal_errors import INTERNAL_ERRORS
from moldau.security.tls.renewal import ListenerTls
from moldau.security.tls.settings import TlsSettings
from moldau.security.tls.stores import KeyFiles

log = logging.getLogger("moldau.tls")
CHECK_INTERVAL_S: Final = 5.0
"""How often the files are looked at."""


class NodeTls:
    def __init__(
        self,
        settings: Mapping[str, TlsSettings],
        served: Collection[str],
        internal: Collection[str],
        files: KeyFiles | None = None,
    ) -> None:
        """`served` are the listeners of this node, `internal` those by which nodes connect to each other. Read all
        files; raise SettingsError if one cannot be used."""
        files = files or DiskKeyFiles()
        self._listeners = {
            name: ListenerTls(name, each, files, is_server=name in served, is_internal=name in internal)
            for name, each in settings.items()
        }
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._reading = threading.Lock()
        """Held by the thread that reads the files: a changed config does not wait for the next look at them."""

    def server(self, listener: str) -> ListenerTls | None:
        """Return the TLS of a listener of this node, or of one that it only connects to; None if it is plaintext."""
        return self._listeners.get(listener)

    def client(self, listener: str) -> Callable[[], ssl.SSLContext] | None:
        """Return a function that returns the context for a new connection to that listener of another node; None if
        the listener is plaintext."""
        tls = self._listeners.get(listener)
        return None if tls is None else lambda: tls.client

    def begin(self, listener: str, settings: TlsSettings | None) -> None:
        """At a start: use other settings for that listener, which has no context before they are loaded; None if they
        cannot be read."""
        self._listeners[listener].begin(settings)

    def closed_line(self, listener: str, wrong: SettingsError) -> str:
        """Return the line for the log about a listener that has no context."""
        return self._listeners[listener].closed_line(wrong)

    def want(self, listener: str, settings: TlsSettings) -> None:
        """Use other settings for that listener from the next look at the files on."""
        self._listeners[listener].want(settings)

    def check(self, listener: str, settings: TlsSettings) -> None:
        """Raise SettingsError if that listener could not use these settings. First use what has changed, also a file
        of which the name stays: the settings are compared with those in use. Waits for the disk."""
        with self._reading:
            self._reload()
            self._listeners[listener].check(settings)

    def reload_soon(self) -> None:
        """Look at the files and settings now, in a thread, and not only after CHECK_INTERVAL_S."""
        if self._is_stopped:
            return
        try:
            asyncio.get_running_loop().run_in_executor(None, self.reload)
        except RuntimeError as no_thread:
            log.warning("certificates are looked at in some seconds: %s", no_thread)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the files from now on."""
        if self._listeners and not self._is_stopped:
            self._timer = loop.call_later(CHECK_INTERVAL_S, self._check, loop)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            checking = loop.run_in_executor(None, self.reload)
        except RuntimeError as no_thread:
            log.warning("certificates are not looked at now: %s", no_thread)
            self.start(loop)
        else:
            checking.add_done_callback(lambda done: self._on_checked(done, loop))

    def reload(self) -> None:
        """Use changed files and configs for new connections. Runs in a thread: it waits for the disk."""
        with self._reading:
            self._reload()

    def _reload(self) -> None:
        for tls in self._listeners.values():
            try:
                line = tls.reload_if_changed()
            except SettingsError as wrong:
                log.error("%s", wrong)
            except Exception:  # such as too many open files: the next look may succeed
                INTERNAL_ERRORS.log(log, "certificates cannot be read again")
            else:
                if line is not None:
                    log.info("%s", line)

    def _on_checked(self, done: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> None:
        done.result()
        self.start(loop)
