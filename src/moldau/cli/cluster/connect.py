"""How a command connects to a whole cluster over our own channel, for calls that confluent-kafka lacks, and how what
fails becomes one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.listeners import host_and_port
from moldau.cli.connect import (
    CHECK_SECURITY,
    CONNECT_SECONDS,
    Broker,
    CommandFailed,
    first_reachable,
    say_when_slow,
    split_address,
)
from moldau.cli.next_steps import worded
from moldau.client.cluster import Cluster
from moldau.operations.failures import OperationFailed, kafka_failure

ANSWER_SECONDS: Final = 20.0
COORDINATOR_TIMEOUT_MS: Final = 10_000
"""How long to wait for a coordinator that is moving or loading."""


@contextmanager
def answering_cluster(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[Cluster]:
    """Yield a cluster that answers.

    Inside the block, turn failures of operations, error codes, lost connections and malformed responses into
    CommandFailed, which is printed as one line.
    """
    reachable = first_reachable(broker.bootstrap_servers, min(CONNECT_SECONDS, answer_seconds))
    # Our client takes only HOST:PORT; users may leave the port out, or write a protocol in front.
    address = host_and_port(*split_address(reachable))
    try:
        cluster = Cluster(address, broker.client_config, answer_seconds)
    except UnusableProperty as error:
        raise CommandFailed(str(error)) from error
    try:
        try:
            with say_when_slow(reachable, answer_seconds):
                cluster.nodes()
        except (OSError, MalformedData) as error:
            raise CommandFailed(
                f"{reachable} accepts connections but does not answer as a Kafka broker ({error}); {CHECK_SECURITY}"
            ) from error
        yield cluster
    except OperationFailed as failed:
        raise CommandFailed(worded(failed)) from failed
    except KafkaError as error:
        raise CommandFailed(worded(kafka_failure(error))) from error
    except BrokenPipeError:  # of our output (`| head`): that of a connection is another ConnectionError
        raise
    except (OSError, MalformedData) as error:
        raise CommandFailed(f"the cluster at {broker.bootstrap_servers} stopped answering: {error}") from error
    finally:
        cluster.close()
