"""Parses the connector's options, which have the names and meanings of Spark's own Kafka connector. Pure.

A wrong value is a ValueError that names the option. An unknown option is rejected with the name that was probably
meant. `kafka.*` are client properties: those that the connector uses are read, others ignored.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, Offsets
from moldau.client.properties import security
from moldau.client.token_login import has_password
from moldau.spark.offsets import parse_assignment, parse_offsets_option
from moldau.spark.option_values import (
    boolean,
    choice,
    compression_level,
    did_you_mean,
    duration_ms,
    natural,
    positive,
    positive_int32,
    timestamp_ms,
    wrong,
)
from moldau.spark.pushed.shape import Shape
from moldau.wire.compression import Compression

T = TypeVar("T")

KAFKA: Final = "kafka."
BOOTSTRAP: Final = "bootstrap.servers"
SOURCE_OPTIONS: Final = frozenset(
    [
        "assign",
        "subscribe",
        "subscribePattern",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "failOnDataLoss",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "groupIdPrefix",
        "includeHeaders",
        "where",
        "fields",
        "delegationToken",
    ]
)
SUBSCRIPTION_OPTIONS: Final = ("assign", "subscribe", "subscribePattern")
SINK_OPTIONS: Final = frozenset(
    [
        "topic",
        "includeHeaders",
        "includeTimestamp",
        "deliveryGuarantee",
        "transactionalIdPrefix",
        "stagingLocation",
        "stagingInlineBytes",
        "queryId",
        "batchId",
        "delegationToken",
    ]
)
ENDS: Final = {"earliest": EARLIEST, "latest": LATEST}
EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
STAGING: Final = "moldau-staging"
SPARK_OPTIONS: Final = frozenset(["checkpointLocation", "path", "queryName"])
"""Options that Spark itself adds to a writer's."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions: those of some topics, of all topics whose name matches, or a list of them."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or end: the same place in every partition, an offset in each, or a time."""

    everywhere: int | None = None
    offsets: Offsets | None = None
    timestamp: int | None = None
    timestamps: Offsets | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    bootstrap: str
    properties: Mapping[str, str] = field(repr=False)
    """Client properties, which may hold passwords."""
    subscription: Subscription
    shape: Shape | None
    """The records and fields that the broker selects; None for all."""
    start: Place
    end: Place
    latest_if_no_later_record: bool
    fail_on_data_loss: bool
    poll_timeout_ms: int
    offset_timeout_ms: int
    offsets_max: int | None
    offsets_min: int | None
    trigger_delay_ms_max: int
    partitions_min: int
    records_per_task_max: int | None
    include_headers: bool
    read_committed: bool
    fetch_bytes_max: int
    partition_bytes_max: int
    delegation_token: bool
    """Whether tasks log in with a token of the driver's user."""


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    transactional_id_prefix: str
    staging: str
    """A directory that the driver and all executors reach by this path."""
    inline_bytes_max: int
    """Up to this size a task's batches are sent to the driver in its message; larger ones go to a file."""
    transaction_timeout_ms: int | None
    """None: computed from the size of the batch."""
    batch: tuple[str, int] | None
    """(query id, batch id) for a write in foreachBatch, where Spark does not pass those of the stream."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    bootstrap: str
    properties: Mapping[str, str] = field(repr=False)
    """Client properties, which may hold passwords."""
    topic: str | None
    include_timestamp: bool
    acks: int
    is_idempotent: bool
    compression: Compression
    compression_level: int | None
    batch_bytes_max: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    metadata_timeout_ms: int
    exactly_once: ExactlyOnce | None
    """None for at least once."""
    delegation_token: bool
    """Whether tasks log in with a token of the driver's user."""


def check_options(given: Mapping[str, str]) -> None:
    """Raise ValueError for wrong options, before Spark says what they are for. Without a subscription they count as
    those of a write."""
    lower = {name.lower() for name in given}
    if any(name.lower() in lower for name in SUBSCRIPTION_OPTIONS):
        read_options(given, is_stream=None)
    else:
        write_options(given)


def read_options(given: Mapping[str, str], is_stream: bool | None) -> ReadOptions:
    """`is_stream` is None if that is not known yet: then options that only a batch or only a stream rejects pass."""
    _refuse_unknown(given, SOURCE_OPTIONS)
    options = {name.lower(): value for name, value in given.items()}
    kafka = _kafka(options)
    places = _places(options, is_stream)
    strategy = _choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    return ReadOptions(
        bootstrap=_bootstrap(kafka),
        properties=kafka,
        subscription=_subscription(options),
        shape=_shape(options),
        start=places[0],
        end=places[1],
        latest_if_no_later_record=strategy == "latest",
        fail_on_data_loss=_value(options, "failOnDataLoss", boolean, True),
        poll_timeout_ms=_value(options, "kafkaConsumer.pollTimeoutMs", positive, 120_000),
        offset_timeout_ms=_value(options, "fetchOffset.numRetries", natural, 3)
        * _value(options, "fetchOffset.retryIntervalMs", natural, 1000),
        offsets_max=_value(options, "maxOffsetsPerTrigger", positive, None),
        offsets_min=_value(options, "minOffsetsPerTrigger", positive, None),
        trigger_delay_ms_max=_value(options, "maxTriggerDelay", duration_ms, 15 * 60_000),
        partitions_min=_value(options, "minPartitions", positive, 0),
        records_per_task_max=_value(options, "maxRecordsPerPartition", positive, None),
        include_headers=_value(options, "includeHeaders", boolean, False),
        read_committed=_isolation(kafka),
        fetch_bytes_max=_value(kafka, "fetch.max.bytes", positive_int32, 16 << 20, KAFKA),
        partition_bytes_max=_value(kafka, "max.partition.fetch.bytes", positive_int32, 4 << 20, KAFKA),
        delegation_token=_delegation_token(options, kafka),
    )


