"""Who votes: a set of replicas with their endpoints, as a value. Changes give a new set, one voter at a time (KIP-853).

A voter is a node and the directory its log lives in: a node that comes back with another disk is another replica. Sets
from `controller.quorum.voters` do not know the directories; their voters are known by the node alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from moldau.base.ids import ZERO_UUID, Uuid, uuid_text


class ReplicaKey(NamedTuple):
    id: int
    directory_id: Uuid = ZERO_UUID
    """Zero where it is not known."""

    def __str__(self) -> str:
        return f"{self.id}" if self.directory_id == ZERO_UUID else f"{self.id}-{uuid_text(self.directory_id)}"


class Endpoint(NamedTuple):
    name: str
    """Of the listener."""
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
        """Whether that replica is this voter, as far as the set knows."""
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
        """None if a voter with that id is there already."""
        return None if voter.key.id in self._voters else VoterSet([*self, voter])

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """None if it is not there, or is the last one."""
        known = self._voters.get(key.id)
        if known is None or known.key != key or len(self) == 1:
            return None
        return VoterSet(voter for voter in self if voter is not known)

    def update(self, voter: Voter, *, any_directory: bool = False) -> VoterSet | None:
        """None if it is not there. `any_directory` is for sets that do not know the directories."""
        known = self._voters.get(voter.key.id)
        if known is None or not (any_directory or known.is_replica(voter.key)):
            return None
        return VoterSet([voter if each is known else each for each in self])

    def needs_update(self, voter: Voter) -> bool:
        """Whether the voter is in the set, and the set is behind in what it knows of it."""
        known = self._voters.get(voter.key.id)
        return known is not None and known.is_replica(voter.key) and known != voter


def static_voters(addresses: Mapping[int, tuple[str, int]], listener: str) -> VoterSet:
    """From `controller.quorum.voters`: ids and addresses, no directories."""
    return VoterSet(
        Voter(ReplicaKey(node_id), (Endpoint(listener, host, port),)) for node_id, (host, port) in addresses.items()
    )
