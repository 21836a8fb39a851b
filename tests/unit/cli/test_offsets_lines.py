"""Records of `__consumer_offsets` as text; Apache Kafka prints the same for the same records.

`tests/interop/test_offsets_topic_format.py` compares all record types with Apache's own tool.
"""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.cli.kafka.log_dump.offsets_lines import offsets_texts
from moldau.coordinator.group.serde import encode_record
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.consumer_protocol import write
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions
from moldau.wire.log_records.offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.wire.log_records.offsets import TopicPartitions as TopicIdPartitions
from moldau.wire.records import Record
from moldau.wire.schema import RecordKey, RecordValue


def texts(key: RecordKey, value: RecordValue | None) -> tuple[str, str | None]:
    return offsets_texts(Record(7, 0, *encode_record(CoordinatorRecord(key, value))))


def test_a_committed_offset_and_its_deletion() -> None:
    key = OffsetCommitKey('the "g"', "t", 3)
    text = '{"type":"1","data":{"group":"the \\"g\\"","topic":"t","partition":3}}'
    assert texts(key, OffsetCommitValue(5, -1, "\x1f é", 9, topic_id=bytes(range(16)))) == (
        text,
        '{"version":"4","data":{"offset":5,"leaderEpoch":-1,"metadata":"\\u001F é","commitTimestamp":9,'
        '"topicId":"AAECAwQFBgcICQoLDA0ODw"}}',
    )
    assert texts(key, None) == (text, "<DELETE>")


def test_subscriptions_and_assignments_of_a_classic_group_are_decoded() -> None:
    subscription = write(Subscription(["t"], None), 0)
    assignment = write(Assignment([TopicPartitions("t", [0])], b"\xff"), 1)
    member = MemberMetadata("m", None, "c", "/h", 2, 1, subscription, assignment)
    _, text = texts(GroupMetadataKey("g"), GroupMetadataValue("consumer", 1, "range", "m", 8, [member]))
    assert text == (
        '{"version":"3","data":{"protocolType":"consumer","generation":1,"protocol":"range","leader":"m",'
        '"currentStateTimestamp":8,"members":[{"memberId":"m","groupInstanceId":null,"clientId":"c","clientHost":"/h",'
        '"rebalanceTimeout":2,"sessionTimeout":1,"subscription":{"topics":["t"],"userData":null},'
        '"assignment":{"assignedPartitions":[{"topic":"t","partitions":[0]}],"userData":"/w=="}}]}}'
    )


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_undecodable_subscriptions_are_printed_as_base64(protocol_type: str) -> None:
    member = MemberMetadata("m", subscription=b"\0", assignment=b"")
    _, text = texts(GroupMetadataKey("g"), GroupMetadataValue(protocol_type, 1, "p", "m", 8, [member]))
    assert text is not None
    assert '"subscription":"AA==","assignment":""' in text


def test_a_member_of_a_consumer_group() -> None:
    owned = [TopicIdPartitions(bytes(15) + b"\1", [0, 2], [4, 5])]
    text = texts(
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"), ConsumerGroupCurrentMemberAssignmentValue(5, 4, 1, owned)
    )
    assert text == (
        '{"type":"8","data":{"groupId":"g","memberId":"m"}}',
        '{"version":"0","data":{"memberEpoch":5,"previousMemberEpoch":4,"state":1,"assignedPartitions":'
        '[{"topicId":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":[0,2],"assignmentEpochs":[4,5]}],'
        '"partitionsPendingRevocation":[]}}',
    )


def test_undecodable_records_are_skipped() -> None:
    assert offsets_texts(Record(7, 0, b"\x03\xe8", b"")) == ("Unknown record type 1000 at offset 7, skipping.", None)
    text, payload = offsets_texts(Record(7, 0, b"\0\1\0", b""))
    assert text.startswith("Error at offset 7, skipping. ")
    assert payload is None


def test_a_record_without_a_key_is_malformed() -> None:
    with pytest.raises(MalformedData, match="offset 7 has no key"):
        offsets_texts(Record(7, 0, None, b"value"))
