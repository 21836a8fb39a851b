"""The metadata records of brokers and controllers: that they registered, where they listen, and whether a broker is
fenced. Names and fields are those of Apache Kafka, but for `cannot_write`, which is ours."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.ids import ZERO_UUID
from moldau.metadata.record import MetadataRecord
from moldau.wire.schema import Message


class BrokerEndpoint(Message):
    """A listener of a broker, as it is advertised."""

    __slots__ = ("host", "name", "port", "security_protocol")
    SCHEMA = """
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    """

    def __init__(self, name: str = "", host: str = "", port: int = 0, security_protocol: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class BrokerFeature(Message):
    """The versions of a feature that a broker supports."""

    __slots__ = ("max_supported_version", "min_supported_version", "name")
    SCHEMA = """
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
    """

    def __init__(self, name: str = "", min_supported_version: int = 0, max_supported_version: int = 0) -> None:
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterBrokerRecord(MetadataRecord):
    """A broker process registered. Its later requests have this `broker_epoch`, so that those of an older process are
    refused."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "cannot_write",
        "cordoned_log_dirs",
        "end_points",
        "features",
        "fenced",
        "in_controlled_shutdown",
        "incarnation_id",
        "is_migrating_zk_broker",
        "log_dirs",
        "rack",
    )
    TYPE = 0
    VERSIONS = (0, 4)
    SCHEMA = """
        broker_id int32 0+
        is_migrating_zk_broker bool 2+
        incarnation_id uuid 0+
        broker_epoch int64 0+
        end_points []BrokerEndpoint 0+
        features []BrokerFeature 0+
        rack string 0+ null=0+
        fenced bool 0+
        in_controlled_shutdown bool 1+
        log_dirs []uuid 3+ tag=0
        cordoned_log_dirs []uuid 4+ null=4+ tag=1
        cannot_write bool 0+ tag=10000
    """

    def __init__(
        self,
        broker_id: int = 0,
        is_migrating_zk_broker: bool = False,
        incarnation_id: bytes = ZERO_UUID,
        broker_epoch: int = 0,
        end_points: Sequence[BrokerEndpoint] = (),
        features: Sequence[BrokerFeature] = (),
        rack: str | None = None,
        fenced: bool = True,
        in_controlled_shutdown: bool = False,
        log_dirs: Sequence[bytes] = (),
        cordoned_log_dirs: Sequence[bytes] | None = None,
        cannot_write: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.is_migrating_zk_broker = is_migrating_zk_broker
        self.incarnation_id = incarnation_id
        self.broker_epoch = broker_epoch
        self.end_points = end_points
        self.features = features
        self.rack = rack
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs
        self.cannot_write = cannot_write


class UnregisterBrokerRecord(MetadataRecord):
    """A broker left the cluster for good."""

    __slots__ = ("broker_epoch", "broker_id")
    TYPE = 1
    VERSIONS = (0, 0)
    SCHEMA = """
        broker_id int32 0+
        broker_epoch int64 0+
    """

    def __init__(self, broker_id: int = 0, broker_epoch: int = 0) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class FenceBrokerRecord(MetadataRecord):
    """The controller fenced a broker. Only metadata versions before 3.3-IV2 have it: BrokerRegistrationChangeRecord
    replaced it."""

    __slots__ = ("epoch", "id")
    TYPE = 7
    VERSIONS = (0, 0)
    SCHEMA = """
        id int32 0+
        epoch int64 0+
    """

    def __init__(self, id: int = 0, epoch: int = 0) -> None:
        self.id = id
        self.epoch = epoch


class UnfenceBrokerRecord(MetadataRecord):
    """The controller unfenced a broker. Only metadata versions before 3.3-IV2 have it: BrokerRegistrationChangeRecord
    replaced it."""

    __slots__ = ("epoch", "id")
    TYPE = 8
    VERSIONS = (0, 0)
    SCHEMA = """
        id int32 0+
        epoch int64 0+
    """

    def __init__(self, id: int = 0, epoch: int = 0) -> None:
        self.id = id
        self.epoch = epoch


FENCE = 1
UNFENCE = -1
"""Values of `fenced` in a BrokerRegistrationChangeRecord; 0 means no change."""
CANNOT_WRITE = 1
CAN_WRITE = -1
"""Values of `cannot_write` in a BrokerRegistrationChangeRecord; 0 means no change."""


class BrokerRegistrationChangeRecord(MetadataRecord):
    """The state of a registered broker changed. Fields with their default stay as they were."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "cannot_write",
        "cordoned_log_dirs",
        "fenced",
        "in_controlled_shutdown",
        "log_dirs",
    )
    TYPE = 17
    VERSIONS = (0, 3)
    SCHEMA = """
        broker_id int32 0+
        broker_epoch int64 0+
        fenced int8 0+ tag=0
        in_controlled_shutdown int8 1+ tag=1
        log_dirs []uuid 2+ tag=2
        cordoned_log_dirs []uuid 3+ null=3+ tag=3
        cannot_write int8 0+ tag=10000
    """

    def __init__(
        self,
        broker_id: int = 0,
        broker_epoch: int = 0,
        fenced: int = 0,
        in_controlled_shutdown: int = 0,
        log_dirs: Sequence[bytes] = (),
        cordoned_log_dirs: Sequence[bytes] | None = None,
        cannot_write: int = 0,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fenced = fenced
        self.in_controlled_shutdown = in_controlled_shutdown
        self.log_dirs = log_dirs
        self.cordoned_log_dirs = cordoned_log_dirs
        self.cannot_write = cannot_write


class ControllerEndpoint(Message):
    """A listener of a controller, as it is advertised."""

    __slots__ = ("host", "name", "port", "security_protocol")
    SCHEMA = """
        name string 0+
        host string 0+
        port uint16 0+
        security_protocol int16 0+
    """

    def __init__(self, name: str = "", host: str = "", port: int = 0, security_protocol: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.security_protocol = security_protocol


class ControllerFeature(Message):
    """The versions of a feature that a controller supports."""

    __slots__ = ("max_supported_version", "min_supported_version", "name")
    SCHEMA = """
        name string 0+
        min_supported_version int16 0+
        max_supported_version int16 0+
    """

    def __init__(self, name: str = "", min_supported_version: int = 0, max_supported_version: int = 0) -> None:
        self.name = name
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class RegisterControllerRecord(MetadataRecord):
    """A controller process registered."""

    __slots__ = ("controller_id", "end_points", "features", "incarnation_id", "zk_migration_ready")
    TYPE = 27
    VERSIONS = (0, 0)
    SCHEMA = """
        controller_id int32 0+
        incarnation_id uuid 0+
        zk_migration_ready bool 0+
        end_points []ControllerEndpoint 0+
        features []ControllerFeature 0+
    """

    def __init__(
        self,
        controller_id: int = 0,
        incarnation_id: bytes = ZERO_UUID,
        zk_migration_ready: bool = False,
        end_points: Sequence[ControllerEndpoint] = (),
        features: Sequence[ControllerFeature] = (),
    ) -> None:
        self.controller_id = controller_id
        self.incarnation_id = incarnation_id
        self.zk_migration_ready = zk_migration_ready
        self.end_points = end_points
        self.features = features
