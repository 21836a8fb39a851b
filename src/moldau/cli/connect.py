"""How a command connects to a broker: the address options, our own admin client, quiet librdkafka clients, and failures
in plain words.

The client library is imported inside the functions that need it, so that `--help` is fast. If nobody listens at the
address, the command fails within five seconds, with the reason, before it creates any librdkafka client. A broker that
accepts connections but does not answer yet may be busy: the command prints that it waits, and waits.
"""

from __future__ import annotations

import functools
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from moldau.base.errors import UnusableProperty
from moldau.base.host_names import is_host_name
from moldau.base.listeners import host_and_port, start_command

if TYPE_CHECKING:
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.client.admin.cluster_values import ClusterMetadata, TopicReplicas
    from moldau.client.cluster import Cluster

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
COMMAND_CONFIG_VARIABLE: Final = "MOLDAU_COMMAND_CONFIG"
CONNECT_SECONDS: Final = 2.0
ATTEMPT_SECONDS_MIN: Final = 0.1
"""What an address gets after the earlier ones used up all the time."""
SLOW_SECONDS: Final = 2.5
"""After this long the command prints that it waits. CONNECT_SECONDS + SLOW_SECONDS < 5: no command is silent for
longer."""
ANSWER_SECONDS: Final = 20.0
ADMIN_MS: Final = 15_000
"""How long temporary errors of admin requests are retried."""
CHANGE_SECONDS: Final = 35.0
"""How long the response to a change of topics is awaited: one with thousands of partitions takes its time."""
METADATA_RETRY_MS: Final = 500
"""A broker that starts or stops also closes connections."""
COMPLETION_SECONDS: Final = 0.8
"""How long shell completion waits for a broker: a person waits for it after each Tab."""
BROKERS_DOWN_EVERY_SECONDS: Final = 30.0

CHECK_SECURITY: Final = (
    "check that the port is a broker's and that --command-config or -X has the security settings it requires"
    " (TLS, SASL)"
)
TOPICS_STEP: Final = "`moldau topic list` shows the topics there are"
NEXT_STEPS: Final = {
    "UNKNOWN_TOPIC_OR_PART": TOPICS_STEP,
    "_UNKNOWN_TOPIC": TOPICS_STEP,
    "_UNKNOWN_PARTITION": "`moldau topic describe` shows the partitions there are",
    "_ALL_BROKERS_DOWN": "check that the broker runs and that -b names it",
    "_TRANSPORT": "check that the broker runs and that -b names it",
    "_TIMED_OUT": "check that the broker runs and that its advertised.listeners can be reached from here",
    "_MSG_TIMED_OUT": "check that the broker runs and that its advertised.listeners can be reached from here",
    "_AUTHENTICATION": "check the credentials in --command-config or -X",
    "_UNSUPPORTED_FEATURE": "this broker does not offer it",
    "TOPIC_AUTHORIZATION_FAILED": "ask for an ACL on the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "ask for an ACL on the cluster",
    "GROUP_AUTHORIZATION_FAILED": "ask for an ACL on the group",
    "MSG_SIZE_TOO_LARGE": "raise max.message.bytes of the topic (`moldau topic alter`)",
}


class CommandFailed(click.ClickException):
    """What went wrong and what to do next, in one line."""


