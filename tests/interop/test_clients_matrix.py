"""Records written by each client are read by each client, with every compression codec."""

from __future__ import annotations

from collections.abc import Callable

import kafka.codec
import pytest
from clients import CLIENTS, CODEC_NAMES, Message

HEADERS = (("trace", b"1"), ("trace", b"2"), ("source", b"interop"))
MESSAGES = [
    Message(b"key-0", b"value-0" * 40, HEADERS),
    Message(None, b"no key", HEADERS),
    Message(b"tombstone", None, HEADERS),
    *(Message(f"key-{n}".encode(), f"value {n}".encode() * 20, HEADERS) for n in range(20)),
]
Written = Callable[[str, str], str]


def require_codec(client: str, codec: str) -> None:
    """Skip unless kafka-python has lz4, python-snappy and zstandard, which the others include."""
    if client == "kafka-python" and codec != "none" and not getattr(kafka.codec, f"has_{codec}")():
        pytest.skip(f"kafka-python has no {codec} here (pip install 'kafka-python[{codec}]')")


@pytest.fixture(scope="module")
def written(bootstrap: str, create_topic: Callable[..., str]) -> Written:
    """Return the topic that one client wrote with one codec: written once, read by all."""
    topics: dict[tuple[str, str], str] = {}

    def write(client: str, codec: str) -> str:
        if (client, codec) not in topics:
            name = create_topic()
            CLIENTS[client].produce(bootstrap, name, MESSAGES, codec)
            topics[client, codec] = name
        return topics[client, codec]

    return write


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_reads_what_every_client_wrote(
    bootstrap: str, written: Written, writer: str, codec: str, reader: str
) -> None:
    require_codec(writer, codec)
    require_codec(reader, codec)
    name = written(writer, codec)
    found = CLIENTS[reader].consume(bootstrap, name, len(MESSAGES))
    assert [message._replace(timestamp=None) for message in found] == MESSAGES
