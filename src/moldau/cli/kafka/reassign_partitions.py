"""kafka-reassign-partitions: moves partitions between brokers, shows the progress and cancels moves.

reassignment/plan.py parses the plan, reassignment/throttles.py limits the copying, reassignment/log_dir_moves.py moves
replicas between the directories of one broker. Errors go to stdout, as Kafka's do.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka import json_input
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import connect
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.reassignment.lines import PlainFailure, raise_for_errors, reassignment_line, status_lines
from moldau.cli.kafka.reassignment.plan import (
    Plan,
    Replicas,
    check_for_execution,
    parse_brokers,
    parse_plan,
    parse_topics,
    plan_json,
)
from moldau.cli.kafka.reassignment.proposal import chosen_racks, propose
from moldau.cli.kafka.tool import FAILURES, ToolFailed, run, trace
from moldau.client.admin.cluster_values import BrokerNode, PartitionReplicas, Reassignment, Replica

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin

ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
REQUIRED: Final = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
PERMITTED: Final[Mapping[str, tuple[str, ...]]] = {
    "generate": ("bootstrap-server", "disable-rack-aware"),
    "execute": (
        "bootstrap-server",
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("bootstrap-server", "preserve-throttles"),
    "cancel": ("bootstrap-server", "bootstrap-controller", "preserve-throttles", "timeout"),
    "list": ("bootstrap-server", "bootstrap-controller"),
}
FLAGS = ToolFlags(
    "This tool helps to move topic partitions between replicas.",
    (
        Flag(
            "verify", "Show the progress of the moves in --reassignment-json-file; when done, remove their throttles."
        ),
        Flag("generate", "Propose new replicas for the partitions in --topics-to-move-json-file. Nothing is moved."),
        Flag("execute", "Begin the moves in --reassignment-json-file."),
        Flag("cancel", "Cancel the active moves in --reassignment-json-file."),
        Flag("list", "List all active moves."),
        Flag("bootstrap-server", "Brokers to connect to, HOST:PORT.", "Server(s) to use for bootstrapping"),
        Flag(
            "bootstrap-controller",
            "Controllers to connect to, HOST:PORT; with --cancel and --list.",
            "bootstrap controller to connect to",
        ),
        Flag("command-config", "A properties file with settings of the client.", "Admin client property file"),
        Flag(
            "reassignment-json-file",
            'The moves: {"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2,3], "log_dirs":'
            ' ["any","any","/data"]}], "version": 1}. log_dirs may be left out.',
            "manual assignment json file path",
        ),
        Flag(
            "topics-to-move-json-file",
            'With --generate: {"topics": [{"topic": "foo"}, {"topic": "bar"}], "version": 1}.',
            "topics to reassign json file path",
        ),
        Flag("broker-list", "With --generate: the brokers to spread partitions over, as 0,1,2.", "brokerlist"),
        Flag("disable-rack-aware", "With --generate: ignore racks."),
        Flag("throttle", "With --execute: bytes a second that brokers may copy.", "throttle", "Long", "-1"),
        Flag(
            "replica-alter-log-dirs-throttle",
            "With --execute: bytes a second that may be copied between directories of a broker.",
            "replicaAlterLogDirsThrottle",
            "Long",
            "-1",
        ),
        Flag("timeout", "How many ms to wait for a move between directories to begin.", "timeout", "Long", "10000"),
        Flag("additional", "With --execute: in addition to active moves, or to change their throttle."),
        Flag("preserve-throttles", "With --verify, --cancel: do not remove throttles."),
        Flag("disallow-replication-factor-change", "With --execute: refuse to change the number of replicas."),
    ),
)
NUMBERS: Final = ("throttle", "replica-alter-log-dirs-throttle", "timeout")
EXISTING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a"
    " new partition assignment in addition to the existing one. The --additional flag can also be used to change the"
    " throttle by resubmitting the current reassignment."
)
RUN_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-reassign-partitions", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    action = selected_action(arguments)
    try:
        java_config = properties.load(arguments.single_value("command-config"))
        act = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action]
        act(arguments, lambda: _admin(arguments, java_config))
        return 0
    except PlainFailure as error:
        print(error)
    except KafkaError as error:
        trace()
        print(f"Error: {exception_text(error)}")
    except FAILURES as error:
        trace()
        print(f"Error: {error}")
    return 1


def selected_action(arguments: Arguments) -> str:
    actions = [action for action in ACTIONS if arguments.has(action)]
    if len(actions) != 1:
        listed = ", ".join(f"--{action}" for action in ACTIONS)
        raise UsageError(f"Command must include exactly one action: {listed}")
    if arguments.has("bootstrap-server") and arguments.has("bootstrap-controller"):
        raise UsageError("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not arguments.has("bootstrap-server") and not arguments.has("bootstrap-controller"):
        raise UsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    (action,) = actions
    arguments.require(*REQUIRED[action])
    for name in arguments.values:
        if name not in (action, "command-config", *REQUIRED[action], *PERMITTED[action]):
            raise UsageError(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    for name in NUMBERS:
        arguments.integer(name)  # raises before anything is changed
    return action


OpenAdmin = Callable[[], "ClusterAdmin"]
"""Actions connect late: mistakes in the JSON file are reported even when no broker answers."""


def _admin(arguments: Arguments, java_config: Mapping[str, str]) -> ClusterAdmin:
    return connect(
        arguments.single_value("bootstrap-server"), arguments.single_value("bootstrap-controller"), java_config
    )


def _plan(arguments: Arguments) -> Plan:
    return parse_plan(json_input.read_file(arguments.single_value("reassignment-json-file") or ""))


# --- list and verify ------------------------------------------------------------------------------------------------


def _list(arguments: Arguments, open_admin: OpenAdmin) -> None:
    with open_admin() as admin:
        active = admin.reassignments()
    lines = [reassignment_line(partition, active[partition]) for partition in sorted(active)]
    print("\n".join(["Current partition reassignments:", *lines]) if lines else "No partition reassignments found.")


def _verify(arguments: Arguments, open_admin: OpenAdmin) -> None:
    from moldau.cli.kafka.reassignment import log_dir_moves
    from moldau.cli.kafka.reassignment.throttles import clear_throttles
    from moldau.client.admin.replicas import replica_log_dirs

    plan = _plan(arguments)
    with open_admin() as admin:
        active = admin.reassignments()
        current = {} if set(plan.replicas) <= set(active) else _current(admin)
        print("\n".join(["Status of partition reassignment:", *status_lines(plan.replicas, active, current)]))
        log_dirs = replica_log_dirs(admin, plan.log_dirs)
        ordered = sorted(plan.log_dirs, key=log_dir_moves.broker_first_key)
        lines = [log_dir_moves.status_line(replica, log_dirs[replica], plan.log_dirs[replica]) for replica in ordered]
        print("\n".join(lines))
        moving = active or any(map(log_dir_moves.is_moving, log_dirs.values()))
        if not moving and not arguments.has("preserve-throttles"):
            clear_throttles(admin, plan)


def _current(admin: ClusterAdmin) -> dict[TopicPartition, PartitionReplicas]:
    return {
        TopicPartition(topic.name, index): partition
        for topic in admin.topics().values()
        for index, partition in topic.partitions.items()
    }


# --- execute and cancel ---------------------------------------------------------------------------------------------


def _execute(arguments: Arguments, open_admin: OpenAdmin) -> None:
    from moldau.cli.kafka.reassignment import log_dir_moves

    plan = _plan(arguments)
    check_for_execution(plan)
    with open_admin() as admin:
        active = admin.reassignments()
        if active and not arguments.has("additional"):
            raise PlainFailure(EXISTING)
        nodes = admin.described().nodes
        brokers = sorted({broker for _, replicas in plan.rows for broker in replicas})
        for broker in brokers:
            if broker not in nodes:
                raise ToolFailed(f"Unknown broker id {broker}")
        current = _known_replicas(admin, plan)
        print(f"Current partition replica assignment\n\n{_current_json(admin, current, nodes)}\n")
        print("Save this to use as the --reassignment-json-file option during rollback")
        _throttle(arguments, admin, plan, active, current)
        outcomes = admin.alter_reassignments(plan.replicas, not arguments.has("disallow-replication-factor-change"))
        raise_for_errors("Error reassigning partition(s):", outcomes)
        partitions = "partition reassignment" if len(plan.rows) == 1 else "partition reassignments"
        print(f"Successfully started {partitions} for {','.join(map(str, sorted(plan.replicas)))}", flush=True)
        if plan.log_dirs:
            log_dir_moves.start(admin, plan.log_dirs, arguments.integer("timeout") or 0)


def _known_replicas(admin: ClusterAdmin, plan: Plan) -> dict[TopicPartition, Sequence[int]]:
    current = _current(admin)
    topics = {partition.topic for partition in current}
    for topic in plan.topics:
        if topic not in topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} not found.")
    missing = sorted(partition for partition in plan.replicas if partition not in current)
    if missing:
        listed = ", ".join(map(str, missing))
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition: {listed}")
    return {partition: current[partition].replicas for partition in plan.replicas}


def _current_json(admin: ClusterAdmin, current: Replicas, nodes: Mapping[int, BrokerNode]) -> str:
    """Return the current assignment, with directories on brokers that are alive."""
    from moldau.client.admin.replicas import replica_log_dirs

    replicas = [Replica(*partition, broker) for partition, ids in current.items() for broker in ids if broker in nodes]
    log_dirs = replica_log_dirs(admin, replicas)
    return plan_json(
        current, {replica: log_dir.current for replica, log_dir in log_dirs.items() if log_dir.current is not None}
    )


def _throttle(
    arguments: Arguments,
    admin: ClusterAdmin,
    plan: Plan,
    active: Mapping[TopicPartition, Reassignment],
    current: Replicas,
) -> None:
    from moldau.cli.kafka.reassignment import throttles

    between_brokers = arguments.integer("throttle") or 0
    between_log_dirs = arguments.integer("replica-alter-log-dirs-throttle") or 0
    if between_brokers < 0 and between_log_dirs < 0:
        return
    print(RUN_VERIFY, flush=True)
    if between_brokers >= 0:
        moves = throttles.proposed_moves(active, plan.replicas, current)
        throttles.throttle_moves(admin, moves, between_brokers)
    if between_log_dirs >= 0:
        moving = (replica.broker for replica in plan.log_dirs)
        throttles.throttle_log_dirs(admin, moving, between_log_dirs)


def _cancel(arguments: Arguments, open_admin: OpenAdmin) -> None:
    from moldau.cli.kafka.reassignment import log_dir_moves
    from moldau.cli.kafka.reassignment.throttles import clear_throttles
    from moldau.client.admin.replicas import replica_log_dirs

    plan = _plan(arguments)
    with open_admin() as admin:
        active = sorted(admin.reassignments(plan.replicas))
        if active:
            is_single = len(active) == 1
            outcomes = admin.alter_reassignments(dict.fromkeys(active))
            failed = sum(error is not None for error in outcomes.values())
            raise_for_errors(f"Error cancelling partition reassignment{'' if failed == 1 else 's'} for:", outcomes)
            listed = ",".join(map(str, active))
            print(f"Successfully cancelled partition reassignment{'' if is_single else 's'} for: {listed}")
        else:
            print("None of the specified partition reassignments are active.")
        log_dirs = replica_log_dirs(admin, plan.log_dirs)
        originals = {
            replica: log_dir.current
            for replica, log_dir in log_dirs.items()
            if log_dir.current and log_dir_moves.is_moving(log_dir)
        }
        if originals:
            log_dir_moves.start(admin, originals, arguments.integer("timeout") or 0)
        else:
            # Kafka prints no newline after this line either.
            print("None of the specified partition moves are active.", end="")
        if not arguments.has("preserve-throttles"):
            clear_throttles(admin, plan)


# --- generate -------------------------------------------------------------------------------------------------------


def _generate(arguments: Arguments, open_admin: OpenAdmin) -> None:
    text = json_input.read_file(arguments.single_value("topics-to-move-json-file") or "")
    brokers = parse_brokers(arguments.single_value("broker-list") or "")
    topics = parse_topics(text)
    with open_admin() as admin:
        topics_by_name = admin.topics()
        for topic in sorted(topics):
            if topic not in topics_by_name:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} not found.")
        nodes = admin.described().nodes
        racks = chosen_racks(nodes, brokers, rack_aware=not arguments.has("disable-rack-aware"))
        current = {
            TopicPartition(topic, index): partition.replicas
            for topic in topics
            for index, partition in topics_by_name[topic].partitions.items()
        }
        proposed = propose(current, racks, random.Random())
        print(f"Current partition replica assignment\n{_current_json(admin, current, nodes)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_json(proposed, {})}")


if __name__ == "__main__":
    sys.exit(main())