@dataclass(frozen=True)
class Broker:
    """An address and the client settings to reach it with. The admin client is our own; librdkafka's clients, which
    produce and consume, are Any: the type hints shipped with confluent_kafka contradict what it does in too many
    places."""

    bootstrap_servers: str
    client_config: Mapping[str, str]

    @functools.cached_property
    def admin(self) -> ClusterAdmin:
        """One client for the whole command, which closes it at its end."""
        from moldau.client.admin.cluster_admin import ClusterAdmin
        from moldau.client.properties import OWN_PROPERTIES

        cluster = self.cluster(ANSWER_SECONDS)
        if not self.client_config.keys() <= OWN_PROPERTIES:
            self.producer({})  # librdkafka refuses a name or a value that is wrong; our client ignores it
        return ClusterAdmin(cluster, ADMIN_MS, CHANGE_SECONDS)

    def cluster(self, answer_seconds: float) -> Cluster:
        """Return connections of our own, which wait this long for an answer; the caller closes them."""
        from moldau.client.cluster import Cluster

        connect_seconds = min(CONNECT_SECONDS, answer_seconds)
        reachable = first_reachable(self.bootstrap_servers, connect_seconds)
        # Our client takes only HOST:PORT; users may leave the port out, or write a protocol in front.
        others = [each.strip() for each in self.bootstrap_servers.split(",") if each.strip()]
        addresses = dict.fromkeys(host_and_port(*split_address(each)) for each in (reachable, *others))
        try:
            return Cluster(",".join(addresses), self.client_config, answer_seconds, None, connect_seconds)
        except UnusableProperty as error:
            raise CommandFailed(str(error)) from error

    def close(self) -> None:
        if "admin" in vars(self):
            self.admin.cluster.close()

    def consumer(self, config: Mapping[str, Any]) -> Any:
        from moldau.client.confluent import Consumer

        with plain_failures():
            return Consumer(self._config({"error_cb": brokers_down_callback(), **config}))

    def producer(self, config: Mapping[str, Any]) -> Any:
        from moldau.client.confluent import Producer

        with plain_failures():
            return Producer(self._config({"error_cb": brokers_down_callback(), **config}))

    def metadata(self) -> ClusterMetadata:
        """Return the brokers and topics of the cluster, or fail if nobody answers; commands call this first."""
        from moldau.base.errors import KafkaError, MalformedData
        from moldau.client.admin.cluster_admin import cluster_metadata

        reachable = first_reachable(self.bootstrap_servers)
        cluster = self.admin.cluster
        try:
            with say_when_slow(reachable, ANSWER_SECONDS):
                metadata = cluster.retry(lambda: cluster_metadata(cluster.ask_any), METADATA_RETRY_MS)
        except (OSError, MalformedData, KafkaError) as error:
            reason = str(error) if isinstance(error, TimeoutError) else self._refusal(reachable) or str(error)
            raise CommandFailed(
                f"{reachable} accepts connections but does not answer as a Kafka broker ({reason}); {CHECK_SECURITY}"
            ) from error
        self._check_advertised(metadata)
        return metadata

    def _refusal(self, reachable: str) -> str | None:
        from moldau.client.refusals import refusal

        return refusal(host_and_port(*split_address(reachable)), self.client_config)

    def topic(self, name: str) -> TopicReplicas:
        return existing_topics(self.metadata(), [name])[0]

    def _config(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        from moldau.client.confluent import without_log
        from moldau.client.properties import with_tokens

        quiet = {} if _debugging() else without_log()
        try:
            client_config = with_tokens(self.client_config)
        except UnusableProperty as error:
            raise CommandFailed(str(error)) from error
        return {"bootstrap.servers": self.bootstrap_servers, **quiet, **extra, **client_config}

    def _check_advertised(self, metadata: ClusterMetadata) -> None:
        """Check that one advertised address answers: clients connect to those, the classic trap with containers."""
        advertised = [f"{broker.host}:{broker.port}" for broker in metadata.nodes.values()]
        if not advertised or set(advertised) & set(self.bootstrap_servers.split(",")):
            return
        try:
            first_reachable(",".join(advertised))
        except CommandFailed as error:
            raise CommandFailed(
                f"{self.bootstrap_servers} answers, but advertises {', '.join(advertised)}, where no broker answers;"
                " set advertised.listeners of the broker to an address that clients can reach"
            ) from error


@contextmanager
def say_when_slow(address: str, seconds: float) -> Iterator[None]:
    """Print that the address accepts connections and that we wait, if the block takes longer than SLOW_SECONDS."""
    waiting = f"{address} accepts connections but does not answer yet; waiting up to {seconds:.0f} s"
    timer = threading.Timer(SLOW_SECONDS, click.echo, [waiting], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_reachable(bootstrap_servers: str, seconds: float = CONNECT_SECONDS) -> str:
    """Return the first of the addresses that accepts a connection; all attempts share `seconds`."""
    deadline = time.monotonic() + seconds
    reason = "no address given"
    for address in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        host, port = split_address(address)
        try:
            _try_connecting(host, port, deadline)
            return address
        except TimeoutError:
            reason = "no answer in time"
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
    raise CommandFailed(
        f"no broker answers at {bootstrap_servers} ({reason}); start one with `{start_command(bootstrap_servers)}`,"
        " or name another with -b HOST:PORT"
    )


def _try_connecting(host: str, port: int, deadline: float) -> None:
    """Connect once, or raise OSError. socket.create_connection would allow the whole time for each IP address."""
    last_error = OSError(f"{host} has no address")
    for family, kind, protocol, _, ip_address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(max(ATTEMPT_SECONDS_MIN, deadline - time.monotonic()))
                connection.connect(ip_address)
                return
        except OSError as error:
            last_error = error
    raise last_error


def split_address(address: str) -> tuple[str, int]:
    """Split HOST, HOST:PORT or [IPV6]:PORT; like librdkafka, allow a protocol in front (`PLAINTEXT://`)."""
    plain = address.rpartition("://")[2]
    host, colon, port = plain.rpartition(":")
    if not colon or plain.endswith("]"):
        host, port = plain, "9092"
    host = host.strip("[]")
    if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536 or not is_host_name(host):
        raise CommandFailed(f"{address} is not an address; give -b HOST:PORT, such as -b {DEFAULT_BOOTSTRAP}")
    return host, int(port)


def existing_topics(metadata: ClusterMetadata, names: Iterable[str]) -> list[TopicReplicas]:
    """Return the topics with these names, or fail with those that do not exist.

    The names are looked up in the metadata of all topics: a request by name might create a topic.
    """
    names = list(names)
    missing = [name for name in names if name not in metadata.topics]
    if missing:
        raise CommandFailed(f"no topic {', '.join(missing)}; {TOPICS_STEP}")
    return [metadata.topics[name] for name in names]


def is_internal(topic: str) -> bool:
    """Whether the name begins with `__`, which commands take for internal."""
    return topic.startswith("__")


def failure(error: Any, subject: str = "") -> CommandFailed:
    """Return a KafkaError, of librdkafka or of the broker, as one line with the next step."""
    message = error.str()
    step = NEXT_STEPS.get(error.name())
    return CommandFailed((f"{subject}: " if subject else "") + message.rstrip(".") + (f"; {step}" if step else ""))


@contextmanager
def plain_failures(subject: str = "") -> Iterator[None]:
    """Turn librdkafka's exceptions inside the block into CommandFailed."""
    try:
        yield
    except _kafka_exception() as error:
        raise failure(error.args[0], subject) from error


def key_values_callback(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """The callback of a repeatable K=V option."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise click.BadParameter(f"{key!r} is not KEY=VALUE", ctx=ctx, param=param)
    return {key: value for key, _, value in pairs}


def broker_options(command: Callable[P, T]) -> Callable[..., T]:
    """Add -b, --command-config and -X to a command, which gets them as its argument `broker`."""

    @click.option(
        "-b",
        "--bootstrap-server",
        envvar="MOLDAU_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help=f"Where the cluster is: $MOLDAU_BOOTSTRAP, bootstrap.servers of --command-config, or {DEFAULT_BOOTSTRAP}.",
    )
    @click.option(
        "--command-config",
        envvar=COMMAND_CONFIG_VARIABLE,
        metavar="FILE",
        help=f"A file of client properties, with the names of Java's clients: ${COMMAND_CONFIG_VARIABLE}.",
    )
    @click.option(
        "-X",
        "client_config",
        multiple=True,
        metavar="K=V",
        callback=key_values_callback,
        help="A librdkafka property, such as -X security.protocol=SASL_SSL. Repeatable.",
    )
    @functools.wraps(command)
    def with_broker(
        *args: Any,
        bootstrap_server: str | None,
        command_config: str | None,
        client_config: dict[str, str],
        **options: Any,
    ) -> T:
        broker = chosen_broker(bootstrap_server, command_config, client_config)
        try:
            return command(*args, broker=broker, **options)  # type: ignore[arg-type]
        finally:
            broker.close()

    return with_broker


def chosen_broker(bootstrap_server: str | None, command_config: str | None, client_config: Mapping[str, str]) -> Broker:
    """Return the broker of the options. -X wins over the file; -b or $MOLDAU_BOOTSTRAP wins over bootstrap.servers in
    either."""
    properties = dict(client_config)
    if command_config is not None:
        properties = {**_read_command_config(command_config), **properties}
    from_properties = properties.pop("bootstrap.servers", None)
    return Broker(bootstrap_server or from_properties or DEFAULT_BOOTSTRAP, properties)


def _read_command_config(path: str) -> dict[str, str]:
    """Return the properties of the file with librdkafka's names."""
    from moldau.cli.kafka.connection.properties import load
    from moldau.cli.kafka.tool import ToolFailed
    from moldau.client.properties import for_librdkafka

    try:
        return for_librdkafka(load(path))
    except ToolFailed as error:
        raise CommandFailed(f"--command-config {error}") from error
    except UnusableProperty as error:
        raise CommandFailed(f"--command-config {path}: {error}") from error


def completion_broker(ctx: click.Context) -> Broker:
    """Return the broker named on an unfinished command line, for shell completion."""
    params = ctx.params
    return chosen_broker(
        params.get("bootstrap_server"), params.get("command_config"), params.get("client_config") or {}
    )


def brokers_down_callback() -> Callable[[Any], None]:
    """Return an error callback that prints that no broker answers, for commands that keep running.

    librdkafka reports every failed attempt; this prints the first, and then one every BROKERS_DOWN_EVERY_SECONDS.
    """
    from moldau.client.confluent import KafkaError

    last_printed = -BROKERS_DOWN_EVERY_SECONDS

    def print_error(error: Any) -> None:
        nonlocal last_printed
        now = time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN and now - last_printed >= BROKERS_DOWN_EVERY_SECONDS:
            last_printed = now
            click.echo("moldau: no broker answers any more; retrying until one does", err=True)

    return print_error


def _kafka_exception() -> type[Exception]:
    from moldau.client.confluent import KafkaException

    return KafkaException


def _debugging() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("debug"))
