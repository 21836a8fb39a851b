"""Ids as text: Kafka's UUIDs, and a partition's name."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import METADATA_TOPIC_UUID, ZERO_UUID, TopicPartition, uuid_from_text, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_survives_text_and_parse(uuid: bytes) -> None:
    text = uuid_text(uuid)
    assert len(text) == 22
    assert uuid_from_text(text) == uuid


def test_reserved_uuids_have_kafkas_text() -> None:
    assert uuid_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_text(METADATA_TOPIC_UUID) == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_the_alphabet_is_url_safe() -> None:
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
def test_an_invalid_text_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_from_text(text)


@pytest.mark.parametrize("text", ["A", "!" * 22, "AAAAAAAAAA AAAAAAAAAAAA", "é" * 22])
def test_the_error_has_the_text_and_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' is not a Kafka UUID: it is not URL-safe base64$"):
        uuid_from_text(text)


@pytest.mark.parametrize("text", ["+" * 22, "/" * 22])
def test_the_standard_alphabet_of_base64_is_refused(text: str) -> None:
    """Kafka refuses it too; Python 3.15 warns of it."""
    with pytest.raises(ValueError, match="in place of"):
        uuid_from_text(text)


@given(st.text(max_size=30))
def test_any_text_gives_sixteen_bytes_or_a_value_error(text: str) -> None:
    try:
        uuid = uuid_from_text(text)
    except ValueError:
        return
    assert len(uuid) == 16
    assert base64.urlsafe_b64decode(text + "==")[:16] == uuid


def test_a_partition_is_written_with_a_dash() -> None:
    assert str(TopicPartition("my-topic", 3)) == "my-topic-3"
