"""The set of voters with their endpoints, as a value. A change makes a new set, one voter at a time (KIP-853).

A voter is a node and the directory that has its log: a node that restarts with another disk is another replica. Sets
from `controller.quorum.voters` have no directory ids; they identify voters by the node id alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from moldau.base.ids import ZERO_UUID, Uuid, uuid_text


class ReplicaKey(NamedTuple):
    id: int
    directory_id: Uuid = ZERO_UUID
    """Zero if unknown."""

    def __str__(self) -> str:
        return f"{self.id}" if self.directory_id == ZERO_UUID else f"{self.id}-{uuid_text(self.directory_id)}"


class Endpoint(NamedTuple):
    name: str
    """The name of the listener."""
    host: str
    port: int


class KRaftVersions(NamedTuple):
    """The levels of `kraft.version` that a replica supports."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high


SUPPORTED_KRAFT_VERSIONS = KRaftVersions(0, 1)
UNKNOWN_KRAFT_VERSIONS = KRaftVersions(0, 0)


@dataclass(frozen=True, slots=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    kraft_versions: KRaftVersions = UNKNOWN_KRAFT_VERSIONS

    def is_replica(self, key: ReplicaKey) -> bool:
        """Whether `key` is this voter. The directory is not compared if this voter's is unknown."""
        return self.key.id == key.id and self.key.directory_id in (ZERO_UUID, key.directory_id)

    def endpoint(self, listener: str) -> Endpoint | None:
        return endpoint_of(self.endpoints, listener)


def endpoint_of(endpoints: Iterable[Endpoint], listener: str) -> Endpoint | None:
    return next((each for each in endpoints if each.name.upper() == listener.upper()), None)


class VoterSet:
    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key.id)}

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self._voters)

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.is_replica(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __str__(self) -> str:
        return "[" + ", ".join(str(voter.key) for voter in self) + "]"

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self._voters)

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self) == 1 and key in self

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        voter = self._voters.get(node_id)
        return None if voter is None else voter.endpoint(listener)

    def add(self, voter: Voter) -> VoterSet | None:
        """Return the set with that voter; None if it has a voter with that id already."""
        return None if voter.key.id in self._voters else VoterSet([*self, voter])

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without that voter; None if it is not in the set, or is the last one."""
        old = self._voters.get(key.id)
        if old is None or old.key != key or len(self) == 1:
            return None
        return VoterSet(voter for voter in self if voter is not old)

    def update(self, voter: Voter, *, any_directory: bool = False) -> VoterSet | None:
        """Return the set with that voter replaced; None if it is not in it. `any_directory` ignores directory ids."""
        old = self._voters.get(voter.key.id)
        if old is None or not (any_directory or old.is_replica(voter.key)):
            return None
        return VoterSet([voter if each is old else each for each in self])

    def needs_update(self, voter: Voter) -> bool:
        """Whether the voter is in the set with other endpoints or versions."""
        old = self._voters.get(voter.key.id)
        return old is not None and old.is_replica(voter.key) and old != voter


def static_voters(addresses: Mapping[int, tuple[str, int]], listener: str) -> VoterSet:
    """Build the set of `controller.quorum.voters`: ids and addresses, without directory ids."""
    return VoterSet(
        Voter(ReplicaKey(node_id), (Endpoint(listener, host, port),)) for node_id, (host, port) in addresses.items()
    )
