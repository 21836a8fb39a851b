"""Ids as texts: Kafka's UUIDs, and a partition's name."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import METADATA_TOPIC_UUID, ZERO_UUID, TopicPartition, uuid_from_text, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_survives_its_text(uuid: bytes) -> None:
    text = uuid_text(uuid)
    assert len(text) == 22
    assert uuid_from_text(text) == uuid


def test_the_reserved_ones_read_as_in_kafka() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(METADATA_TOPIC_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_the_alphabet_is_the_one_for_urls() -> None:
    uuid = b"\xfb\xff" * 8
    assert set(uuid_text(uuid)) & {"-", "_"}
    assert not set(uuid_text(uuid)) & {"+", "/", "="}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AAAA",
        "A" * 21,
        "A" * 23,
        "A" * 24,
        "!" * 22,
        "AAAAAAAAAAAAAAAAAAAAA=",
        "AAAAAAAAAA AAAAAAAAAAAA",
        "é" * 22,
    ],
)
def test_what_is_no_uuid_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)


@pytest.mark.parametrize("text", ["+" * 22, "/" * 22])
def test_the_other_alphabet_of_base64_is_refused(text: str) -> None:
    """As by Kafka; Python 3.15 warns of it."""
    with pytest.raises(ValueError, match="in place of"):
        uuid_from_text(text)


@given(st.text(max_size=30))
def test_any_text_is_a_uuid_of_sixteen_bytes_or_a_value_error(text: str) -> None:
    try:
        uuid = uuid_from_text(text)
    except ValueError:
        return
    assert len(uuid) == 16
    assert base64.urlsafe_b64decode(text + "==")[:16] == uuid


def test_a_partition_is_written_with_a_dash() -> None:
    assert str(TopicPartition("my-topic", 3)) == "my-topic-3"
