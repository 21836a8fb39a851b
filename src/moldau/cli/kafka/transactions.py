"""kafka-transactions: lists and describes transactions and producers, finds those that hang, and ends them.

transaction/tables.py makes the output, transaction/failures.py the error messages. A topic or broker that does not
exist is reported at once, where Kafka's own tool retries for a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, NoReturn

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import version_line
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import TIMEOUT_MS, connect_to_brokers
from moldau.cli.kafka.java.error_messages import MESSAGES
from moldau.cli.kafka.java.exceptions import default_text, message_of
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.kafka.transaction import failures, tables
from moldau.cli.kafka.transaction.failures import failed
from moldau.cli.kafka.transaction.tables import MINUTE_MS
from moldau.cli.kafka.verbs import INTEGER, LONG, SHORT, VerbParser, run_verbs
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.transaction_values import (
    ActiveProducer,
    DescribedTransaction,
    OpenTransaction,
    hanging,
    open_for_long,
)
from moldau.client.admin.transactions import Transactions

TOOL: Final = "kafka-transactions.sh"


class _Parser(VerbParser):
    def print_help(self, file: IO[str] | None = None) -> None:  # type: ignore[override]
        """Print help and exit with status 1, as Kafka's tool does."""
        super().print_help(file)
        self.exit(1)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument COMMAND: ")
        extra = message.removeprefix("unrecognized arguments: ")
        super().error(message if extra == message else f"unrecognized arguments: '{extra.split()[0]}'")


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()

    def run(arguments: argparse.Namespace) -> int:
        if arguments.bootstrap_server is None:
            parser.error("argument --bootstrap-server is required")
        return _run(arguments)

    return run_verbs(parser, run, argv)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=TOOL,
        description="Shows transactions and their producers, finds transactions that hang, and aborts them.",
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--version", action="version", version=version_line(), help="show the version")
    _add_connection(parser, None)
    verbs = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND", required=True)
    _add_views(verbs)
    _add_changes(verbs)
    for verb in verbs.choices.values():
        # A verb's own parser has no defaults: they would overwrite flags before the verb.
        _add_connection(verb, argparse.SUPPRESS)
    return parser


def _add_connection(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--command-config", metavar="FILE", default=default, help="client settings")
    parser.add_argument("--bootstrap-server", metavar="host:port", default=default, help="brokers to connect to")


def _add_views(verbs: argparse._SubParsersAction[_Parser]) -> None:
    listing = verbs.add_parser("list", help="list transactions", allow_abbrev=False)
    listing.add_argument("--duration-filter", type=LONG, help="only those that have run for longer, in ms")
    listing.add_argument("--transactional-id-pattern", help="only ids that match this regular expression")
    describe = verbs.add_parser("describe", help="describe a transactional id", allow_abbrev=False)
    describe.add_argument("--transactional-id", required=True, help="the transactional id")
    producers = verbs.add_parser("describe-producers", help="describe who writes to a partition", allow_abbrev=False)
    producers.add_argument("--broker-id", type=INTEGER, help="the replica to ask; default: the leader")
    producers.add_argument("--topic", required=True, help="the topic")
    producers.add_argument("--partition", type=INTEGER, required=True, help="the partition")
    find = verbs.add_parser("find-hanging", help="find transactions that nobody will end", allow_abbrev=False)
    find.add_argument("--broker-id", type=INTEGER, help="search the replicas on this broker")
    find.add_argument(
        "--max-transaction-timeout", type=INTEGER, default=15, help="skip younger transactions; minutes, default: 15"
    )
    find.add_argument("--topic", help="search only this topic")
    find.add_argument("--partition", type=INTEGER, help="search only this partition; needs --topic")


def _add_changes(verbs: argparse._SubParsersAction[_Parser]) -> None:
    abort = verbs.add_parser("abort", help="abort a hanging transaction", allow_abbrev=False)
    abort.add_argument("--topic", required=True, help="the topic in which it hangs")
    abort.add_argument("--partition", type=INTEGER, required=True, help="the partition in which it hangs")
    abort.add_argument("--start-offset", type=LONG, help="the offset where it begins")
    older = abort.add_argument_group("brokers before 3.0, all of these instead of the offset")
    older.add_argument("--producer-id", type=LONG, help="of the producer that began it")
    older.add_argument("--producer-epoch", type=SHORT, help="of the producer that began it")
    older.add_argument("--coordinator-epoch", type=INTEGER, help="as describe-producers shows it")
    force = verbs.add_parser(
        "forceTerminateTransaction", help="abort whatever a transactional id has open", allow_abbrev=False
    )
    force.add_argument("--transactionalId", required=True, help="the transactional id")


def check(arguments: argparse.Namespace) -> None:
    """Check which flags require which others."""
    if arguments.command == "abort" and arguments.start_offset is None:
        if arguments.producer_id is None:
            raise ToolFailed(
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above)"
                " or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
            )
        for name in ("producer-epoch", "coordinator-epoch"):
            if getattr(arguments, name.replace("-", "_")) is None:
                raise ToolFailed(f"Missing required argument --{name}")
    if arguments.command == "find-hanging" and arguments.topic is None:
        if arguments.broker_id is None:
            raise ToolFailed(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
            )
        if arguments.partition is not None:
            raise ToolFailed("The --partition argument requires --topic to be provided")


