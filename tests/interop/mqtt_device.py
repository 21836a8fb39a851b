"""paho-mqtt with a network loop of our own: its own uses select(), which fails from the 1,024th descriptor on.

A process that has run many tests has more than these.
"""

from __future__ import annotations

import select
import threading
from ssl import SSLSocket

import paho.mqtt.client as mqtt
from harness.patience import PATIENCE_S

_POLL_S = 0.01
_RETRY_S = 0.1


class NetworkLoop:
    """Connects a client, and again unless it shall not, in a thread, until it is stopped."""

    def __init__(self, client: mqtt.Client, *, connects: bool = True) -> None:
        self._client = client
        self._connects = connects
        client.on_socket_register_write = lambda *_: None  # so that only this thread writes
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="network loop of MQTT", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye and end."""
        self._is_stopped.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            if not self._turn() and not self._try_to_connect():
                self._is_stopped.wait(_RETRY_S)
        self._client.disconnect()
        if self._client.socket() is not None:
            self._client.loop_write()

    def _try_to_connect(self) -> bool:
        try:
            return self._connects and self._client.reconnect() == mqtt.MQTT_ERR_SUCCESS
        except OSError:
            return False

    def _turn(self) -> bool:
        """Read and write what is ready; return whether there is a connection."""
        sock = self._client.socket()
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN | (select.POLLOUT if self._client.want_write() else 0))
        has_read = isinstance(sock, SSLSocket) and sock.pending() > 0
        for _, events in poll.poll(0 if has_read else _POLL_S * 1000):
            has_read |= bool(events & ~select.POLLOUT)
            if events & select.POLLOUT:
                self._client.loop_write()
        if has_read:
            self._client.loop_read()
        self._client.loop_misc()
        return True