def write_options(given: Mapping[str, str], is_stream: bool = False) -> WriteOptions:
    _refuse_unknown(given, SINK_OPTIONS)
    options = {name.lower(): value for name, value in given.items()}
    kafka = _kafka(options)
    acks = _choice(kafka, "acks", ("all", "-1", "0", "1"), KAFKA)
    codec = _choice(kafka, "compression.type", ("none", "gzip", "snappy", "lz4", "zstd"), KAFKA)
    idempotent = _value(kafka, "enable.idempotence", boolean, acks in ("all", "-1"), KAFKA)
    if idempotent and acks not in ("all", "-1"):
        raise ValueError(f"kafka.enable.idempotence=true needs kafka.acks=all, not {acks}")
    return WriteOptions(
        bootstrap=_bootstrap(kafka),
        properties=kafka,
        topic=options.get("topic"),
        include_timestamp=_value(options, "includeTimestamp", boolean, False),
        acks=-1 if acks == "all" else int(acks),
        is_idempotent=idempotent,
        compression=Compression.from_name(codec),
        compression_level=_value(kafka, f"compression.{codec}.level", compression_level(codec), None, KAFKA),
        batch_bytes_max=_value(kafka, "max.request.size", positive_int32, 1 << 20, KAFKA),
        request_timeout_ms=_value(kafka, "request.timeout.ms", positive_int32, 30_000, KAFKA),
        delivery_timeout_ms=_value(kafka, "delivery.timeout.ms", positive_int32, 120_000, KAFKA),
        metadata_timeout_ms=_value(kafka, "max.block.ms", positive, 60_000, KAFKA),
        exactly_once=_exactly_once(options, kafka, is_stream, idempotent),
        delegation_token=_delegation_token(options, kafka),
    )


def _delegation_token(options: Mapping[str, str], kafka: Mapping[str, str]) -> bool:
    is_wanted = _value(options, "delegationToken", boolean, False)
    if is_wanted and not has_password(kafka):
        raise ValueError(
            "delegationToken=true needs a driver that logs in with a password:"
            " kafka.security.protocol=SASL_SSL and kafka.sasl.mechanism=SCRAM-SHA-512, for example"
        )
    return is_wanted


def _exactly_once(
    options: Mapping[str, str], kafka: Mapping[str, str], is_stream: bool, idempotent: bool
) -> ExactlyOnce | None:
    """Exactly-once is the default of a stream with an idempotent producer, and of a batch with queryId and batchId."""
    batch = _batch(options)
    default = EXACTLY_ONCE if idempotent and (is_stream or batch is not None) else AT_LEAST_ONCE
    guarantee = choice("deliveryGuarantee", options.get("deliveryguarantee", default), (EXACTLY_ONCE, AT_LEAST_ONCE))
    if guarantee == AT_LEAST_ONCE:
        return None
    if not idempotent:
        raise ValueError(f"deliveryGuarantee={EXACTLY_ONCE} needs kafka.acks=all and kafka.enable.idempotence=true")
    return ExactlyOnce(
        transactional_id_prefix=options.get("transactionalidprefix", "moldau-spark"),
        staging=options.get("staginglocation") or _staging(options.get("checkpointlocation", "")),
        inline_bytes_max=_value(options, "stagingInlineBytes", natural, 1 << 20),
        transaction_timeout_ms=_value(kafka, "transaction.timeout.ms", positive_int32, None, KAFKA),
        batch=batch,
    )


def _batch(options: Mapping[str, str]) -> tuple[str, int] | None:
    query_id, batch_id = options.get("queryid"), options.get("batchid")
    if (query_id is None) != (batch_id is None):
        raise ValueError("queryId and batchId go together: give both, such as queryId=counts and batchId=7, or none")
    if query_id is None or batch_id is None:
        return None
    return query_id, natural("batchId", batch_id)


def _staging(checkpoint: str) -> str:
    """In the checkpoint directory, which the cluster must share anyway, if it is a local path."""
    local = checkpoint.removeprefix("file://") if checkpoint.startswith("file:///") else checkpoint
    is_directory = bool(local) and ":/" not in local
    return os.path.join(os.path.abspath(local) if is_directory else tempfile.gettempdir(), STAGING)


