"""How a command connects to a whole cluster over our own channel, and how an error response becomes one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.cli.connect import (
    ANSWER_SECONDS,
    CHECK_SECURITY,
    Broker,
    CommandFailed,
    say_when_slow,
)
from moldau.cli.next_steps import worded
from moldau.client.cluster import Cluster
from moldau.operations.failures import OperationFailed, kafka_failure

COORDINATOR_TIMEOUT_MS: Final = 10_000
"""How long to wait for a coordinator that is moving or loading."""


@contextmanager
def answering_cluster(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[Cluster]:
    """Yield a cluster that answers.

    Inside the block, turn failures of operations, error codes, lost connections and malformed responses into
    CommandFailed, which is printed as one line.
    """
    cluster = broker.cluster(answer_seconds)
    reachable = cluster.bootstrap.partition(",")[0]
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


@contextmanager
def admin_failures(subject: str = "", steps: Mapping[ErrorCode, str] | None = None) -> Iterator[None]:
    """Turn an error response, a lost connection or a malformed response into CommandFailed; `steps` are next steps of
    this command alone."""
    try:
        yield
    except KafkaError as error:
        raise command_failure(error, subject, steps) from error
    except (OSError, MalformedData) as error:
        raise CommandFailed(f"{subject}: no answer: {error}" if subject else f"no answer: {error}") from error


def command_failure(
    error: KafkaError, subject: str = "", steps: Mapping[ErrorCode, str] | None = None
) -> CommandFailed:
    """Return the error as one line with the next step."""
    failed = kafka_failure(error, subject)
    step = (steps or {}).get(error.code)
    return CommandFailed(f"{failed}; {step}" if step else worded(failed))
