"""Tagged fields that only our nodes exchange: whoever does not know them skips them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moldau.wire.codec import decode, encode
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.schema import OWN_TAGS_FROM, Message, fields_of

DIRECTORY = bytes(range(16))


class EarlierHeartbeatRequest(Message):
    """The message before it had a field of our own."""

    __slots__ = ("broker_epoch", "broker_id", "current_metadata_offset", "offline", "want_fence", "want_shut_down")
    VERSIONS = (0, 2)
    FLEXIBLE = 0
    SCHEMA = """
        broker_id int32 0+
        broker_epoch int64 0+
        current_metadata_offset int64 0+
        want_fence bool 0+
        want_shut_down bool 0+
        offline []uuid 1+ tag=0
    """

    def __init__(
        self,
        broker_id: int = 0,
        broker_epoch: int = -1,
        current_metadata_offset: int = 0,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: Sequence[bytes] = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.current_metadata_offset = current_metadata_offset
        self.want_fence = want_fence
        self.want_shut_down = want_shut_down
        self.offline = offline


@pytest.mark.parametrize("version", range(3))
def test_a_heartbeat_says_that_the_disk_refuses_writes(version: int) -> None:
    out = bytearray()
    encode(BrokerHeartbeatRequest(7, 8, 9, cannot_write=True), version, out)
    assert decode(BrokerHeartbeatRequest, bytes(out), version) == BrokerHeartbeatRequest(7, 8, 9, cannot_write=True)


def test_a_release_without_the_field_reads_the_others() -> None:
    out = bytearray()
    encode(BrokerHeartbeatRequest(7, 8, 9, offline_log_dirs=[DIRECTORY], cannot_write=True), 2, out)
    known = decode(EarlierHeartbeatRequest, bytes(out), 2)
    assert known == EarlierHeartbeatRequest(7, 8, 9, offline=[DIRECTORY])


def test_a_heartbeat_of_a_release_without_the_field_is_read() -> None:
    out = bytearray()
    encode(EarlierHeartbeatRequest(7, 8, 9), 2, out)
    assert not decode(BrokerHeartbeatRequest, bytes(out), 2).cannot_write


@pytest.mark.parametrize("message", [BrokerHeartbeatRequest, BrokerHeartbeatResponse])
def test_own_tags_are_far_from_those_of_apache(message: type[Message]) -> None:
    own = [field.tag for field in fields_of(message) if field.is_own]
    assert own == [*range(OWN_TAGS_FROM, OWN_TAGS_FROM + len(own))]
    assert own
