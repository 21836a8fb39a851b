"""What a voter remembers of the quorum across restarts, in the format of Apache's `quorum-state` file (version 0)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from moldau.base.errors import MalformedData

NOBODY = -1


@dataclass(frozen=True, slots=True)
class QuorumState:
    cluster_id: str
    leader_id: int
    leader_epoch: int
    voted_id: int
    voters: tuple[int, ...]

    def encode(self) -> bytes:
        return json.dumps(
            {
                "clusterId": self.cluster_id,
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in self.voters],
                "data_version": 0,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> QuorumState:
        try:
            found = json.loads(content)
            return cls(
                str(found["clusterId"]),
                int(found["leaderId"]),
                int(found["leaderEpoch"]),
                int(found["votedId"]),
                tuple(int(voter["voterId"]) for voter in found["currentVoters"]),
            )
        except (ValueError, KeyError, TypeError) as bad:
            raise MalformedData(f"quorum-state does not parse: {bad}") from bad
