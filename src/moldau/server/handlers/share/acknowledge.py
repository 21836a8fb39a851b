"""ShareAcknowledge v1–2: a member says what became of records, without fetching more. v2 can also renew their locks
(KIP-1222)."""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, when_ready
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.runtime.share.partitions import SharePartitions
from moldau.security.acls.requirements import GROUP_READ, TOPIC_READ
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.current_leaders import add_leaders_to_share_acknowledge
from moldau.server.handlers.share.requests import Errors, ShareRequests, code_of, message_of
from moldau.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from moldau.wire.apis import ApiKey
from moldau.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


class ShareAcknowledge(Handler):
    api = ApiKey.SHARE_ACKNOWLEDGE
    versions = (1, 2)
    needs = (GROUP_READ, TOPIC_READ)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, partitions: Partitions, shares: SharePartitions) -> None:
        self._requests = ShareRequests(current, shares)
        self._partitions = partitions

    def answer(
        self, request: ShareAcknowledgeRequest, caller: Caller
    ) -> ShareAcknowledgeResponse | Promise[ShareAcknowledgeResponse]:
        requests, epoch = self._requests, request.share_session_epoch
        try:
            group_id, member_id = requests.check_member(request.group_id, request.member_id, caller)
            if epoch == INITIAL_EPOCH:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            if epoch == FINAL_EPOCH:
                requests.shares.sessions.get(group_id, member_id)
            else:
                requests.shares.sessions.resume(group_id, member_id, epoch)
        except KafkaError as error:
            return ShareAcknowledgeResponse(error_code=error.code)
        said = requests.acknowledge(group_id, member_id, request.topics, request.is_renew_ack, caller)
        if epoch == FINAL_EPOCH:
            requests.end_session(group_id, member_id)
        return when_ready(said, lambda errors: self._response(group_id, errors, caller))

    def _response(self, group_id: str, errors: Errors, caller: Caller) -> ShareAcknowledgeResponse:
        topics: dict[bytes, list[PartitionData]] = {}
        for place, error in errors.items():
            data = PartitionData(place.partition, code_of(error), message_of(error), LeaderIdAndEpoch())
            topics.setdefault(place.topic_id, []).append(data)
        lock_ms = self._requests.shares.limits_of(group_id).record_lock_duration_ms
        response = ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=lock_ms,
            responses=[ShareAcknowledgeTopicResponse(*each) for each in topics.items()],
        )
        image = self._requests.current.image
        add_leaders_to_share_acknowledge(response, image, caller.listener, self._partitions.withheld)
        return response
