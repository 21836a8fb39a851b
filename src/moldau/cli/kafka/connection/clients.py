"""Makes librdkafka's clients for the tools: reachable first, quiet, with Java's property names understood.

An address that does not answer is said within seconds, before any client is made. librdkafka's own log lines are not
shown; with MOLDAU_DEBUG=1 they are. No tool's meaning may enter.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from moldau.cli.kafka.tool import ToolFailed, complain, debugging

if TYPE_CHECKING:
    from concurrent.futures import Future

    from moldau.client.channel import Channel
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import AdminClient, ClusterMetadata, Consumer, Producer

REACH_SECONDS: Final = 3.0
"""How long an address that refuses is tried again: a broker started a moment ago is forgiven, a typo is told soon."""
CONNECT_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.1
ADMIN_SECONDS: Final = 10.0
NO_ANSWER: Final = frozenset({"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"})

C = TypeVar("C")
T = TypeVar("T")
_UNREACHABLE = re.compile(r"Connect to \S+ failed|Failed to resolve")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]+)"')


def admin(bootstrap_servers: str, java_config: Mapping[str, str]) -> AdminClient:
    from moldau.client.confluent import AdminClient

    # The periodic refresh would ask for nothing that a tool of one call can use.
    return _made(AdminClient, bootstrap_servers, java_config, {"topic.metadata.refresh.interval.ms": -1})


def producer(bootstrap_servers: str, java_config: Mapping[str, str], own: Mapping[str, Any]) -> Producer:
    from moldau.client.confluent import Producer

    return _made(Producer, bootstrap_servers, java_config, own)


def consumer(bootstrap_servers: str, java_config: Mapping[str, str], own: Mapping[str, Any]) -> Consumer:
    from moldau.client.confluent import Consumer

    return _made(Consumer, bootstrap_servers, java_config, own)


def require_librdkafka() -> None:
    """For tools that measure it: figures of our stand-in would say nothing of the broker."""
    from moldau.client.confluent import IS_STAND_IN

    if IS_STAND_IN:
        raise ToolFailed(
            "This tool measures with librdkafka, and confluent-kafka is not installed (it has no wheel for Python 3.15"
            " yet); run it on Python 3.14 or older."
        )


def _made(
    kind: Callable[[dict[str, Any]], C], bootstrap_servers: str, java_config: Mapping[str, str], own: Mapping[str, Any]
) -> C:
    """A client. `own` is the tool's, in librdkafka's words; the user's properties stand above it."""
    from moldau.client.confluent import KafkaException
    from moldau.client.properties import for_librdkafka

    reach(bootstrap_servers)
    quiet = {"error_cb": Troubles().told} if debugging() else {"error_cb": Troubles().told, "log_level": 0}
    config = {**quiet, **own, **for_librdkafka(java_config), "bootstrap.servers": bootstrap_servers}
    while True:
        try:
            return kind(dict(config))
        except KafkaException as error:
            said = error.args[0].str()
            unknown = _UNKNOWN.match(said)
            if unknown is None or unknown[1] not in config:
                raise ToolFailed(f"{said}; mend the property given") from error
            complain(f"WARNING: the client property {unknown[1]} means nothing here and is left out.")
            del config[unknown[1]]


class Troubles:
    """What librdkafka runs into while it goes on trying, each told once: where nobody answers, who is refused."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def told(self, error: Any) -> None:
        said = str(error.str())
        if error.name() == "_ALL_BROKERS_DOWN":
            self._tell("down", "No broker answers any more; still trying")
        elif unreachable := _UNREACHABLE.search(said):
            # The same address is tried again and again, under several names.
            self._tell(unreachable[0], said)
        elif error.name() in ("_AUTHENTICATION", "_SSL"):
            self._tell(error.name(), said)

    def _tell(self, trouble: str, line: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            complain(f"WARN {line}")


def addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    """`HOST:PORT,HOST:PORT`, an IPv6 host in brackets."""
    found = []
    for address in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        match = re.fullmatch(r"(?:\w+://)?(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/]+)):(\d{1,5})", address)
        if match is None:
            raise ToolFailed(f"Invalid url in bootstrap.servers: {address} (write HOST:PORT, as localhost:9092)")
        found.append((match[1] or match[2], int(match[3])))
    if not found:
        raise ToolFailed("No bootstrap urls given in bootstrap.servers (write HOST:PORT, as localhost:9092)")
    return found


def reach(bootstrap_servers: str) -> tuple[str, int]:
    """The first address that accepts a connection; says so when none does."""
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
    """Connections to all brokers of a cluster that answers."""
    from moldau.client.cluster import Cluster

    reach(bootstrap_servers)
    known = ",".join(f"{host}:{port}" for host, port in addresses(bootstrap_servers))
    return Cluster(known, java_config, timeout_seconds)


def channel(bootstrap_servers: str, java_config: Mapping[str, str]) -> Channel:
    """A bare connection to whichever bootstrap broker answers first."""
    return channel_to(*reach(bootstrap_servers), java_config)


def channel_to(host: str, port: int, java_config: Mapping[str, str]) -> Channel:
    from moldau.base.errors import KafkaError, MalformedData
    from moldau.client.channel import Channel
    from moldau.client.properties import security

    try:
        return Channel(host, port, security(java_config))
    except (OSError, MalformedData, KafkaError) as error:
        raise ToolFailed(f"{host}:{port} does not speak as a Kafka broker: {error}") from error


class Refused(ToolFailed):
    """The broker, or librdkafka before it, said no. `code` is librdkafka's name of the error."""

    def __init__(self, error: Any) -> None:
        super().__init__(words(error))
        self.code: str = error.name()


def answer(future: Future[T]) -> T:
    """What an admin call comes to, or the broker's own words for why not."""
    from moldau.client.confluent import KafkaException

    try:
        return future.result(ADMIN_SECONDS + 5)
    except KafkaException as error:
        raise Refused(error.args[0]) from error


def words(error: Any) -> str:
    """A KafkaError as a line: the broker's message where it sent one."""
    said = str(error.str()).removeprefix("Broker: ")
    if error.name() in NO_ANSWER:
        return f"{said}: the cluster did not answer in time; check advertised.listeners of the brokers"
    return said


def metadata(admin: AdminClient) -> ClusterMetadata:
    """All brokers and topics. Topics are never asked for by name, for a broker might create them."""
    from moldau.client.confluent import KafkaException

    try:
        return admin.list_topics(timeout=ADMIN_SECONDS)
    except KafkaException as error:
        if error.args[0].name() in NO_ANSWER:
            raise ToolFailed(
                "The address takes connections but does not answer as a Kafka broker does;"
                " check the port, and what --command-config says of TLS and SASL"
            ) from error
        raise Refused(error.args[0]) from error


def require_groups(bootstrap_servers: str, java_config: Mapping[str, str]) -> None:
    """Says so when the broker coordinates no groups, instead of waiting for a coordinator for ever."""
    from moldau.wire.apis import ApiKey

    with channel(bootstrap_servers, java_config) as open_channel:
        if not open_channel.offers(ApiKey.JOIN_GROUP):
            raise ToolFailed("This broker has no consumer groups; leave --group out to read without one.")


class Refusal(ToolFailed):
    """A broker's no, heard on a bare connection."""


def refuse(error_code: int, message: str | None) -> None:
    """Raises what a response says went wrong, if anything did."""
    from moldau.base.errors import ErrorCode

    if error_code:
        raise Refusal(message or ErrorCode(error_code).name)
