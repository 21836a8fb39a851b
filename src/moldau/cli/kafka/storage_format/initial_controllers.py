"""The first voters of a new cluster: `kafka-storage format --initial-controllers` and `--standalone` (KIP-853).

A voter is written id@host:port:directory-id. For the first start, the tool writes a snapshot of the metadata log at
offset 0 that names the voters; `raft.snapshots` defines its format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.base.ids import Uuid, uuid_from_text
from moldau.base.limits import PORT_MAX
from moldau.base.topic_names import METADATA_TOPIC
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed
from moldau.log.checkpoints import replace_file
from moldau.log.files import Files


class InitialController(NamedTuple):
    node_id: int
    host: str
    port: int
    directory_id: Uuid


def parse_voters(text: str) -> list[InitialController]:
    voters = [parse_voter(part) for part in text.strip().split(",") if part]
    if not voters:
        raise ToolFailed("No voters given.")
    seen: set[int] = set()
    for voter in voters:
        if voter.node_id in seen:
            raise ToolFailed(f"Node id {voter.node_id} was specified more than once.")
        seen.add(voter.node_id)
    return sorted(voters)


def parse_voter(text: str) -> InitialController:
    number, at, rest = text.strip().partition("@")
    if not at:
        raise ToolFailed("No @ found in dynamic voter string.")
    if not number:
        raise ToolFailed("Invalid @ at beginning of dynamic voter string.")
    node_id = _number(number, "node id")
    if node_id < 0:
        raise ToolFailed(f"Invalid negative node id {node_id} in dynamic voter string.")
    host, rest = _host(rest)
    if not rest.startswith(":"):
        raise ToolFailed("Port section must start with a colon.")
    port_text, colon, directory = rest[1:].partition(":")
    if not colon:
        raise ToolFailed("No colon following port could be found.")
    port = _number(port_text, "port")
    if not 0 <= port <= PORT_MAX:
        raise ToolFailed(f"Invalid port {port} in dynamic voter string.")
    try:
        return InitialController(node_id, host, port, uuid_from_text(directory))
    except ValueError:
        raise ToolFailed("Failed to parse directory ID in dynamic voter string.") from None


def _host(rest: str) -> tuple[str, str]:
    """Return the host, and the rest from the colon on."""
    if not rest:
        raise ToolFailed("No hostname found after node id.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise ToolFailed("Hostname began with left bracket, but no right bracket was found.")
        return host, rest
    host, colon, rest = rest.partition(":")
    if not colon:
        raise ToolFailed("No colon following hostname could be found.")
    return host, colon + rest


def _number(text: str, name: str) -> int:
    try:
        return parse_integer(text)
    except ValueError:
        raise ToolFailed(f"Failed to parse {name} in dynamic voter string.") from None


def write_first_snapshot(
    files: Files, log_dir: str, voters: Sequence[InitialController], listener: str, now_ms: int
) -> None:
    from moldau.raft.snapshots import BOOTSTRAP, bootstrap_snapshot
    from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, ReplicaKey, Voter, VoterSet

    voter_set = VoterSet(
        Voter(
            ReplicaKey(voter.node_id, voter.directory_id),
            (Endpoint(listener, voter.host, voter.port),),
            SUPPORTED_KRAFT_VERSIONS,
        )
        for voter in voters
    )
    directory = f"{log_dir}/{METADATA_TOPIC}-0"
    files.mkdir(log_dir)
    files.mkdir(directory)
    replace_file(files, directory, BOOTSTRAP.file_name, bootstrap_snapshot([], voter_set, now_ms))
