"""Why a broker refuses a connection: librdkafka only tells that it has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.client.cluster import Cluster

ANSWER_SECONDS: Final = 2.5


def refusal(address: str, properties: Mapping[str, str]) -> str | None:
    """Return why the broker there refuses a client with these properties: a wrong password, a certificate that is not
    trusted, another protocol. None if it accepts it, if nobody answers, or if our own client cannot have them."""
    try:
        cluster = Cluster(address, properties, ANSWER_SECONDS)
    except UnusableProperty:
        return None
    try:
        cluster.nodes()
    except TimeoutError:
        return None
    except KafkaError as error:
        return error.message or error.code.name
    except (OSError, MalformedData) as error:
        return str(error)
    finally:
        cluster.close()
    return None
