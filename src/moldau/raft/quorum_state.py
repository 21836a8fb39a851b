"""The state of the quorum that a node keeps across restarts, in the formats of Apache Kafka's `quorum-state` file.

Version 0 belongs to `kraft.version` 0 and contains the voters. Version 1 belongs to `kraft.version` 1, where the log
contains the voters; it also has the directory id of the candidate that was voted for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from moldau.base.errors import MalformedData
from moldau.base.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_text

NOBODY = -1


@dataclass(frozen=True, slots=True)
class QuorumState:
    cluster_id: str
    """Only in version 0; empty when read from version 1."""
    leader_id: int
    leader_epoch: int
    voted_id: int
    voters: tuple[int, ...]
    """Only in version 0; empty when read from version 1."""
    voted_directory_id: Uuid = ZERO_UUID
    data_version: int = 0

    def encode(self) -> bytes:
        content: dict[str, Any] = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
        }
        if self.data_version == 0:
            voters = [{"voterId": voter} for voter in self.voters]
            content = {"clusterId": self.cluster_id, **content, "appliedOffset": 0, "currentVoters": voters}
        else:
            content["votedDirectoryId"] = uuid_text(self.voted_directory_id)
        content["data_version"] = self.data_version
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, content: bytes) -> QuorumState:
        try:
            state = json.loads(content)
            numbers = int(state["leaderId"]), int(state["leaderEpoch"]), int(state["votedId"])
            match state["data_version"]:
                case 0:
                    voters = tuple(int(voter["voterId"]) for voter in state["currentVoters"])
                    return cls(str(state["clusterId"]), *numbers, voters)
                case 1:
                    return cls("", *numbers, (), uuid_from_text(state["votedDirectoryId"]), 1)
                case other:
                    raise MalformedData(f"quorum-state: unknown data_version {other!r}; 0 and 1 are supported")
        except (ValueError, KeyError, TypeError) as bad:
            raise MalformedData(f"quorum-state: cannot be parsed: {bad}") from bad
