"""Why a broker refuses a connection: librdkafka only tells that it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.client.channel import Channel
from moldau.client.properties import security
from moldau.client.requests.metadata import metadata

ANSWER_SECONDS: Final = 2.5


def refusal(address: str, properties: Mapping[str, str]) -> str | None:
    """Return why the broker at HOST:PORT refuses a client with these properties: a wrong password, a certificate that
    is not trusted, another protocol. None if it accepts it, if nobody answers in time, or if our own client cannot have
    them."""
    host, _, port = address.rpartition(":")
    try:
        with Channel(host, int(port), security(properties), ANSWER_SECONDS) as channel:
            metadata(channel.ask, ())
    except (UnusableProperty, TimeoutError):
        return None
    except KafkaError as error:
        return error.message or error.code.name
    except OSError as error:
        return error.strerror or str(error)
    except MalformedData as error:
        return str(error)
    return None
