"""Limits of the MQTT front, each with its reason. Clients of MQTT 5 are told most of them in the CONNACK."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MqttLimits:
    packet_bytes_max: int = 1 << 20
    """Largest PUBLISH: Kafka's default for a batch (`message.max.bytes`), into which it must fit."""

    control_bytes_max: int = 64 << 10
    """Largest packet of any other type. A SUBSCRIBE of a thousand filters has it; a CONNECT is sent by strangers."""

    held_bytes_max: int = 256 << 20
    """Bytes of incomplete packets of all connections together. Beyond it the connection that sends more is closed."""

    connections_max: int = 20_000
    """Connections in all. Further ones are closed at once."""

    connect_timeout_s: float = 10.0
    """Until the CONNECT is there and the user is logged in; also for the TLS handshake."""

    keep_alive_s_max: int = 3_600
    """Clients of MQTT 5 are told to send something at least so often, also those that want no keep alive. MQTT 3.1.1
    has no words for it: there the client's keep alive counts."""

    publishes_in_flight_max: int = 1_000
    """PUBLISH packets of one connection that may wait to be appended: the receive maximum of MQTT 5. Beyond it, MQTT
    3.1.1 and QoS 0 are not read on."""

    publish_bytes_in_flight_max: int = 4 << 20
    """The same in bytes: then the connection is not read until half of it is done."""

    publish_bytes_in_all_max: int = 256 << 20
    """The same of all connections together: then none is read on before all that it has sent is appended."""

    deliveries_in_flight_max: int = 1_000
    """PUBLISH packets to one client that it has not acknowledged; fewer if its receive maximum is smaller."""

    waiting_bytes_max: int = 8 << 20
    """Bytes that may wait for a slow subscriber before it is disconnected (quota exceeded). A persistent session loses
    nothing: it reads on where it was."""

    subscriptions_max: int = 1_000
    """Of one session: each takes half a kilobyte, in memory and in the record of the session."""

    filter_characters_max: int = 256 << 10
    """Of all filters of a session: a single one may have 64 KiB, and the record of a session must fit into a batch."""

    topic_aliases_max: int = 100
    """Topic aliases of one connection, inbound. Devices have a dozen topics."""

    client_id_bytes_max: int = 256
    """Longest client identifier: it is in the key of the session's record, and in log lines."""

    sessions_max: int = 100_000
    """Sessions of clients that are away. Beyond it, new sessions end with their connection."""

    session_expiry_s_max: int = 7 * 24 * 3_600
    """How long a session may stay when its client is away; those of MQTT 3.1.1 without clean session stay so long.
    Records stay in Kafka for a week by default."""

    session_save_s: float = 5.0
    """How often the places of sessions that have moved are written. After a crash of the gateway, what was acknowledged
    since then is delivered again."""

    retained_bytes_max: int = 64 << 20
    """Memory of retained messages. Beyond it, a message that is to be retained is refused (quota exceeded)."""

    partitions_check_s: float = 60.0
    """How often topics that have subscribers are looked at for new partitions."""

    stop_s: float = 5.0
    """How long a stop waits for appends under way, wills and places."""
