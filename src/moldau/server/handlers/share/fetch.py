"""ShareFetch v1–2: a member gets records, and may say what became of earlier ones. v2 has the acquire mode (KIP-1206)
and renewals, which fetch nothing (KIP-1222)."""

from __future__ import annotations

from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, resolved
from moldau.metadata.current import CurrentImage
from moldau.replica.partitions import Partitions
from moldau.runtime.share.fetches import Fetched, Results, ShareFetches, SharesToFetch
from moldau.security.acls.requirements import GROUP_READ, TOPIC_READ
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.current_leaders import add_leaders_to_share_fetch
from moldau.server.handlers.share.requests import Errors, ShareRequests, code_of, message_of
from moldau.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Place, ShareSession
from moldau.share.window import Wanted
from moldau.wire.apis import ApiKey
from moldau.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

MODE_MIN_VERSION: Final = 2
RECORD_LIMIT_MODE: Final = 1
EMPTY: Final = b""


class ShareFetch(Handler):
    api = ApiKey.SHARE_FETCH
    versions = (1, 2)
    needs = (GROUP_READ, TOPIC_READ)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(
        self,
        current: CurrentImage,
        partitions: Partitions,
        share_fetches: ShareFetches,
        timers: Timers,
        fetch_bytes_max: int,
    ) -> None:
        self._requests = ShareRequests(current, share_fetches.shares)
        self._partitions = partitions
        self._fetches = share_fetches
        self._timers = timers
        self._bytes_max = fetch_bytes_max

    def answer(self, request: ShareFetchRequest, caller: Caller) -> ShareFetchResponse | Promise[ShareFetchResponse]:
        is_renewal = caller.version >= MODE_MIN_VERSION and request.is_renew_ack
        try:
            group_id, member_id = self._requests.check_member(request.group_id, request.member_id, caller)
            if is_renewal and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            session = self._session(request, group_id, member_id, caller)
        except KafkaError as error:
            return self._refused(request, error)
        said: Errors | Promise[Errors] = {}
        if _says_anything(request):
            said = self._requests.acknowledge(group_id, member_id, request.topics, is_renewal, caller)
        if request.share_session_epoch == FINAL_EPOCH:
            self._requests.shares.end_session(session)
            fetched: Promise[Results] = resolved({})
        else:
            fetched = resolved({}) if is_renewal else self._fetch(request, session, caller)
        return fetched.and_then(
            lambda results: resolved(said).map(lambda errors: self._response(session, results, errors, caller))
        )

    def _refused(
        self, request: ShareFetchRequest, error: KafkaError
    ) -> ShareFetchResponse | Promise[ShareFetchResponse]:
        """A client that gets no session waits as long as it would for records, and asks again then."""
        response = ShareFetchResponse(error_code=error.code)
        if error.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return response
        refused: Promise[ShareFetchResponse] = Promise()
        self._timers.after_ms(max(0, request.max_wait_ms), lambda: refused.complete(response))
        return refused

    def _session(self, request: ShareFetchRequest, group_id: str, member_id: str, caller: Caller) -> ShareSession:
        sessions, epoch = self._requests.shares.sessions, request.share_session_epoch
        if epoch == FINAL_EPOCH:
            return sessions.get(group_id, member_id)
        named = [Place(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions]
        if epoch == INITIAL_EPOCH:
            if _says_anything(request):
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            return sessions.open(group_id, member_id, caller.address, named)
        session = sessions.resume(group_id, member_id, epoch)
        forgotten = [
            Place(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
        ]
        sessions.change(session, named, forgotten)
        return session

    def _fetch(self, request: ShareFetchRequest, session: ShareSession, caller: Caller) -> Promise[Results]:
        refused: Results = {}
        places = []
        for place in session.in_turn():
            error = self._requests.check_topic(place, caller)
            if error is None:
                places.append(place)
            else:
                refused[place] = Fetched(error=error)
        if not places or request.max_records <= 0 or request.max_bytes <= 0:
            return resolved(refused)
        is_exact = caller.version >= MODE_MIN_VERSION and request.share_acquire_mode == RECORD_LIMIT_MODE
        max_bytes = min(request.max_bytes, self._bytes_max)
        asked = SharesToFetch(
            session.group_id,
            places,
            Wanted(session.member_id, request.max_records, max(1, request.batch_size), is_exact),
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.max_wait_ms,
        )
        return self._fetches.fetch(asked).map(lambda results: {**results, **refused})

    def _response(self, session: ShareSession, results: Results, errors: Errors, caller: Caller) -> ShareFetchResponse:
        topics: dict[bytes, list[PartitionData]] = {}
        told = {place: fetched for place, fetched in results.items() if _is_news(session, place, fetched)}
        for place in [*told, *(each for each in errors if each not in told)]:
            data = _partition_data(place, told.get(place, Fetched()), errors.get(place))
            topics.setdefault(place.topic_id, []).append(data)
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._requests.shares.limits_of(session.group_id).record_lock_duration_ms,
            responses=[ShareFetchableTopicResponse(*each) for each in topics.items()],
        )
        image = self._requests.current.image
        add_leaders_to_share_fetch(response, image, caller.listener, self._partitions.withheld)
        return response


def _says_anything(request: ShareFetchRequest) -> bool:
    return any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions)


def _is_news(session: ShareSession, place: Place, fetched: Fetched) -> bool:
    """Return whether a response names the partition: with records or an error, and once without."""
    is_first = not session.places.get(place, True)
    if is_first:
        session.places[place] = True
    return is_first or fetched.error is not None or fetched.records is not None


def _partition_data(place: Place, fetched: Fetched, said: KafkaError | None) -> PartitionData:
    return PartitionData(
        place.partition,
        code_of(fetched.error),
        message_of(fetched.error),
        code_of(said),
        message_of(said),
        LeaderIdAndEpoch(),
        EMPTY if fetched.records is None else fetched.records,
        [AcquiredRecords(*each) for each in fetched.acquired],
    )
