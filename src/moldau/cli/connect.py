"""How a command reaches a broker: the address options, librdkafka's clients kept quiet, and failures in plain words.

The client library is imported inside the functions that need it: a `--help` must not wait for it. An address where
nobody listens is said within five seconds, with the reason, before any librdkafka client is made. A broker that takes
connections and does not answer yet may be busy: it is waited for, and that is said.
"""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

import click
from click.shell_completion import CompletionItem

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CONNECT_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 2.5
"""With CONNECT_SECONDS under five: the longest a person waits to learn that nothing answers."""
METADATA_SECONDS: Final = (2.5, 5.0, 12.5)
"""The attempts to learn who is there. They are several for Ctrl-C: librdkafka does not hear it within one."""
ADMIN_SECONDS: Final = 30.0
COMPLETION_SECONDS: Final = 0.8
GONE_AGAIN_SECONDS: Final = 30.0

NEXT_STEPS: Final = {
    "UNKNOWN_TOPIC_OR_PART": "`moldau topic list` shows the topics there are",
    "_UNKNOWN_TOPIC": "`moldau topic list` shows the topics there are",
    "_UNKNOWN_PARTITION": "`moldau topic describe` shows the partitions there are",
    "TOPIC_ALREADY_EXISTS": "--if-not-exists accepts a topic that is there already",
    "INVALID_REPLICATION_FACTOR": "`moldau cluster info` shows the brokers there are",
    "_ALL_BROKERS_DOWN": "check that the broker runs and that -b names it",
    "_TRANSPORT": "check that the broker runs and that -b names it",
    "_TIMED_OUT": "check that the broker runs and that its advertised.listeners can be reached from here",
    "_MSG_TIMED_OUT": "check that the broker runs and that its advertised.listeners can be reached from here",
    "_AUTHENTICATION": "check the credentials given with -X",
    "_UNSUPPORTED_FEATURE": "this broker does not offer it",
    "TOPIC_AUTHORIZATION_FAILED": "ask for an ACL on the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "ask for an ACL on the cluster",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic (`moldau topic alter`)",
}


class PartitionMetadata(Protocol):
    leader: int
    """-1 while there is none."""
    replicas: list[int]
    isrs: list[int]


class TopicMetadata(Protocol):
    topic: str
    partitions: dict[int, PartitionMetadata]


class BrokerMetadata(Protocol):
    id: int
    host: str
    port: int


class ClusterMetadata(Protocol):
    """What confluent_kafka's list_topics() answers, as far as commands look at it."""

    cluster_id: str
    controller_id: int
    brokers: dict[int, BrokerMetadata]
    topics: dict[str, TopicMetadata]


class CommandFailed(click.ClickException):
    """What went wrong and what to do next, in one line."""


@dataclass(frozen=True)
class Broker:
    """An address and the client settings to reach it with; makes librdkafka's clients.

    Clients are Any: the type hints shipped with confluent_kafka contradict what it does in too many places.
    """

    bootstrap_servers: str
    client_config: Mapping[str, str]

    @functools.cached_property
    def admin(self) -> Any:
        """One for the whole command: futures of a client that was dropped never come true."""
        with plain_failures():
            return admin_api().AdminClient(self._config({"topic.metadata.refresh.interval.ms": -1}))

    def consumer(self, config: Mapping[str, Any]) -> Any:
        from moldau.client.confluent import Consumer

        with plain_failures():
            return Consumer(self._config({"error_cb": gone_teller(), **config}))

    def producer(self, config: Mapping[str, Any]) -> Any:
        from moldau.client.confluent import Producer

        with plain_failures():
            return Producer(self._config({"error_cb": gone_teller(), **config}))

    def metadata(self) -> ClusterMetadata:
        """Brokers and topics as the cluster tells them; the one call that finds out whether anybody is there."""
        answering = first_answering(self.bootstrap_servers)
        try:
            with say_when_slow(answering, sum(METADATA_SECONDS)):
                metadata = self._ask_metadata()
        except _kafka_exception() as error:
            reason = error.args[0].str()
            raise CommandFailed(
                f"{answering} accepts connections but does not answer as a Kafka broker ({reason});"
                " check that the port is a broker's and that -X says what it asks of clients (TLS, SASL)"
            ) from error
        self._check_advertised(metadata)
        return metadata

    def _ask_metadata(self) -> ClusterMetadata:
        *attempts, last = METADATA_SECONDS
        for seconds in attempts:
            try:
                return cast(ClusterMetadata, self.admin.list_topics(timeout=seconds))
            except _kafka_exception() as error:
                if error.args[0].name() != "_TIMED_OUT":
                    raise
        return cast(ClusterMetadata, self.admin.list_topics(timeout=last))

    def topic(self, name: str) -> TopicMetadata:
        return existing_topics(self.metadata(), [name])[0]

    def _config(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        quiet = {} if _debugging() else {"log_level": 0}
        return {"bootstrap.servers": self.bootstrap_servers, **quiet, **extra, **self.client_config}

    def _check_advertised(self, metadata: ClusterMetadata) -> None:
        """Clients go on to the addresses that brokers advertise: the classic trap of a broker behind a container."""
        advertised = [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]
        if not advertised or set(advertised) & set(self.bootstrap_servers.split(",")):
            return
        try:
            first_answering(",".join(advertised))
        except CommandFailed as error:
            raise CommandFailed(
                f"{self.bootstrap_servers} answers, but advertises {', '.join(advertised)}, where nobody does;"
                " set advertised.listeners of the broker to an address that clients can reach"
            ) from error


@contextmanager
def say_when_slow(address: str, seconds: float) -> Iterator[None]:
    """Says that an address takes connections and is waited for, if the block takes longer than a person likes."""
    waiting = f"{address} accepts connections but does not answer yet; waiting up to {seconds:.0f} s"
    timer = threading.Timer(SLOW_SECONDS, click.echo, [waiting], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_answering(bootstrap_servers: str) -> str:
    """The first of the addresses to accept a connection; all share CONNECT_SECONDS."""
    deadline = time.monotonic() + CONNECT_SECONDS
    reason = "no address given"
    for address in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        host, port = split_address(address)
        try:
            socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())).close()
            return address
        except TimeoutError:
            reason = "no answer in time"
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
    raise CommandFailed(
        f"no broker answers at {bootstrap_servers} ({reason}); start one with `moldau start`,"
        " or name another with -b HOST:PORT"
    )