def _run(arguments: argparse.Namespace) -> int:
    action = ACTIONS[arguments.command]
    path = arguments.command_config
    if path is not None and not Path(path).exists():
        raise failed("Failed to load admin client properties", path)
    check(arguments)
    with connect_to_brokers(arguments.bootstrap_server, properties.load(path)) as admin:
        table = action(arguments, admin, Transactions(admin.cluster, TIMEOUT_MS))
    if table is not None:
        print(table)
    return 0


def _list(arguments: argparse.Namespace, admin: ClusterAdmin, transactions: Transactions) -> str:
    longer_than_ms = -1 if arguments.duration_filter is None else arguments.duration_filter
    try:
        listed = transactions.listed(longer_than_ms=longer_than_ms, pattern=arguments.transactional_id_pattern)
    except KafkaError as error:
        raise failed("Failed to list transactions", failures.why_not_listed(error)) from error
    return tables.listed_table(listed)


def _describe(arguments: argparse.Namespace, admin: ClusterAdmin, transactions: Transactions) -> str:
    transactional_id: str = arguments.transactional_id
    try:
        description = transactions.described([transactional_id])[transactional_id]
        if isinstance(description, KafkaError):
            raise description
    except KafkaError as error:
        what = f"Failed to describe transaction state of transactional-id `{transactional_id}`"
        raise failed(what, failures.why_not_described(error, transactional_id)) from error
    return tables.described_table(description, _now_ms())


def _describe_producers(arguments: argparse.Namespace, admin: ClusterAdmin, transactions: Transactions) -> str:
    partition, broker_id = TopicPartition(arguments.topic, arguments.partition), arguments.broker_id
    on = "leader" if broker_id is None else f"broker {broker_id}"
    what = f"Failed to describe producers for partition {partition} on {on}"
    return tables.producers_table(_producers(transactions, partition, broker_id, what))


def _producers(
    transactions: Transactions, partition: TopicPartition, broker_id: int | None, what: str
) -> list[ActiveProducer]:
    try:
        producers = transactions.producers([partition], broker_id)[partition]
        if isinstance(producers, KafkaError):
            raise producers
    except KafkaError as error:
        raise failed(what, failures.why_no_producers(error, partition, broker_id)) from error
    return producers


