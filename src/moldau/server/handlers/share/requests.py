"""What ShareFetch and ShareAcknowledge have in common: who may send them, and the acknowledgements in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.metadata.current import CurrentImage
from moldau.runtime.share.partitions import SharePartitions
from moldau.security.acls.requirements import GROUP_READ, TOPIC_READ
from moldau.server.handler import Caller
from moldau.server.handlers.groups.share import MEMBER_ID_LENGTH_MAX, serves_share_groups
from moldau.server.handlers.replies import combine_replies
from moldau.share.ports import ShareKey
from moldau.share.sessions import Place
from moldau.share.window import REJECT, RENEW, Acknowledged
from moldau.wire.messages import share_acknowledge, share_fetch

RENEW_MIN_VERSION: Final = 2


class SaidPartition(Protocol):
    @property
    def partition_index(self) -> int: ...

    @property
    def acknowledgement_batches(self) -> Sequence[SaidBatch]: ...


class SaidTopic(Protocol):
    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> Sequence[SaidPartition]: ...


SaidBatch = share_fetch.AcknowledgementBatch | share_acknowledge.AcknowledgementBatch
Errors = dict[Place, KafkaError | None]


class ShareRequests:
    def __init__(self, current: CurrentImage, shares: SharePartitions) -> None:
        self.current = current
        self.shares = shares

    def check_member(self, group_id: str | None, member_id: str | None, caller: Caller) -> tuple[str, str]:
        """Return the group and the member of a request. Raise KafkaError in Kafka's order."""
        if not serves_share_groups(self.current):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if group_id is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not caller.access.allows(GROUP_READ, group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return group_id, member_id

    def check_topic(self, place: Place, caller: Caller) -> KafkaError | None:
        """Return why a client may not read a partition."""
        topic = self.current.image.topic_by_id(place.topic_id)
        if topic is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not caller.access.allows(TOPIC_READ, topic.name):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not 0 <= place.partition < len(topic.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return None

    def acknowledge(
        self, group_id: str, member_id: str, topics: Iterable[SaidTopic], is_renewal: bool, caller: Caller
    ) -> Errors | Promise[Errors]:
        """Return the error for each partition, None if what the member says is written. Those about which it says
        nothing are in it only beside others, as in Kafka."""
        errors: Errors = {}
        silent: Errors = {}
        asked: list[Place] = []
        replies: list[Promise[KafkaError | None]] = []
        allows_renewal = caller.version >= RENEW_MIN_VERSION
        for topic in topics:
            for partition in topic.partitions:
                place = Place(topic.topic_id, partition.partition_index)
                batches = partition.acknowledgement_batches
                error = self._check_said(place, batches, allows_renewal, is_renewal, caller)
                if error is not None:
                    errors[place] = error
                elif not batches:
                    silent[place] = None
                else:
                    said = [
                        Acknowledged(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches
                    ]
                    asked.append(place)
                    replies.append(self.shares.acknowledge(ShareKey(group_id, *place), member_id, said))
        if not asked:
            return errors
        return combine_replies(
            list(replies), lambda found: {**errors, **silent, **dict(zip(asked, found, strict=True))}
        )

    def _check_said(
        self, place: Place, batches: Sequence[SaidBatch], allows_renewal: bool, is_renewal: bool, caller: Caller
    ) -> KafkaError | None:
        if self.current.image.topic_by_id(place.topic_id) is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        types_max = RENEW if allows_renewal else REJECT
        if not _are_valid(batches, types_max) or (not is_renewal and _has_renewal(batches)):
            return KafkaError(ErrorCode.INVALID_REQUEST)
        return self.check_topic(place, caller)

    def end_session(self, group_id: str, member_id: str) -> None:
        self.shares.end_session(self.shares.sessions.get(group_id, member_id))


def _are_valid(batches: Sequence[SaidBatch], types_max: int) -> bool:
    """Return whether batches are in order, and each has one type or one for each of its offsets."""
    last = -1
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if count < 1 or batch.first_offset < last or len(types) not in (1, count):
            return False
        if min(types) < 0 or max(types) > types_max:
            return False
        last = batch.last_offset
    return True


def _has_renewal(batches: Sequence[SaidBatch]) -> bool:
    return any(RENEW in batch.acknowledge_types for batch in batches)


def message_of(error: KafkaError | None) -> str | None:
    return None if error is None else error.message


def code_of(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code
