"""What clients measured and pushed to brokers (KIP-714), client by client, from `/metrics` of the brokers. Pure.

Names and labels come from clients: they are data of strangers, and there may be very many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from moldau.console.metrics_text import Sample
from moldau.metrics.clients import PREFIX

VALUES_MAX: Final = 20_000
BROKER_VALUES_MAX: Final = 20_000
"""A broker keeps no more."""
CHARACTERS_MAX: Final = 8_000_000
"""Of the names and labels of all values."""
MISSING_MAX: Final = 1000
"""How many clients of brokers that do not answer are remembered."""
INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
SOFTWARE_NAME: Final = "client_software_name"
SOFTWARE_VERSION: Final = "client_software_version"
SOURCE_ADDRESS: Final = "client_source_address"
IDENTITY: Final = (INSTANCE_ID, CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS)
LATENCY: Final = "_node_request_latency_avg"
"""What clients call the mean time between a request to a node and its response, in milliseconds."""
KINDS: Final = ("producer", "consumer", "admin")


class Measured(NamedTuple):
    """One value of a client; `labels` are those that the client gave it."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class PushingClient:
    instance_id: str
    client_id: str
    software_name: str
    software_version: str
    host: str
    """Where it is connected from; empty if the broker does not tell."""
    values: tuple[Measured, ...]

    @property
    def software(self) -> str:
        return f"{self.software_name} {self.software_version}".strip()

    @property
    def kind(self) -> str | None:
        """What it is, as far as the names of its metrics tell: a consumer pushes those of consumers."""
        begins = {each.name.partition("_")[0] for each in self.values}
        return next((kind for kind in KINDS if kind in begins), None)

    @property
    def latency_ms(self) -> float | None:
        """The mean time of requests to the node for which it is longest. None for consumers: their fetches wait for
        records."""
        if self.kind == "consumer":
            return None
        return max((each.value for each in self.values if each.name.endswith(LATENCY)), default=None)

    def row(self) -> dict[str, Any]:
        return {
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "software": self.software or None,
            "host": self.host or None,
            "kind": self.kind,
            "latency_ms": self.latency_ms,
            "values": len(self.values),
        }


class Telemetry(NamedTuple):
    clients: Mapping[str, PushingClient]
    """By instance id."""
    is_cut: bool
    """Whether clients pushed more than is kept here."""


def telemetry_of(samples: Iterable[Sample], broker_count: int = 1) -> Telemetry:
    """Return the clients that pushed these values to one of so many brokers: whole clients, as many as fit into its
    share of the limits. Those that pushed the most are left out."""
    pushed: dict[str, _Pushed] = {}
    is_cut = False
    count = 0
    for name, labels, value in samples:
        instance_id = labels.get(INSTANCE_ID)
        if not instance_id:
            continue
        count += 1
        if count > BROKER_VALUES_MAX:
            is_cut = True
            break
        client = pushed.get(instance_id)
        if client is None:
            client = pushed[instance_id] = _Pushed({key: labels.get(key, "") for key in IDENTITY})
        own = tuple(label for label in labels.items() if label[0] not in IDENTITY)
        client.values.append(Measured(name.removeprefix(PREFIX), own, value))
        client.characters += len(name) + sum(len(key) + len(text) for key, text in labels.items())
    fitting = _fitting(pushed, VALUES_MAX // broker_count, CHARACTERS_MAX // broker_count)
    clients = {key: client.client() for key, client in pushed.items() if key in fitting}
    return Telemetry(clients, is_cut or len(clients) < len(pushed))


@dataclass(slots=True)
class _Pushed:
    """What is read of one client: `/metrics` goes by the names of metrics, not by clients."""

    identity: Mapping[str, str]
    values: list[Measured] = field(default_factory=list)
    characters: int = 0

    def client(self) -> PushingClient:
        return PushingClient(
            self.identity[INSTANCE_ID],
            self.identity[CLIENT_ID],
            self.identity[SOFTWARE_NAME],
            self.identity[SOFTWARE_VERSION],
            self.identity[SOURCE_ADDRESS],
            tuple(self.values),
        )


def _fitting(pushed: Mapping[str, _Pushed], values_max: int, characters_max: int) -> set[str]:
    fitting: set[str] = set()
    values = characters = 0
    for instance_id, client in sorted(pushed.items(), key=lambda item: item[1].characters):
        values += len(client.values)
        characters += client.characters
        if values > values_max or characters > characters_max:
            break
        fitting.add(instance_id)
    return fitting


class LastPushes:
    """Which broker has the newest values of a client. A client that changed its broker is known to both for a while,
    and `/metrics` has no times: what changed last is the newest."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[PushingClient, int]] = {}
        """By address of the broker and instance id: what it had, and in which reading that was new."""
        self._readings = 0

    def merged(self, telemetries: Mapping[str, Telemetry]) -> Telemetry:
        """Return the clients of all brokers. `telemetries` are by the address of the broker."""
        self._readings += 1
        # What a broker had that does not answer this time is not new when it answers again.
        missing = ((key, entry) for key, entry in self._seen.items() if key[0] not in telemetries)
        seen = dict(islice(missing, MISSING_MAX))
        newest: dict[str, tuple[PushingClient, int]] = {}
        for address, telemetry in telemetries.items():
            for instance_id, client in telemetry.clients.items():
                before = self._seen.get((address, instance_id))
                entry = before if before is not None and before[0] == client else (client, self._readings)
                seen[address, instance_id] = entry
                if instance_id not in newest or entry[1] > newest[instance_id][1]:
                    newest[instance_id] = entry
        self._seen = seen
        is_cut = any(telemetry.is_cut for telemetry in telemetries.values())
        return Telemetry({instance_id: client for instance_id, (client, _) in newest.items()}, is_cut)
