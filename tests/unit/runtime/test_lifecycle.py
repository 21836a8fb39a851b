"""A broker registers until it is accepted, sends heartbeats until it leaves, and serves once it is unfenced."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from moldau.base.cluster_settings import BrokerSessionSettings
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import BrokerImage, MetadataImage
from moldau.runtime.broker.lifecycle import LEAVE_TIMEOUT_MS, REGISTER_RETRY_DELAY_MS, BrokerLifecycle
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatResponse
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.wire.schema import Message

NODE_ID = 7
BEAT_MS = 2_000


class LifecycleHarness:
    """A lifecycle and its controller: a test responds to each request by hand."""

    def __init__(self, controlled_shutdown_enabled: bool = True, is_alone: bool = False) -> None:
        self.is_alone = is_alone
        self.timers = FakeTimers()
        self.requests: list[tuple[ApiKey, Any, Promise[Any]]] = []
        self.current = CurrentImage()
        self.contacts: list[int] = []
        self.session_timeout_ms = 0
        self.silent_ms = 0
        settings = BrokerSessionSettings(BEAT_MS, 9_000, controlled_shutdown_enabled)
        self.lifecycle = BrokerLifecycle(
            NODE_ID,
            settings,
            self,  # type: ignore[arg-type]
            self.current,
            self.timers.clock,
            self.timers,
            b"i" * 16,
            on_contact=self._on_contact,
        )
        self.current.add_listener(self.lifecycle.on_image)
        self.serving = self.lifecycle.start(BrokerRegistrationRequest(broker_id=NODE_ID))

    def ask(self, api: ApiKey, request: Message, purpose: str = "", timeout_ms: int = 0) -> Promise[Any]:
        self.requests.append((api, request, Promise()))
        return self.requests[-1][2]

    def _on_contact(self, contact_ms: int, session_timeout_ms: int) -> None:
        self.contacts.append(contact_ms)
        self.session_timeout_ms = session_timeout_ms

    def controller_silent_ms(self) -> int:
        return self.silent_ms

    def answer(self, given: Any) -> None:
        """Respond to the latest request."""
        self.requests[-1][2].complete(given)

    def publish(self, epoch: int, fenced: bool) -> None:
        broker = BrokerImage(NODE_ID, epoch, b"i" * 16, (), None, fenced)
        other = BrokerImage(NODE_ID + 1, 1, b"o" * 16, (), None, self.is_alone)
        brokers = PersistentMap({NODE_ID: broker, other.id: other})
        self.current.publish(MetadataImage(offset=epoch, brokers=brokers), Changes())
        self.timers.run_soon()

    def unfenced(self, epoch: int = 5) -> LifecycleHarness:
        self.answer(BrokerRegistrationResponse(broker_epoch=epoch))
        self.answer(BrokerHeartbeatResponse(is_fenced=False))
        self.publish(epoch, fenced=False)
        return self

    def beats(self) -> int:
        return sum(api is ApiKey.BROKER_HEARTBEAT for api, _, _ in self.requests)


def test_a_broker_serves_once_the_image_has_it_unfenced() -> None:
    harness = LifecycleHarness()
    assert harness.requests[0][1].incarnation_id == b"i" * 16
    harness.answer(BrokerRegistrationResponse(broker_epoch=5))
    assert harness.lifecycle.epoch == 5
    harness.publish(5, fenced=True)
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert not harness.serving.done
    harness.publish(5, fenced=False)
    assert harness.serving.done


def test_a_closed_broker_does_not_begin_to_serve() -> None:
    harness = LifecycleHarness()
    harness.answer(BrokerRegistrationResponse(broker_epoch=5))
    harness.current.add_listener(lambda *_: harness.lifecycle.close())
    harness.publish(5, fenced=False)
    assert not harness.serving.done


def test_the_image_of_an_earlier_registration_is_ignored() -> None:
    harness = LifecycleHarness()
    harness.publish(3, fenced=False)
    harness.answer(BrokerRegistrationResponse(broker_epoch=5))
    harness.publish(3, fenced=False)
    assert not harness.serving.done


def test_a_broker_registers_until_it_is_accepted() -> None:
    harness = LifecycleHarness()
    harness.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    harness.timers.advance(1_000)
    harness.answer(KafkaError(ErrorCode.NOT_CONTROLLER))
    harness.timers.advance(1_000)
    assert [api for api, _, _ in harness.requests] == [ApiKey.BROKER_REGISTRATION] * 3


def test_a_closed_broker_does_not_register() -> None:
    harness = LifecycleHarness()
    harness.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    harness.lifecycle.close()
    harness.timers.advance(1_000)
    assert len(harness.requests) == 1


def test_a_new_controller_during_a_registration_retry_causes_no_second_registration() -> None:
    harness = LifecycleHarness().unfenced()
    harness.timers.advance(BEAT_MS)
    harness.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    harness.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    harness.lifecycle.beat_now()
    before = len(harness.requests)
    harness.timers.advance(1_000)
    assert len(harness.requests) == before
    harness.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert harness.requests[-1][0] is ApiKey.BROKER_REGISTRATION


def test_a_heartbeat_carries_the_metadata_offset() -> None:
    harness = LifecycleHarness().unfenced()
    harness.publish(40, fenced=False)
    harness.timers.advance(BEAT_MS)
    _, beat, _ = harness.requests[-1]
    assert (beat.broker_epoch, beat.current_metadata_offset, beat.want_shut_down) == (5, 40, False)


def test_a_broker_sends_one_heartbeat_at_a_time_at_its_interval() -> None:
    harness = LifecycleHarness().unfenced()
    before = harness.beats()
    harness.timers.advance(10 * BEAT_MS)
    assert harness.beats() == before + 1
    harness.lifecycle.beat_now()
    assert harness.beats() == before + 1
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    harness.lifecycle.beat_now()
    assert harness.beats() == before + 2


def test_a_broker_registers_again_after_a_stale_epoch() -> None:
    harness = LifecycleHarness().unfenced()
    harness.timers.advance(BEAT_MS)
    harness.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert harness.requests[-1][0] is ApiKey.BROKER_REGISTRATION
    harness.answer(BrokerRegistrationResponse(broker_epoch=9))
    assert harness.lifecycle.epoch == 9


def test_a_broker_leaves_when_the_controller_allows_it() -> None:
    harness = LifecycleHarness().unfenced()
    left = harness.lifecycle.leave()
    assert harness.requests[-1][1].want_shut_down
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert not left.done
    harness.timers.advance(BEAT_MS)
    harness.answer(BrokerHeartbeatResponse(is_fenced=True, should_shut_down=True))
    assert left.done
    before = len(harness.requests)
    harness.timers.advance(10 * BEAT_MS)
    assert len(harness.requests) == before


def test_a_broker_leaves_after_the_timeout() -> None:
    harness = LifecycleHarness().unfenced()
    left = harness.lifecycle.leave()
    harness.timers.advance(LEAVE_TIMEOUT_MS - 1)
    assert not left.done
    harness.timers.advance(1)
    assert left.done


def test_the_last_broker_leaves_at_once() -> None:
    harness = LifecycleHarness(is_alone=True).unfenced()
    before = len(harness.requests)
    assert harness.lifecycle.leave().done
    assert len(harness.requests) == before


def test_an_unregistered_broker_leaves_at_once() -> None:
    assert LifecycleHarness().lifecycle.leave().done
    assert LifecycleHarness(controlled_shutdown_enabled=False).unfenced().lifecycle.leave().done


def test_a_refused_heartbeat_is_logged_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.lifecycle")
    harness = LifecycleHarness().unfenced()
    refusal = BrokerHeartbeatResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    accepted = BrokerHeartbeatResponse(is_fenced=False)
    unanswered = KafkaError(ErrorCode.NOT_CONTROLLER)
    for answer in (refusal, refusal, accepted, accepted, refusal, unanswered):
        harness.timers.advance(BEAT_MS)
        harness.answer(answer)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "broker 7: heartbeat refused, retrying: CLUSTER_AUTHORIZATION_FAILED"),
        ("INFO", "broker 7: heartbeats are accepted again"),
        ("WARNING", "broker 7: heartbeat refused, retrying: CLUSTER_AUTHORIZATION_FAILED"),
        ("WARNING", "broker 7: heartbeat not answered, retrying: NOT_CONTROLLER"),
    ]


def test_an_answered_heartbeat_is_a_contact_at_the_time_it_was_sent() -> None:
    harness = LifecycleHarness().unfenced()
    assert harness.contacts == [0]
    harness.timers.advance(REGISTER_RETRY_DELAY_MS)
    harness.timers.advance(700)
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert harness.contacts == [0, REGISTER_RETRY_DELAY_MS], "when it was sent, not when it was answered"
    beats = harness.beats()
    harness.timers.advance(BEAT_MS - 701)
    assert harness.beats() == beats
    harness.timers.advance(1)
    assert harness.beats() == beats + 1, "the interval is from heartbeat to heartbeat"


@pytest.mark.parametrize(
    "answer",
    [
        KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER, is_fenced=False),
        BrokerHeartbeatResponse(is_fenced=True),
    ],
)
def test_a_heartbeat_that_was_not_accepted_is_no_contact(answer: Any) -> None:
    harness = LifecycleHarness().unfenced()
    harness.timers.advance(BEAT_MS)
    harness.answer(answer)
    assert harness.contacts == [0]


def test_the_controller_of_this_node_counts_from_when_it_heard_from_a_majority() -> None:
    harness = LifecycleHarness().unfenced()
    harness.timers.advance(BEAT_MS)
    harness.silent_ms = BEAT_MS - 10
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    assert harness.contacts == [0, 10], "the heartbeat was sent after 100 ms"


def test_an_answered_heartbeat_is_a_contact_once_the_metadata_of_then_is_here() -> None:
    harness = LifecycleHarness().unfenced()
    for offset in (8, 9):
        harness.timers.advance(BEAT_MS)
        harness.answer(BrokerHeartbeatResponse(is_fenced=False, metadata_offset=offset))
    assert harness.contacts == [0], "a broker that cannot follow the metadata does not know who leads"
    harness.publish(8, fenced=False)
    assert harness.contacts == [0, 100], "of the first of the two"
    harness.publish(9, fenced=False)
    assert harness.contacts == [0, 100, 100 + BEAT_MS]


def test_what_an_earlier_controller_had_appended_may_never_come() -> None:
    harness = LifecycleHarness().unfenced()
    for offset in (8, 50, 7):
        harness.timers.advance(BEAT_MS)
        harness.answer(BrokerHeartbeatResponse(is_fenced=False, metadata_offset=offset))
    harness.publish(7, fenced=False)
    assert harness.contacts == [0, 100 + 2 * BEAT_MS]
    harness.publish(60, fenced=False)
    assert len(harness.contacts) == 2


def test_the_controller_says_how_long_a_session_is() -> None:
    harness = LifecycleHarness().unfenced()
    assert harness.session_timeout_ms == 9_000, "a controller of an earlier release does not say it"
    harness.timers.advance(BEAT_MS)
    harness.answer(BrokerHeartbeatResponse(is_fenced=False, session_timeout_ms=3_000))
    assert harness.session_timeout_ms == 3_000


def test_a_full_disk_is_reported_at_once_and_in_every_heartbeat() -> None:
    harness = LifecycleHarness().unfenced()
    harness.timers.advance(BEAT_MS)
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    beats = harness.beats()
    harness.lifecycle.set_cannot_write(True)
    assert harness.beats() == beats + 1
    assert harness.requests[-1][1].cannot_write
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    harness.timers.advance(BEAT_MS)
    assert harness.requests[-1][1].cannot_write


def test_a_disk_that_is_full_while_a_heartbeat_is_on_its_way_is_reported_right_after_it() -> None:
    harness = LifecycleHarness().unfenced()
    harness.timers.advance(BEAT_MS)
    beats = harness.beats()
    harness.lifecycle.set_cannot_write(True)
    assert harness.beats() == beats
    harness.answer(BrokerHeartbeatResponse(is_fenced=False))
    harness.timers.advance(100)
    assert harness.beats() == beats + 1
    assert harness.requests[-1][1].cannot_write