def split_address(address: str) -> tuple[str, int]:
    """HOST, HOST:PORT or [IPV6]:PORT, a protocol in front allowed as librdkafka allows it."""
    plain = address.rpartition("://")[2]
    host, colon, port = plain.rpartition(":")
    if not colon or plain.endswith("]"):
        host, port = plain, "9092"
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise CommandFailed(f"{address} is not an address; give -b HOST:PORT, such as -b {DEFAULT_BOOTSTRAP}")
    return host.strip("[]"), int(port)


def existing_topics(metadata: ClusterMetadata, names: Iterable[str]) -> list[TopicMetadata]:
    """The topics of these names; says which of them do not exist. Asking by name might create them, so nobody does."""
    names = list(names)
    missing = [name for name in names if name not in metadata.topics]
    if missing:
        raise CommandFailed(f"no topic {', '.join(missing)}; {NEXT_STEPS['_UNKNOWN_TOPIC']}")
    return [metadata.topics[name] for name in names]


def is_internal(topic: str) -> bool:
    return topic.startswith("__")


def failure(error: Any, subject: str = "") -> CommandFailed:
    """A KafkaError, of librdkafka or of the broker, as one line."""
    said = error.str()
    step = NEXT_STEPS.get(error.name())
    return CommandFailed((f"{subject}: " if subject else "") + said.rstrip(".") + (f"; {step}" if step else ""))


@contextmanager
def plain_failures(subject: str = "") -> Iterator[None]:
    """Turns librdkafka's exceptions inside the block into CommandFailed."""
    try:
        yield
    except _kafka_exception() as error:
        raise failure(error.args[0], subject) from error


def outcome(future: Future[T], subject: str) -> T:
    """The answer of an admin call, or its failure in one line."""
    with plain_failures(subject):
        try:
            return future.result(ADMIN_SECONDS)
        except TimeoutError as error:
            said = f"no answer within {ADMIN_SECONDS:.0f} s; `moldau cluster info` shows who is there"
            raise CommandFailed(f"{subject}: {said}") from error


def key_values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """The callback of a repeatable K=V option."""
    pairs = [item.partition("=") for item in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"{key!r} is not KEY=VALUE", ctx=ctx, param=param)
    return {key: value for key, _, value in pairs}


def broker_options(command: Callable[P, T]) -> Callable[..., T]:
    """Adds -b and -X to a command, which gets them as `broker`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        envvar="MOLDAU_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT[,...]",
        help=f"Where the cluster is: $MOLDAU_BOOTSTRAP, or {DEFAULT_BOOTSTRAP}.",
    )
    @click.option(
        "-X",
        "client_config",
        multiple=True,
        metavar="K=V",
        callback=key_values,
        help="A librdkafka property, such as -X security.protocol=SASL_SSL. Repeatable.",
    )
    @functools.wraps(command)
    def with_broker(*args: Any, bootstrap_server: str, client_config: dict[str, str], **options: Any) -> T:
        return command(*args, broker=Broker(bootstrap_server, client_config), **options)  # type: ignore[arg-type]

    return with_broker


def broker_so_far(ctx: click.Context) -> Broker:
    """The broker of a command line that is still being written, for the shell to ask for names."""
    return Broker(ctx.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP, ctx.params.get("client_config") or {})


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topic names for the shell: quick, and silent when nobody answers."""
    broker = broker_so_far(ctx)
    with suppress(CommandFailed, _kafka_exception()):
        first_answering(broker.bootstrap_servers)
        known = broker.admin.list_topics(timeout=COMPLETION_SECONDS).topics
        wanted = incomplete.startswith("_")
        return [
            CompletionItem(name)
            for name in sorted(known)
            if name.startswith(incomplete) and (wanted or not is_internal(name))
        ]
    return []


def gone_teller() -> Callable[[Any], None]:
    """A callback for commands that run on: librdkafka keeps trying, and who watches should know why nothing comes.

    librdkafka reports at every vain attempt; said is the first, and then one every GONE_AGAIN_SECONDS.
    """
    from moldau.client.confluent import KafkaError

    said_last = -GONE_AGAIN_SECONDS

    def tell(error: Any) -> None:
        nonlocal said_last
        now = time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN and now - said_last >= GONE_AGAIN_SECONDS:
            said_last = now
            click.echo("moldau: no broker answers any more; trying again until one does", err=True)

    return tell


def admin_api() -> Any:
    """The module with the names of confluent_kafka.admin, imported when it is first needed."""
    from moldau.client import confluent

    return confluent


def _kafka_exception() -> type[Exception]:
    from moldau.client.confluent import KafkaException

    return KafkaException


def _debugging() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("debug"))
