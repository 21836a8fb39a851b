"""kafka-metadata-quorum: shows the leader of the metadata log and its followers; adds and removes controllers."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from moldau.base.ids import ZERO_UUID, Uuid, uuid_text
from moldau.cli.kafka.connection import controller_file, properties
from moldau.cli.kafka.connection.admin import connect
from moldau.cli.kafka.padded_table import padded_table
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.kafka.topic_lines import parse_uuid
from moldau.cli.kafka.verbs import INTEGER, VerbParser, add_connection, run_verbs
from moldau.client.admin.cluster_values import Quorum, QuorumReplica

COLUMNS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


def main(argv: Sequence[str] | None = None) -> int:
    return run_verbs(_parser(), _run, argv)


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="kafka-metadata-quorum",
        description="This tool describes kraft metadata quorum status.",
        allow_abbrev=False,
    )
    add_connection(parser, is_verb=False)
    verbs = parser.add_subparsers(dest="command", required=True)
    describe = verbs.add_parser("describe", help="describe the quorum")
    describe.add_argument("--status", action="store_true", help="the leader, the voters, and the largest lag")
    describe.add_argument("--replication", action="store_true", help="the lag of each voter and observer")
    describe.add_argument("--human-readable", action="store_true", help="with --replication: times as ... ms ago")
    add = verbs.add_parser("add-controller", help="make the controller of --command-config a voter")
    add.add_argument("--dry-run", action="store_true", help="only print what would be done")
    remove = verbs.add_parser("remove-controller", help="remove a controller from the voters")
    remove.add_argument("--controller-id", "-i", type=INTEGER, required=True, help="its id")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="the id of its metadata directory")
    remove.add_argument("--dry-run", action="store_true", help="only print what would be done")
    for verb in (describe, add, remove):
        add_connection(verb, is_verb=True)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.bootstrap_server is None and arguments.bootstrap_controller is None:
        raise ToolFailed(
            "kafka-metadata-quorum: error: one of the arguments --bootstrap-server --bootstrap-controller is required"
        )
    path = arguments.command_config
    if path is not None and not Path(path).exists():
        raise ToolFailed(f"Properties file {path} does not exists!")  # Kafka's text
    java_config = properties.load(path)
    match arguments.command:
        case "describe":
            _describe(arguments, java_config)
        case "add-controller":
            if path is None:
                raise ToolFailed(
                    "You must supply the configuration file of the controller you are adding when using add-controller."
                )
            _add(arguments, java_config)
        case _:
            _remove(arguments, java_config)
    return 0


def _describe(arguments: argparse.Namespace, java_config: Mapping[str, str]) -> None:
    if arguments.status and arguments.replication:
        raise ToolFailed("Only one of --status or --replication should be specified with describe sub-command")
    if not arguments.status and not arguments.replication:
        raise ToolFailed("One of --status or --replication must be specified with describe sub-command")
    if arguments.status and arguments.human_readable:
        raise ToolFailed("The option --human-readable is only supported along with --replication")
    with connect(arguments.bootstrap_server, arguments.bootstrap_controller, java_config) as admin:
        cluster_id = admin.described().cluster_id if arguments.status else ""
        quorum = admin.quorum()
    if quorum.leader is None:
        raise ToolFailed("The quorum currently has no leader; try again in a moment")
    if arguments.status:
        print(status_text(cluster_id, quorum))
    else:
        print(replication_table(quorum, time.time_ns() // 1_000_000 if arguments.human_readable else None))


def status_text(cluster_id: str, quorum: Quorum) -> str:
    leader = quorum.leader
    assert leader is not None
    slowest_voter = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    behind_ms = 0
    if slowest_voter is not leader:
        is_known = leader.last_caught_up_ms >= 0 and slowest_voter.last_caught_up_ms >= 0
        behind_ms = leader.last_caught_up_ms - slowest_voter.last_caught_up_ms if is_known else -1
    values = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": quorum.lag(slowest_voter),
        "MaxFollowerLagTimeMs": behind_ms,
        "CurrentVoters": _replicas(quorum, quorum.voters),
        "CurrentObservers": _replicas(quorum, quorum.observers),
    }
    return "\n".join(f"{name + ':':<24}{value}" for name, value in values.items())


def _replicas(quorum: Quorum, replicas: Sequence[QuorumReplica]) -> str:
    return f"[{', '.join(_replica(quorum, replica) for replica in replicas)}]"


def _replica(quorum: Quorum, replica: QuorumReplica) -> str:
    """Return a text like JSON, without fields that are unknown."""
    parts = [f'"id": {replica.replica_id}']
    if replica.directory_id != ZERO_UUID:
        parts.append(f'"directoryId": "{uuid_text(replica.directory_id)}"')
    if endpoints := quorum.endpoints.get(replica.replica_id):
        quoted = ", ".join(f'"{endpoint}"' for endpoint in endpoints)
        parts.append(f'"endpoints": [{quoted}]')
    return f"{{{', '.join(parts)}}}"


def replication_table(quorum: Quorum, now_ms: int | None) -> str:
    """Return the table, with timestamps as they are, or relative to `now_ms`."""
    leader = quorum.leader
    assert leader is not None
    followers = [voter for voter in quorum.voters if voter is not leader]
    listed = [(leader, "Leader"), *((replica, "Follower") for replica in followers)]
    listed += [(replica, "Observer") for replica in quorum.observers]
    rows = [
        (
            replica.replica_id,
            uuid_text(replica.directory_id),
            replica.log_end_offset,
            quorum.lag(replica),
            _time(replica.last_fetch_ms, now_ms, "last fetch"),
            _time(replica.last_caught_up_ms, now_ms, "last caught up"),
            status,
        )
        for replica, status in listed
    ]
    return padded_table(COLUMNS, rows)


def _time(timestamp_ms: int, now_ms: int | None, name: str) -> str:
    if now_ms is None or timestamp_ms < 0:
        return str(timestamp_ms)
    if not 0 < timestamp_ms <= now_ms:
        raise ToolFailed(
            "Error while computing relative time, possible drift in system clock."
            f" Current timestamp is {now_ms}, {name} timestamp is {timestamp_ms}"
        )
    return f"{now_ms - timestamp_ms} ms ago"


def _add(arguments: argparse.Namespace, java_config: Mapping[str, str]) -> None:
    controller_id = controller_file.controller_id(java_config)
    directory_id = controller_file.read_directory_id(controller_file.metadata_directory(java_config))
    endpoints = controller_file.controller_endpoints(java_config)
    if not arguments.dry_run:
        with connect(arguments.bootstrap_server, arguments.bootstrap_controller, java_config) as admin:
            admin.add_voter(controller_id, directory_id, endpoints)
    done = "DRY RUN of adding" if arguments.dry_run else "Added"
    listed = ", ".join(map(str, endpoints))
    print(f"{done} controller {controller_id} with directory id {uuid_text(directory_id)} and endpoints: {listed}")


def _remove(arguments: argparse.Namespace, java_config: Mapping[str, str]) -> None:
    controller_id = arguments.controller_id
    if controller_id < 0:
        raise ToolFailed(f"Invalid negative --controller-id: {controller_id}")
    directory_id = _directory_id(arguments.controller_directory_id)
    if not arguments.dry_run:
        with connect(arguments.bootstrap_server, arguments.bootstrap_controller, java_config) as admin:
            admin.remove_voter(controller_id, directory_id)
    done = "DRY RUN of removing" if arguments.dry_run else "Removed"
    # Two blanks: Kafka's text.
    print(f"{done}  KRaft controller {controller_id} with directory id {uuid_text(directory_id)}")


def _directory_id(text: str) -> Uuid:
    try:
        return parse_uuid(text)
    except ToolFailed as error:
        raise ToolFailed(f"Failed to parse --controller-directory-id: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