def _find_hanging(arguments: argparse.Namespace, admin: ClusterAdmin, transactions: Transactions) -> str:
    partitions = _partitions_to_search(arguments, admin)
    broker = "Optional.empty" if arguments.broker_id is None else f"Optional[{arguments.broker_id}]"
    what = f"Failed to describe producers for {len(partitions)} partitions on broker {broker}"
    producers: dict[TopicPartition, list[ActiveProducer]] = {}
    try:
        for partition, response in transactions.producers(partitions, arguments.broker_id).items():
            if isinstance(response, KafkaError):
                raise failed(what, failures.why_no_producers(response, partition, arguments.broker_id))
            producers[partition] = response
    except KafkaError as error:
        raise failed(what, default_text(error)) from error
    now_ms, longer_than_ms = _now_ms(), arguments.max_transaction_timeout * MINUTE_MS
    candidates = open_for_long(dict(sorted(producers.items())), now_ms, longer_than_ms)
    return tables.hanging_table(_hanging(transactions, candidates), now_ms)


def _partitions_to_search(arguments: argparse.Namespace, admin: ClusterAdmin) -> list[TopicPartition]:
    if arguments.partition is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    try:
        topics = admin.topics()
    except KafkaError as error:
        raise failed("Failed to list topics", message_of(error)) from error
    if arguments.topic is not None and arguments.topic not in topics:
        raise failed("Failed to describe 1 topics", MESSAGES[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    return [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index, replicas in topic.partitions.items()
        if arguments.topic in (None, name) and (arguments.broker_id is None or arguments.broker_id in replicas.replicas)
    ]


def _hanging(transactions: Transactions, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    if not candidates:
        return []
    producer_ids = {candidate.producer.producer_id for candidate in candidates}
    try:
        listed = transactions.listed(producer_ids=sorted(producer_ids))
    except KafkaError as error:
        what = f"Failed to list transactions for {len(producer_ids)} producers"
        raise failed(what, failures.why_not_listed(error)) from error
    transactional_ids = {transaction.producer_id: transaction.transactional_id for transaction in listed}
    described: dict[str, DescribedTransaction | None] = {}
    try:
        for name, description in transactions.described(transactional_ids.values()).items():
            if isinstance(description, KafkaError) and description.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise KafkaError(description.code, failures.why_not_described(description, name))
            described[name] = None if isinstance(description, KafkaError) else description
    except KafkaError as error:
        raise failed(f"Failed to describe {len(transactional_ids)} transactions", message_of(error)) from error
    return hanging(candidates, transactional_ids, described)


def _abort(arguments: argparse.Namespace, admin: ClusterAdmin, transactions: Transactions) -> None:
    partition = TopicPartition(arguments.topic, arguments.partition)
    if arguments.start_offset is None:
        producer = arguments.producer_id, arguments.producer_epoch, max(0, arguments.coordinator_epoch)
    else:
        what = f"Failed to validate producer state for partition {partition}"
        active = _producers(transactions, partition, None, what)
        match = next((producer for producer in active if producer.transaction_start == arguments.start_offset), None)
        if match is None:
            raise ToolFailed(
                f"Could not find any open transactions starting at offset {arguments.start_offset}"
                f" on partition {partition}"
            )
        # The coordinator epoch is -1 until a first transaction of the producer has ended; no valid epoch is below 0.
        producer = match.producer_id, match.producer_epoch, max(0, match.coordinator_epoch)
    try:
        transactions.abort(partition, *producer)
    except KafkaError as error:
        specification = (
            f"AbortTransactionSpec(topicPartition={partition}, producerId={producer[0]}, producerEpoch={producer[1]},"
            f" coordinatorEpoch={producer[2]})"
        )
        why = failures.why_not_aborted(error, specification, producer[2])
        raise failed(f"Failed to abort transaction {specification}", why) from error


def _terminate(arguments: argparse.Namespace, admin: ClusterAdmin, transactions: Transactions) -> None:
    transactional_id: str = arguments.transactionalId
    try:
        transactions.terminate(transactional_id)
    except KafkaError as error:
        why = failures.why_not_terminated(error, transactional_id)
        raise failed(f"Failed to force terminate transactionalId `{transactional_id}`", why) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


ACTIONS: Final[dict[str, Callable[[argparse.Namespace, ClusterAdmin, Transactions], str | None]]] = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "find-hanging": _find_hanging,
    "abort": _abort,
    "forceTerminateTransaction": _terminate,
}

if __name__ == "__main__":
    sys.exit(main())
