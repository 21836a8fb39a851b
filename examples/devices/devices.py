"""Pumps that publish their temperature by MQTT every second, each with a connection of its own.

    python devices.py

plant1/pump7 publishes to telemetry/plant1/pump7. Now and then, as the seed has it, a pump runs hot or has no power for
20 seconds. Its retained message status/plant1/pump7 is "on" or "off"; when it loses power it can say nothing any more,
and the server publishes its last will: "lost".

All measure at the same moments and wait until the server has acknowledged all of it (QoS 1). So none is ahead of the
others by more than a second of event time, also when --start lets them measure as fast as the server takes it.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from queue import SimpleQueue
from random import Random
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.reasoncodes import ReasonCode

SPELL = 20
"""So many measurements in a row a pump is ordinary, hot or without power."""
GOODBYE_S = 5.0
QOS = 1


class Refused(Exception):
    """The server does not take what a pump publishes, and says why."""


def temperatures(name: str, seed: int) -> Iterator[float | None]:
    """What a pump measures, second by second; None: it has no power."""
    rng = Random(f"{seed} {name}")
    ordinary = rng.uniform(45, 60)
    while True:
        chance = rng.random()
        for _ in range(SPELL):
            celsius = ordinary + rng.uniform(-3, 3)
            if chance < 0.03:
                yield None
            else:
                yield round(celsius + 35 if chance < 0.06 else celsius, 1)


def names(number: int) -> list[str]:
    return [f"plant{index // 10 + 1}/pump{index % 10 + 1}" for index in range(number)]


class Pump:
    def __init__(self, name: str, seed: int, server: tuple[str, int]) -> None:
        self.name, self._server = name, server
        self._temperatures = temperatures(name, seed)
        self._client: mqtt.Client | None = None  # while it has power
        self._awaited: int | None = None  # the number of the message that is not acknowledged yet
        self._answers: SimpleQueue[tuple[int, ReasonCode]] = SimpleQueue()

    def measure(self, moment: datetime) -> bool:
        """Publish a measurement; return whether the pump has power."""
        celsius = next(self._temperatures)
        if celsius is None:
            self._lose_power()
            return False
        if self._client is None:
            self._client = self._connect()
        value = {"ts": f"{moment:%Y-%m-%dT%H:%M:%SZ}", "celsius": celsius}
        self._awaited = self._client.publish(f"telemetry/{self.name}", json.dumps(value), QOS).mid
        return True

    def wait_until_acknowledged(self) -> None:
        """Wait, also while the server is away: paho-mqtt connects again and sends again what was not acknowledged."""
        while self._awaited is not None:
            number, reason = self._answers.get()
            if reason.is_failure:
                raise Refused(f"{self.name}: {reason}")
            if number == self._awaited:
                self._awaited = None

    def switch_off(self) -> None:
        """Say goodbye; then the server does not publish the will."""
        if self._client is not None:
            with suppress(RuntimeError):  # the server is away
                self._publish_status(self._client, "off").wait_for_publish(GOODBYE_S)
            self._client.disconnect()

    def wait_until_off(self) -> None:
        if self._client is not None:
            self._client.loop_stop()

    def _connect(self) -> mqtt.Client:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, self.name, protocol=mqtt.MQTTv5)
        client.on_connect = self._on_connect
        client.on_publish = lambda _client, _data, number, reason, _properties: self._answers.put((number, reason))
        client.will_set(f"status/{self.name}", "lost", QOS, retain=True)
        client.reconnect_delay_set(1, 5)
        client.connect(*self._server)
        client.loop_start()
        return client

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        if reason.is_failure:
            self._answers.put((0, reason))
        else:
            self._publish_status(client, "on")

    def _publish_status(self, client: mqtt.Client, status: str) -> mqtt.MQTTMessageInfo:
        return client.publish(f"status/{self.name}", status, QOS, retain=True)

    def _lose_power(self) -> None:
        """End the connection without a word."""
        client, self._client = self._client, None
        if client is None:
            return
        client.on_disconnect = lambda *_: client.disconnect()  # paho-mqtt is not to connect again
        connection = client.socket()
        with suppress(OSError):  # it was broken already
            connection.shutdown(socket.SHUT_RDWR)
        client.loop_stop()


def moments(start: datetime | None, seconds: int | None) -> Iterator[datetime]:
    """The seconds from the start on, at once; or those from now on, when they come."""
    first = start or datetime.now(UTC)
    for number in count() if seconds is None else range(seconds):
        moment = first + timedelta(seconds=number)
        if start is None:
            time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds()))
        yield moment


def main() -> None:
    parser = argparse.ArgumentParser(description="Pumps that publish their temperature by MQTT, until Ctrl-C.")
    parser.add_argument("--devices", type=int, default=30, metavar="N", help="how many pumps (default 30)")
    parser.add_argument("--seconds", type=int, metavar="S", help="end after so many measurements of each")
    parser.add_argument("--start", type=datetime.fromisoformat, metavar="TIME", help="measure from then on, at once")
    parser.add_argument("--mqtt", default="localhost:1883", metavar="HOST:PORT", help="(default localhost:1883)")
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    host, _, port = args.mqtt.rpartition(":")
    pumps = [Pump(name, args.seed, (host, int(port))) for name in names(args.devices)]
    sent = 0
    try:
        for moment in moments(args.start, args.seconds):
            sent += sum([pump.measure(moment) for pump in pumps])
            for pump in pumps:
                pump.wait_until_acknowledged()
    except KeyboardInterrupt:
        pass
    except OSError as error:
        sys.exit(f"nothing answers at {args.mqtt} ({error}); start it: moldau start --gateway --mqtt")
    except Refused as refused:
        sys.exit(f"{refused}; are there the topics telemetry and status?")
    finally:
        for pump in pumps:
            pump.switch_off()
        for pump in pumps:
            pump.wait_until_off()
    print(f"{sent:,} measurements of {len(pumps)} pumps")


if __name__ == "__main__":
    main()
