"""kafka-topics: creates, lists, describes, grows and deletes topics.

Output is that of Kafka's tool, including errors on stdout, but sorted: Kafka's has the order of a Java HashMap. This
module has the flags and the five actions; topic_lines.py makes the lines of --describe.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.connection.admin import ANSWER_SECONDS
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import FAILURES, ToolFailed, run, trace

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.client.admin.cluster_values import TopicReplicas
    from moldau.client.requests.topics import Growth

ACTIONS: Final = ("list", "describe", "create", "alter", "delete")
PARTITION_FILTERS: Final = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
REPLICATION_FACTOR_MAX: Final = 32767
COLLISION_WARNING: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide."
    " To avoid issues it is best to use either, but not both."
)

FLAGS = ToolFlags(
    "This tool helps to create, delete, describe, or change a topic.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker of the cluster, HOST:PORT.", "server to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command config property file"),
        Flag("list", "List all topics."),
        Flag("create", "Create a topic."),
        Flag("delete", "Delete topics."),
        Flag("alter", "Increase the number of partitions. Use kafka-configs to alter a topic's configs."),
        Flag("describe", "Show partitions, replicas and settings of topics."),
        Flag("topic", "The topic; a regular expression, except with --create.", "topic"),
        Flag("topic-id", "Describe the topic of this id.", "topic-id"),
        Flag("config", "A setting of the topic to create, such as retention.ms=86400000. Repeatable.", "name=value"),
        Flag("delete-config", "Without effect since 4.0.", "name"),
        Flag(
            "partitions",
            "The number of partitions. More partitions for an existing topic move keys to other partitions.",
            "# of partitions",
            "Integer",
        ),
        Flag("replication-factor", "The number of replicas of each partition.", "replication factor", "Integer"),
        Flag(
            "replica-assignment",
            "Which brokers hold which partition: a list of brokers joined by colons for each partition.",
            "broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , broker_id_for_part2_replica1 : ...",
        ),
        Flag("under-replicated-partitions", "With --describe: only partitions that lack in-sync replicas."),
        Flag("unavailable-partitions", "With --describe: only partitions without a live leader."),
        Flag("under-min-isr-partitions", "With --describe: only partitions below min.insync.replicas."),
        Flag("at-min-isr-partitions", "With --describe: only partitions at min.insync.replicas exactly."),
        Flag("topics-with-overrides", "With --describe: only topics with configs of their own."),
        Flag("if-exists", "With --alter, --delete, --describe: no error when the topic does not exist."),
        Flag("if-not-exists", "With --create: no error when the topic exists."),
        Flag("exclude-internal", "With --list, --describe: leave out internal topics."),
        Flag(
            "partition-size-limit-per-response",
            "The largest number of partitions in one response when describing.",
            "maximum number of partitions per response",
            "Integer",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class NewTopicPlan:
    """The topic to create, validated as far as a client can."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignment: list[list[int]]
    config: dict[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-topics", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check(arguments)
    try:
        _act(arguments)
    except (*FAILURES, UsageError) as error:
        trace()
        print(f"Error while executing topic command : {error}")
        return 1
    return 0


def _act(arguments: Arguments) -> None:
    from moldau.cli.kafka.topic_lines import describe

    if arguments.has("create"):
        _create(arguments, _plan(arguments))
        return
    with _admin(arguments) as admin:
        if arguments.has("alter"):
            _alter(arguments, admin)
        elif arguments.has("list"):
            print("\n".join(matching(admin, arguments.single_value("topic"), arguments.has("exclude-internal"))))
        elif arguments.has("describe"):
            describe(arguments, _names_or_id(arguments, admin))
        else:
            _delete(arguments, admin)


def _check(arguments: Arguments) -> None:
    """Check the rules between flags, in Kafka's order, so that of two mistakes the same one is reported."""
    if sum(map(arguments.has, ACTIONS)) != 1:
        raise UsageError("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if arguments.has("delete-config"):
        print(
            "delete-config option is no longer supported and deprecated since version 4.0."
            " The config will be fully removed in future releases.",
            file=sys.stderr,
        )
    if not arguments.has("bootstrap-server"):
        raise UsageError("--bootstrap-server must be specified")
    if (
        arguments.has("describe")
        and arguments.has("if-exists")
        and not (arguments.has("topic") or arguments.has("topic-id"))
    ):
        raise UsageError("--topic or --topic-id is required to describe a topic")
    if not arguments.has("list") and not arguments.has("describe"):
        arguments.require("topic")
    if arguments.has("alter"):
        if arguments.has("config"):
            raise UsageError(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]"'
                " (To alter topic configurations, the kafka-configs tool can be used.)"
            )
        arguments.require("partitions")
    _check_pairs(arguments)


def _check_pairs(arguments: Arguments) -> None:
    allowed_actions = {
        "config": ("alter", "create"),
        "partitions": ("alter", "create"),
        "replication-factor": ("create",),
        "replica-assignment": ("alter", "create"),
        **dict.fromkeys((*PARTITION_FILTERS, "topics-with-overrides"), ("describe",)),
        "if-exists": ("alter", "delete", "describe"),
        "if-not-exists": ("create",),
        "exclude-internal": ("list", "describe"),
    }
    for flag, actions in allowed_actions.items():
        arguments.forbid_together(flag, *(action for action in ACTIONS if action not in actions))
    if arguments.has("create"):
        arguments.forbid_together("replica-assignment", "partitions", "replication-factor")
    for flag in PARTITION_FILTERS:
        arguments.forbid_together(flag, "topics-with-overrides")


def _admin(arguments: Arguments) -> ClusterAdmin:
    from moldau.client.admin.cluster_admin import ClusterAdmin

    servers = arguments.single_value("bootstrap-server") or ""
    java_config = properties.load(arguments.single_value("command-config"))
    clients.require_accepted(servers, java_config)
    cluster = clients.cluster(servers, java_config)
    return ClusterAdmin(cluster, int(clients.ADMIN_SECONDS * 1000), change_seconds=ANSWER_SECONDS)


def _plan(arguments: Arguments) -> NewTopicPlan:
    plan = NewTopicPlan(
        name=arguments.single_value("topic") or "",
        partitions=arguments.integer("partitions"),
        replication_factor=arguments.integer("replication-factor"),
        assignment=parse_assignment(arguments.single_value("replica-assignment") or ""),
        config=_settings(arguments.values_of("config")),
    )
    if "." in plan.name or "_" in plan.name:
        print(COLLISION_WARNING)
    if plan.replication_factor is not None and not 1 <= plan.replication_factor <= REPLICATION_FACTOR_MAX:
        raise ToolFailed(f"The replication factor must be between 1 and {REPLICATION_FACTOR_MAX} inclusive")
    if plan.partitions is not None and plan.partitions < 1:
        raise ToolFailed("The partitions must be greater than 0")
    return plan


def _settings(pairs: list[str]) -> dict[str, str]:
    split = [re.split(r"\s*=\s*", pair) for pair in pairs]
    if any(len(parts) != 2 or not parts[1] for parts in split):
        raise ToolFailed(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    return {name.strip(): value.strip() for name, value in split}


def parse_assignment(text: str) -> list[list[int]]:
    """Parse `1:2,2:3`: the brokers of each partition."""
    partitions: list[list[int]] = []
    stripped = text.rstrip(",")  # Java's split drops empty parts at the end
    for part in stripped.split(",") if stripped else ():
        try:
            brokers = [parse_integer(broker.strip()) for broker in part.split(":")]
        except ValueError as error:
            raise ToolFailed(f"{error}; write broker ids as in 1:2,2:3") from None
        if len(set(brokers)) != len(brokers):
            repeated = ",".join(str(broker) for broker in sorted({b for b in brokers if brokers.count(b) > 1}))
            raise ToolFailed(f"Partition replica lists may not contain duplicate entries: {repeated}")
        partitions.append(brokers)
        if len(brokers) != len(partitions[0]):
            raise ToolFailed(f"Partition {len(partitions) - 1} has different replication factor: {brokers}")
    return partitions


def _create(arguments: Arguments, plan: NewTopicPlan) -> None:
    from moldau.client.admin.topics import create_topics
    from moldau.client.requests.topics import NewTopic

    # -1 leaves the count to the broker's default (KIP-464).
    topic = NewTopic(plan.name, plan.partitions or -1, plan.replication_factor or -1, plan.config, plan.assignment)
    with _admin(arguments) as admin:
        error = create_topics(admin, [topic])[plan.name]
    if error is not None and error.code is ErrorCode.TOPIC_ALREADY_EXISTS and arguments.has("if-not-exists"):
        return
    _raise(error)
    print(f"Created topic {plan.name}.")


def _topics(admin: ClusterAdmin) -> Mapping[str, TopicReplicas]:
    try:
        return admin.topics()
    except (OSError, MalformedData) as error:
        raise ToolFailed(
            "The address accepts connections but does not answer as a Kafka broker does;"
            " check the port, and the TLS and SASL settings in --command-config"
        ) from error


def matching(admin: ClusterAdmin, pattern: str | None, exclude_internal: bool) -> list[str]:
    """Return the topic names that fully match a pattern, sorted. A comma stands for `or`, as in all Kafka tools."""
    names = _topics(admin)
    regex = include_list(pattern)
    return sorted(
        name for name in names if regex.fullmatch(name) and not (exclude_internal and name in INTERNAL_TOPICS)
    )


def include_list(pattern: str | None) -> re.Pattern[str]:
    text = ".*" if pattern is None else pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(text)
    except re.error as error:
        raise ToolFailed(f"{pattern} is an invalid regex. ({error})") from error


def _require_match(names: list[str], arguments: Arguments) -> None:
    pattern = arguments.single_value("topic")
    if pattern and not names and not arguments.has("if-exists"):
        raise ToolFailed(f"Topic '{pattern}' does not exist as expected")


def _names_or_id(arguments: Arguments, admin: ClusterAdmin) -> list[str] | str:
    """Return the names to describe, or an id, which takes precedence over a name."""
    if arguments.single_value("topic-id"):
        return arguments.single_value("topic-id") or ""
    names = matching(admin, arguments.single_value("topic"), arguments.has("exclude-internal"))
    _require_match(names, arguments)
    return names


def _alter(arguments: Arguments, admin: ClusterAdmin) -> None:
    from moldau.client.admin.topics import grow_topics

    count = arguments.integer("partitions") or 0
    assignment = parse_assignment(arguments.single_value("replica-assignment") or "")
    names = matching(admin, arguments.single_value("topic"), arguments.has("exclude-internal"))
    _require_match(names, arguments)
    if not names:
        return
    existing = _topics(admin)
    growth = [
        _growth(name, len(existing[name].partitions) if name in existing else 0, count, assignment) for name in names
    ]
    for error in grow_topics(admin, growth).values():
        _raise(error)


def _growth(name: str, existing: int, count: int, assignment: list[list[int]]) -> Growth:
    """Return how to grow a topic to `count` partitions. The assignment has the brokers of all its partitions."""
    from moldau.client.requests.topics import Growth

    if not assignment or count <= existing:
        return Growth(name, count)
    if len(assignment) <= existing:
        raise ToolFailed(
            f"Attempted to add {count - existing} additional partition(s), but only 0 assignment(s) were specified."
        )
    return Growth(name, count, assignment[existing:])


def _raise(error: KafkaError | None) -> None:
    if error is not None:
        raise ToolFailed(message_of(error)) from error


def _delete(arguments: Arguments, admin: ClusterAdmin) -> None:
    from moldau.client.admin.topics import delete_topics

    names = matching(admin, arguments.single_value("topic"), arguments.has("exclude-internal"))
    _require_match(names, arguments)
    if not names:
        return
    for error in delete_topics(admin, names).values():
        _raise(error)


if __name__ == "__main__":
    sys.exit(main())