def _refuse_unknown(given: Mapping[str, str], known: frozenset[str]) -> None:
    lower = {name.lower() for name in SOURCE_OPTIONS | SINK_OPTIONS | SPARK_OPTIONS}
    for name in given:
        if name.lower() not in lower and not name.lower().startswith(KAFKA):
            near = did_you_mean(name, [*known, KAFKA + BOOTSTRAP], {}) or f"; it has {', '.join(sorted(known))}"
            raise ValueError(f"The connector has no option {name}{near}")


def _kafka(options: Mapping[str, str]) -> dict[str, str]:
    kafka = {name.removeprefix(KAFKA): value for name, value in options.items() if name.startswith(KAFKA)}
    security(kafka)  # raises for unsupported settings, before anything runs
    return kafka


def _bootstrap(kafka: Mapping[str, str]) -> str:
    if not kafka.get(BOOTSTRAP, "").strip():
        near = difflib.get_close_matches(BOOTSTRAP, kafka.keys() - {BOOTSTRAP}, 1)
        given = f" (given is {KAFKA}{near[0]})" if near else ""
        raise ValueError(
            f"The option {KAFKA}{BOOTSTRAP} is missing{given}: say which cluster, as host:port, such as localhost:9092"
        )
    return kafka[BOOTSTRAP]


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in SUBSCRIPTION_OPTIONS if name.lower() in options]
    if len(given) != 1:
        raise ValueError(
            "One of the options subscribe, subscribePattern and assign says what to read, such as subscribe=orders;"
            f" given: {' and '.join(given) or _instead_of_subscribe(options)}"
        )
    text = options[given[0].lower()]
    if given == ["assign"]:
        return Subscription(partitions=_parsed("assign", parse_assignment, text))
    if given == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise wrong("subscribePattern", "a regular expression such as orders-.*", text, f": {error}") from None
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise wrong("subscribe", "a topic, or several as orders,payments", text)
    return Subscription(topics=topics)


def _shape(options: Mapping[str, str]) -> Shape | None:
    for name, example in (("where", "a condition such as amount > 100"), ("fields", "a list such as id, amount")):
        if name in options and not options[name].strip():
            raise wrong(name, example, options[name])
    shape = Shape(options.get("where"), options.get("fields"))
    return None if shape == Shape() else shape


def _instead_of_subscribe(options: Mapping[str, str]) -> str:
    return f"topic={options['topic']}, which is for writing" if "topic" in options else "none"


def _places(options: Mapping[str, str], is_stream: bool | None) -> tuple[Place, Place]:
    start = _place(options, "starting", Place(everywhere=LATEST if is_stream else EARLIEST))
    if is_stream:
        given = [name for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
                 if name.lower() in options]  # fmt: skip
        if given:
            raise ValueError(f"{given[0]} is for batch queries; a stream has no end")
    end = _place(options, "ending", Place(everywhere=LATEST))
    if is_stream is False:
        _refuse_place(start, LATEST, "startingOffsets cannot be latest in a batch query: nothing would be read")
        _refuse_place(end, EARLIEST, "endingOffsets cannot be earliest: nothing would be read")
    return start, end


def _refuse_place(place: Place, what: int, why: str) -> None:
    if place.everywhere == what or what in (place.offsets or {}).values():
        raise ValueError(why)


def _place(options: Mapping[str, str], prefix: str, default: Place) -> Place:
    """A timestamp for all partitions wins over timestamps for each, and these win over offsets, as in Spark."""
    at, by_time, offsets = f"{prefix}Timestamp", f"{prefix}OffsetsByTimestamp", f"{prefix}Offsets"
    if at.lower() in options:
        return Place(timestamp=timestamp_ms(at, options[at.lower()]))
    if by_time.lower() in options:
        return Place(timestamps=_parsed(by_time, lambda raw: parse_offsets_option(raw, 0), options[by_time.lower()]))
    text = options.get(offsets.lower())
    if text is None:
        return default
    if text.strip().lower() in ENDS:
        return Place(everywhere=ENDS[text.strip().lower()])
    if not text.strip().startswith("{"):
        allowed = 'earliest, latest or offsets as JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
        raise wrong(offsets, allowed, text, did_you_mean(text, ENDS))
    return Place(offsets=_parsed(offsets, parse_offsets_option, text))


def _isolation(kafka: Mapping[str, str]) -> bool:
    return _choice(kafka, "isolation.level", ("read_uncommitted", "read_committed"), KAFKA) == "read_committed"


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...], prefix: str = "") -> str:
    """Return the value of an option that must be one of `allowed`; the first is the default."""
    return choice(prefix + name, options.get(name.lower(), allowed[0]), allowed)


def _value(options: Mapping[str, str], name: str, parse: Callable[[str, str], T], default: T, prefix: str = "") -> T:
    text = options.get(name.lower())
    return default if text is None else parse(prefix + name, text)


def _parsed(name: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
