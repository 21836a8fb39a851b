"""Why a request about transactions failed, in the words of Kafka's clients. Pure."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.tool import ToolFailed
from moldau.client.admin.transactions import BrokerRefused

MORE: Final = "Enable debug logging for additional detail."


def failed(what: str, why: str) -> ToolFailed:
    return ToolFailed(f"{what}: {why}. {MORE}")


def why_not_listed(error: KafkaError) -> str:
    if not isinstance(error, BrokerRefused):
        return message_of(error)
    request = f"ListTransactions request sent to broker {error.node_id}"
    if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return f"{request} failed because the coordinator is shutting down"
    return f"{request} failed with an unexpected exception"


def why_not_described(error: KafkaError, transactional_id: str) -> str:
    request = f"DescribeTransactions request for transactionalId `{transactional_id}`"
    match error.code:
        case ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return f"{request} failed because the ID could not be found"
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return f"{request} failed due to authorization failure"
        case ErrorCode.REQUEST_TIMED_OUT | ErrorCode.UNSUPPORTED_VERSION:
            return message_of(error)
    return f"{request} failed due to unexpected error"


def why_no_producers(error: KafkaError, partition: TopicPartition, broker_id: int | None) -> str:
    task = f"Failed to describe active producers for partition {partition}"
    match error.code:
        case ErrorCode.NOT_LEADER_OR_FOLLOWER if broker_id is not None:
            return f"{task} on brokerId {broker_id}"
        case ErrorCode.REQUEST_TIMED_OUT if broker_id is not None:
            return "Timed out waiting for a node assignment. Call: describeProducers(api=DESCRIBE_PRODUCERS)"
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return message_of(KafkaError(error.code))
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return f"Failed to fetch metadata for partition {partition} due to invalid topic error: {message_of(error)}"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"{task} due to authorization failure on topic `{partition.topic}`"
        case ErrorCode.REQUEST_TIMED_OUT | ErrorCode.LEADER_NOT_AVAILABLE | ErrorCode.UNSUPPORTED_VERSION:
            return message_of(error)
    return f"{task} due to unexpected error"


def why_not_aborted(error: KafkaError, specification: str, coordinator_epoch: int) -> str:
    request = f"WriteTxnMarkers request with {specification}"
    match error.code:
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return f"{request} failed due to cluster authorization error"
        case ErrorCode.INVALID_PRODUCER_EPOCH:
            return f"{request} failed due an invalid producer epoch"
        case ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            return (
                f"{request} failed since the provided coordinator epoch {coordinator_epoch} has been fenced"
                " by the active coordinator"
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return message_of(KafkaError(error.code))
        case ErrorCode.REQUEST_TIMED_OUT | ErrorCode.LEADER_NOT_AVAILABLE | ErrorCode.UNSUPPORTED_VERSION:
            return message_of(error)
    return f"{request} failed due to unexpected error: {message_of(KafkaError(error.code))}"


def why_not_terminated(error: KafkaError, transactional_id: str) -> str:
    request = f"InitProducerId request for transactionalId `{transactional_id}`"
    match error.code:
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return f"{request} failed due to cluster authorization failure"
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return f"{request} failed due to transactional ID authorization failure"
        case ErrorCode.REQUEST_TIMED_OUT | ErrorCode.UNSUPPORTED_VERSION:
            return message_of(error)
    return f"{request} failed due to unexpected error"
