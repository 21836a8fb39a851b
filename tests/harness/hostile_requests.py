"""Hostile requests that decode: random messages in which many fields have plausible values.

Pure noise would be refused by the first check. So many fields get a value that is right or nearly right: the cluster
id, an existing topic, an epoch that is off by one. Two values are left out, because only authentication can protect
against them: the epochs of live brokers, and what a voter claims about its own log.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from harness.attacked_cluster import CLUSTER_ID, AttackedCluster
from harness.declared_versions import QUORUM_VERSIONS
from harness.random_messages import INTEGERS, Filling, least_element, random_message
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.topic_names import METADATA_TOPIC
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.schema import Field, Message, fields_of

EXTREMES = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 2**15, 2**31 - 1, 2**63 - 1)
FILLINGS = (*[Filling.LEAST] * 4, Filling.MOST, *[Filling.MIXED] * 75)
NAMES = (*["victim"] * 6, METADATA_TOPIC, "nobody", "", "..", "a" * 250, "\x00" * 9, "1", "9" * 5000, "x" * 32_767)
FEATURES = ("metadata.version", "metadata.version", "group.version", "kraft.version", "", "nothing")
CONFIGS = ("retention.ms", "cleanup.policy", "min.insync.replicas", "leader.replication.throttled.replicas", "nothing")
VALUES = ("1", "-1", "", "compact,delete", "9" * 5000, "x" * 32_000, "1:1,2:2", "nan", "0:*")
HOSTS = ("127.0.0.1", "", "a" * 300, "ž\x00\n", "198.51.100.7")
STRANGER = 77
SINGLE = 0.8
"""Share of the quorum's requests that name its one partition, as all of them should."""


class HostileRequests:
    def __init__(self, cluster: AttackedCluster, seed: int, *, for_quorum: bool = True) -> None:
        """With `for_quorum=False`, Fetch requests are meant for brokers."""
        self._targets_quorum = for_quorum
        self._cluster = cluster
        self._rng = Random(seed)
        self._number = 0
        self._is_quorum_request = False

    def requests(self, api: ApiKey, versions: tuple[int, int], count: int) -> Iterator[tuple[Message, int]]:
        """Yield `count` requests, spread over all versions."""
        low, high = versions
        for number in range(count):
            version = low + number % (high - low + 1)
            yield self.request(api, version), version

    def request(self, api: ApiKey, version: int) -> Message:
        self._number += 1
        filling = self._rng.choice(FILLINGS)
        message = random_message(request_class(api), version, filling, (self._number, self._rng.random()))
        self._is_quorum_request = self._targets_quorum and api in QUORUM_VERSIONS
        if filling is not Filling.LEAST and self._rng.random() < 0.9:
            self._make_plausible(message, version)
        return message

    def _make_plausible(self, message: Message, version: int) -> None:
        for field in fields_of(type(message)):
            if version not in field.versions:
                continue
            value = getattr(message, field.name)
            if field.struct is not None:
                inner = list(value or ()) if field.is_array else [] if value is None else [value]
                if field.is_array and self._rng.random() < SINGLE:
                    inner = inner[:1] or [least_element(field, version)]
                    setattr(message, field.name, inner)
                for each in inner:
                    self._make_plausible(each, version)
            elif self._rng.random() < 0.85:
                self._set_plausible(message, field, value)

    def _set_plausible(self, message: Message, field: Field, value: Any) -> None:
        if field.is_array:
            if field.type_name in INTEGERS and self._rng.random() < 0.8:
                low, high = INTEGERS[field.type_name]
                setattr(message, field.name, [min(max(each, low), high) for each in self._ids()])
            return
        value = self._plausible_value(field.name, field.type_name)
        if value is None:
            return
        if field.type_name in INTEGERS:
            low, high = INTEGERS[field.type_name]
            value = min(max(value, low), high)
        setattr(message, field.name, value)

    def _ids(self) -> list[int]:
        return self._rng.choices((1, 1, 2, 3, 3, 0, -1, STRANGER, 2**31 - 1), k=self._rng.randint(0, 4))

    def _plausible_value(self, name: str, kind: str) -> Any:
        rng, choice = self._rng, self._rng.choice
        if kind == "string":
            if name == "cluster_id":
                return choice((CLUSTER_ID,) * 9 + ("another",))
            if "host" in name:
                return choice(HOSTS)
            return self._name(name)
        if kind == "uuid":
            return choice((METADATA_TOPIC_UUID, self._topic_id(), bytes(16), rng.randbytes(16)))
        if kind not in INTEGERS:
            return None
        if "epoch" in name and "session" not in name:
            return self._epoch(name)
        if "partition" in name:
            return choice((0, 0, 0, 0, 1, -1, 2**31 - 1))
        if name.endswith("replica_id"):
            return choice((STRANGER, STRANGER, -1, 0, 2**31 - 1))
        if name.endswith("_id"):
            return choice((1, 2, 3, STRANGER, -1, 0, 2**31 - 1))
        if "offset" in name or "position" in name:
            return choice((0, 1, self._end_offset(), self._end_offset() + 1, *EXTREMES))
        if name.endswith("_ms"):
            return choice((0, 1, 100, -1, 2**31 - 1))
        if name in ("count", "num_partitions", "replication_factor"):
            return choice((-1, -1, 1, 2, 3, 5, *EXTREMES))
        if "version" in name:
            return choice((0, 1, 30, 30, -1, 2**15 - 1))
        if name.endswith(("type", "operation")):
            return choice((0, 1, 2, 3, 4, -1))
        return choice((None, *EXTREMES)) if "bytes" in name else None

    def _name(self, field: str) -> str:
        """Topics, listeners, features and configs have their names in fields of the same name."""
        if self._is_quorum_request and self._rng.random() < SINGLE:
            return "CONTROLLER" if field == "name" and self._rng.random() < 0.5 else METADATA_TOPIC
        if field == "value":
            return self._rng.choice(VALUES)
        kinds = (NAMES, NAMES, FEATURES, CONFIGS) if field in ("name", "feature") else (NAMES,)
        return self._rng.choice(self._rng.choice(kinds))

    def _epoch(self, name: str) -> int:
        if name in ("broker_epoch", "previous_broker_epoch"):
            return self._rng.choice((-1, 0, 2**63 - 1, 2**40))
        epoch = max(node.driver.leader_epoch for node in self._cluster.nodes.values())
        return self._rng.choice((epoch, epoch, epoch, epoch - 1, epoch + 1, 0, -1, 2**31 - 1))

    def _end_offset(self) -> int:
        return max(node.driver.end_offset for node in self._cluster.nodes.values())

    def _topic_id(self) -> bytes:
        image = next(iter(self._cluster.nodes.values())).current.image
        topic = image.topics.get("victim")
        return bytes(16) if topic is None else bytes(topic.id)
