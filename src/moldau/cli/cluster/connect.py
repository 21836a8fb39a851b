"""How a command connects to a whole cluster over our own channel, and how an error response becomes one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.cli.connect import (
    ANSWER_SECONDS,
    CHECK_SECURITY,
    Broker,
    CommandFailed,
    NotFound,
    say_when_slow,
)
from moldau.client.cluster import Cluster

D = TypeVar("D")
Described = Mapping[str, D | KafkaError]
COORDINATOR_TIMEOUT_MS: Final = 10_000
"""How long to wait for a coordinator that is moving or loading."""
HINT_GROUPS: Final = "`moldau group list` shows the groups there are"
HINT_TRANSACTIONS: Final = "`moldau transaction list` shows the transactional ids there are"
HINT_TOPICS: Final = "`moldau topic list` shows the topics there are"
NEXT_STEPS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: HINT_GROUPS,
    ErrorCode.NON_EMPTY_GROUP: "`moldau group describe` shows its members; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group got members meanwhile: stop them first",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "its coordinator is not available; try again in a moment",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask for an ACL on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask for an ACL on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask for an ACL on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "ask for an ACL on the transactional id",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: HINT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: HINT_TOPICS,
    ErrorCode.SECURITY_DISABLED: (
        "everybody may do everything there; set authorizer.class.name and super.users on all nodes (docs/security.md)"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "this broker does not offer it",
}


@contextmanager
def answering_cluster(broker: Broker, answer_seconds: float = ANSWER_SECONDS) -> Iterator[Cluster]:
    """Yield a cluster that answers.

    Inside the block, turn error codes, lost connections and malformed responses into CommandFailed, which is printed as
    one line.
    """
    cluster = broker.cluster(answer_seconds)
    try:
        try:
            with say_when_slow(cluster.bootstrap, answer_seconds):
                cluster.nodes()
        except (OSError, MalformedData) as error:
            raise CommandFailed(
                f"{cluster.bootstrap} accepts connections but does not answer as a Kafka broker ({error});"
                f" {CHECK_SECURITY}"
            ) from error
        yield cluster
    except KafkaError as error:
        raise kafka_failure(error) from error
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
        raise kafka_failure(error, subject, steps) from error
    except (OSError, MalformedData) as error:
        raise CommandFailed(f"{subject}: no answer: {error}" if subject else f"no answer: {error}") from error


def kafka_failure(error: KafkaError, subject: str = "", steps: Mapping[ErrorCode, str] | None = None) -> CommandFailed:
    """Return the error as one line with the next step."""
    message = error.message or error.code.name.lower().replace("_", " ")
    step = (steps or {}).get(error.code) or NEXT_STEPS.get(error.code)
    return CommandFailed((f"{subject}: " if subject else "") + message.rstrip(".") + (f"; {step}" if step else ""))


def describe_existing(
    names: Iterable[str],
    describe: Callable[[list[str]], Described[D]],
    is_unknown: Callable[[D | KafkaError], bool],
    *,
    kind: str,
    next_step: str,
) -> list[D]:
    """Return the descriptions of these names, in their order; fail with the names that do not exist."""
    names = list(dict.fromkeys(names))
    described = describe(names)
    unknown = [name for name in names if is_unknown(described[name])]
    if unknown:
        raise NotFound(f"no {kind} {', '.join(unknown)}; {next_step}")
    existing_values = []
    for name in names:
        description = described[name]
        if isinstance(description, KafkaError):
            raise kafka_failure(description, f"{kind} {name}") from description
        existing_values.append(description)
    return existing_values
