"""StatsD and Graphite: metrics as lines over UDP or TCP.

Neither server answers, so nobody can know that it has a line: UDP may lose datagrams, and of TCP the last lines before
a connection breaks. A value that is sent again replaces itself in Graphite and in gauges, and counts twice in counters.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from moldau.backends.interface import Away, Failed, Refused, Row
from moldau.backends.metric_lines import Format, graphite_line, packets, statsd_line
from moldau.backends.options import Options

PORTS: Final = {"statsd": 8125, "graphite": 2003}
DATAGRAM_BYTES_MAX: Final = 1_432
"""Fits into one frame of Ethernet with the headers of IP and UDP."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    format: Format
    is_tcp: bool
    host: str
    port: int
    prefix: str
    timeout_s: float

    @staticmethod
    def read(format_: Format, url: str, options: Options, timeout_s: float) -> MetricsSettings:
        """Raises ValueError for what cannot work."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"the URL is not valid: {error}") from None
        if parts.scheme not in ("udp", "tcp") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"the URL of {format_} is udp://HOST:PORT or tcp://HOST:PORT")
        prefix = options.text("prefix", "")
        return MetricsSettings(
            format_, parts.scheme == "tcp", parts.hostname, port or PORTS[format_], prefix, timeout_s
        )


class MetricsBackend:
    def __init__(self, settings: MetricsSettings, now_s: Callable[[], float] = time.time) -> None:
        self._settings, self._now_s = settings, now_s
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """The first rows connect."""

    def write(self, rows: Sequence[Row]) -> list[Failed]:
        failures, lines = [], []
        for index, row in enumerate(rows):
            try:
                lines.append(self._line(row))
            except Refused as error:
                failures.append(Failed(index, error))
        if lines:
            self._send(lines)
        return failures

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _line(self, row: Row) -> bytes:
        if self._settings.format == "statsd":
            return statsd_line(row, self._settings.prefix)
        return graphite_line(row, self._settings.prefix, self._now_s()).removesuffix(b"\n")

    def _send(self, lines: list[bytes]) -> None:
        try:
            connection = self._connected()
            if self._settings.is_tcp:
                connection.sendall(b"\n".join(lines) + b"\n")
            else:
                for packet in packets(lines, DATAGRAM_BYTES_MAX):
                    connection.send(packet)
        except BaseException:
            self.close()
            raise

    def _connected(self) -> socket.socket:
        """Return a socket. One that the server has closed is found before it is used: what is written then is lost."""
        if self._socket is not None and self._settings.is_tcp and self._is_closed(self._socket):
            self.close()
        if self._socket is None:
            self._socket = self._connect()
        self._socket.settimeout(self._settings.timeout_s)
        return self._socket

    def _is_closed(self, connection: socket.socket) -> bool:
        connection.settimeout(0.0)
        try:
            return connection.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _connect(self) -> socket.socket:
        settings = self._settings
        if settings.is_tcp:
            try:
                return socket.create_connection((settings.host, settings.port), settings.timeout_s)
            except TimeoutError as error:
                raise Away(f"no connection to {settings.host} in {settings.timeout_s:g} s") from error
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_DGRAM
        )
        connection = socket.socket(family, kind, protocol)
        connection.connect(address)
        return connection
