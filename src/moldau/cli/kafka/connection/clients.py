"""Creates librdkafka's producers and consumers for the tools, with Java's property names, and connections of our own
(`cluster`, `channel`) for all other requests. Turns the errors of both into one line.

An address that does not answer is reported within seconds, before any client is created. librdkafka's own log lines
are shown with MOLDAU_DEBUG=1 only. Nothing here depends on what a tool does.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.host_names import is_host_name
from moldau.cli.kafka.tool import ToolFailed, debugging, print_to_stderr

if TYPE_CHECKING:
    from moldau.client.channel import Channel
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import Consumer, Producer
    from moldau.client.confluent_share import ShareConsumer

REACH_SECONDS: Final = 3.0
"""How long to retry an address that refuses connections: enough for a broker that is starting, not too long if the
address is mistyped."""
CONNECT_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.1
LOGIN_RETRY_SECONDS: Final = 0.5
ADMIN_SECONDS: Final = 10.0
TEMPORARY_GROUP: Final = "console-consumer-"
"""The prefix of the group that a console consumer joins without --group."""
NO_ANSWER: Final = frozenset({"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"})
OTHER_TYPE: Final = {
    "Inconsistent group protocol": "its members use another protocol or assignor, or it is no consumer group",
    "The group id does not exist": "there is a group of this name, but of another type",
}
"""What librdkafka's words mean when a client joins a group: it leaves out the broker's message, which says more."""
NOT_IN_TIME: Final = "the cluster did not answer in time; check advertised.listeners of the brokers"

C = TypeVar("C")
_UNREACHABLE = re.compile(r"Connect to \S+ failed|Failed to resolve")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]+)"')


def producer(bootstrap_servers: str, java_config: Mapping[str, str], tool_config: Mapping[str, Any]) -> Producer:
    from moldau.client.confluent import Producer

    return _create(Producer, bootstrap_servers, java_config, tool_config)


def consumer(bootstrap_servers: str, java_config: Mapping[str, str], tool_config: Mapping[str, Any]) -> Consumer:
    from moldau.client.confluent import Consumer

    return _create(Consumer, bootstrap_servers, java_config, tool_config)


def share_consumer(
    bootstrap_servers: str, java_config: Mapping[str, str], tool_config: Mapping[str, Any]
) -> ShareConsumer:
    """Create a member of a share group; fail if the broker has none, instead of waiting for ever."""
    try:
        from moldau.client.confluent_share import ShareConsumer
    except ImportError as error:
        raise ToolFailed(
            "This tool reads with librdkafka's share consumer, which this Python lacks; install confluent-kafka 2.15 or"
            " newer (it has no wheel for Python 3.15 yet)."
        ) from error
    from moldau.wire.apis import ApiKey

    with channel(bootstrap_servers, java_config) as open_channel:
        if not open_channel.offers(ApiKey.SHARE_FETCH):
            raise ToolFailed("This broker has no share groups; `kafka-features.sh` shows whether share.version is 1.")
    # Other consumers of librdkafka do not have this property, and it is left out of theirs.
    records_max = {name: value for name, value in java_config.items() if name == "max.poll.records"}
    return _create(ShareConsumer, bootstrap_servers, java_config, {**tool_config, **records_max})


def require_librdkafka() -> None:
    """Fail without librdkafka: figures measured with our stand-in would say nothing about the broker."""
    from moldau.client.confluent import IS_STAND_IN

    if IS_STAND_IN:
        raise ToolFailed(
            "This tool measures with librdkafka, and confluent-kafka is not installed (it has no wheel for Python 3.15"
            " yet); run it on Python 3.14 or older."
        )


def _create(
    client_class: Callable[[dict[str, Any]], C],
    bootstrap_servers: str,
    java_config: Mapping[str, str],
    tool_config: Mapping[str, Any],
) -> C:
    """Create a client. `java_config` has the user's properties, with Java's names; they override those of the tool.

    A property that librdkafka does not have is reported and left out, because the file may be one for Java's clients.
    """
    from moldau.client.confluent import KafkaException, without_log
    from moldau.client.properties import for_librdkafka

    require_accepted(bootstrap_servers, java_config)
    config = {
        "error_cb": ErrorLog().report,
        **({} if debugging() else without_log()),
        **tool_config,
        **for_librdkafka(java_config),
        "bootstrap.servers": bootstrap_servers,
    }
    while True:
        try:
            return client_class(dict(config))
        except KafkaException as error:
            message = error.args[0].str()
            unknown = _UNKNOWN.match(message)
            if unknown is None or unknown[1] not in config:
                raise ToolFailed(f"{message}; correct this client property") from error
            print_to_stderr(f"WARNING: the client property {unknown[1]} has no meaning here and is ignored.")
            del config[unknown[1]]
        except ValueError as error:  # properties that a share consumer does not have
            message = str(error).partition(": ")[2] or str(error)
            raise ToolFailed(f"{message}; leave this client property out") from error


def require_accepted(bootstrap_servers: str, java_config: Mapping[str, str]) -> None:
    """Fail if the broker refuses the client: a wrong password, a certificate that is not trusted, another protocol.
    librdkafka would try again for ever. Do nothing if the broker is too busy to answer soon."""
    from moldau.client.refusals import refusal

    host, port = first_reachable(bootstrap_servers)
    if refusal(f"{host}:{port}", java_config) is None:
        return
    time.sleep(LOGIN_RETRY_SECONDS)  # a broker that starts or stops also closes connections
    host, port = first_reachable(bootstrap_servers)
    if (reason := refusal(f"{host}:{port}", java_config)) is not None:
        raise ToolFailed(
            f"{host}:{port} refuses this client: {reason.rstrip('.')}; check the port, and the TLS and SASL settings in"
            " --command-config"
        )


class ErrorLog:
    """Reports librdkafka's errors while it retries, each once: unreachable addresses, failed authentication."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, error: Any) -> None:
        message = str(error.str())
        if error.name() == "_ALL_BROKERS_DOWN":
            self._report_once("down", "No broker answers any more; still trying")
        elif unreachable := _UNREACHABLE.search(message):
            # librdkafka retries the same address under several names.
            self._report_once(unreachable[0], message)
        elif error.name() in ("_AUTHENTICATION", "_SSL"):
            self._report_once(error.name(), message)

    def _report_once(self, key: str, line: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            print_to_stderr(f"WARN {line}")


def addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Parse `HOST:PORT,HOST:PORT`; an IPv6 host is in brackets."""
    parsed = []
    for address in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        match = re.fullmatch(r"(?:\w+://)?(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/]+)):(\d{1,5})", address)
        host, port = (match[1] or match[2], int(match[3])) if match else ("", 0)
        if not is_host_name(host) or not 0 < port < 65536:
            raise ToolFailed(f"Invalid url in bootstrap.servers: {address} (write HOST:PORT, as localhost:9092)")
        parsed.append((host, port))
    if not parsed:
        raise ToolFailed("No bootstrap urls given in bootstrap.servers (write HOST:PORT, as localhost:9092)")
    return parsed


def first_reachable(bootstrap_servers: str) -> tuple[str, int]:
    """Return the first address that accepts a connection; fail if none does."""
    deadline = time.monotonic() + REACH_SECONDS
    while True:
        for host, port in addresses(bootstrap_servers):
            try:
                socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
                return host, port
            except OSError as error:
                reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
        if time.monotonic() > deadline:
            break
        time.sleep(RETRY_SECONDS)
    raise ToolFailed(
        f"No broker answers at {bootstrap_servers} ({reason}). Start one with `moldau start`,"
        " or name another with --bootstrap-server HOST:PORT."
    )


def cluster(bootstrap_servers: str, java_config: Mapping[str, str], timeout_seconds: float = ADMIN_SECONDS) -> Cluster:
    """Return connections to all brokers of a cluster that is reachable."""
    from moldau.client.cluster import Cluster

    first_reachable(bootstrap_servers)
    normalized = ",".join(f"{host}:{port}" for host, port in addresses(bootstrap_servers))
    return Cluster(normalized, java_config, timeout_seconds, None, min(CONNECT_SECONDS, timeout_seconds))


def channel(bootstrap_servers: str, java_config: Mapping[str, str]) -> Channel:
    """Return a connection to the first bootstrap broker that accepts one."""
    return channel_to(*first_reachable(bootstrap_servers), java_config)


def channel_to(host: str, port: int, java_config: Mapping[str, str]) -> Channel:
    from moldau.client.channel import Channel
    from moldau.client.properties import security

    try:
        return Channel(host, port, security(java_config))
    except (OSError, MalformedData, KafkaError) as error:
        raise ToolFailed(f"{host}:{port} does not answer as a Kafka broker: {error}") from error


class ClientError(ToolFailed):
    """An error of librdkafka, its own or the broker's. `code` is librdkafka's name of it."""

    def __init__(self, error: Any) -> None:
        super().__init__(describe_error(error))
        self.code: str = error.name()


@contextmanager
def client_errors() -> Iterator[None]:
    """Raise an exception of librdkafka as ClientError."""
    from moldau.client.confluent import KafkaException

    try:
        yield
    except KafkaException as error:
        raise ClientError(error.args[0]) from error


def refused_rights(error_name: str, topic: str | None, group: str | None) -> ToolFailed | None:
    """Return the failure if the error says that the client lacks a right: trying again would not help. None if not."""
    match error_name:
        case "TOPIC_AUTHORIZATION_FAILED":
            what, need = f"topics: [{topic}]" if topic else "topics", f"READ on the topic {topic or ''}".rstrip()
        case "GROUP_AUTHORIZATION_FAILED":
            what, need = f"group: {group}" if group else "the group", "READ on it"
            if group and group.startswith(TEMPORARY_GROUP):
                need += f" (without --group its name is {TEMPORARY_GROUP}N, so allow that prefix)"
        case "CLUSTER_AUTHORIZATION_FAILED":
            what, need = "the cluster", "an ACL on it"
        case _:
            return None
    return ToolFailed(f"Not authorized to access {what}; this user needs {need}")


def describe_error(error: Any) -> str:
    """Return a KafkaError of librdkafka as one line, with what to do if no broker answered or its group is another."""
    message = str(error.str()).removeprefix("Broker: ")
    if error.name() in NO_ANSWER:
        return f"{message}: {NOT_IN_TIME}"
    for words, meaning in OTHER_TYPE.items():
        if message.endswith(words):
            return f"{message}: {meaning}; `kafka-groups.sh --list` shows the types"
    return message


def require_groups(bootstrap_servers: str, java_config: Mapping[str, str]) -> None:
    """Fail if the broker has no consumer groups, instead of waiting for a coordinator forever."""
    from moldau.wire.apis import ApiKey

    with channel(bootstrap_servers, java_config) as open_channel:
        if not open_channel.offers(ApiKey.JOIN_GROUP):
            raise ToolFailed("This broker has no consumer groups; leave --group out to read without one.")


class ResponseError(ToolFailed):
    """A broker's error response on a connection of our own."""


@contextmanager
def response_errors() -> Iterator[None]:
    """Raise an error response as ResponseError."""
    try:
        yield
    except KafkaError as error:
        raise ResponseError(error.message or error.code.name) from error


def raise_for_error(error_code: int, message: str | None) -> None:
    """Raise ResponseError if a response has an error code."""
    if error_code:
        raise ResponseError(message or ErrorCode(error_code).name)
