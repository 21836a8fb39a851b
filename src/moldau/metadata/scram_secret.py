"""The secret from which the made-up salts of unknown users are derived: random, kept in the metadata log with the first
SCRAM credential, and never changed.

It is the same on all nodes and after a restart, or a salt that changes would tell which users do not exist. It is a
config of all brokers of the type PASSWORD, so that no API and no tool shows it; clients can neither set nor remove it.
"""

from __future__ import annotations

from moldau.base.settings.own import MOLDAU_SCRAM_SECRET
from moldau.metadata.broker_configs import CLUSTER_DEFAULT
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.wire.log_records.metadata import ConfigRecord
from moldau.wire.schema import MetadataRecord


def scram_secret(image: MetadataImage) -> str | None:
    """Return the secret of the cluster; None before the first user has credentials."""
    return image.configs_of(ConfigResource.BROKER, CLUSTER_DEFAULT).get(MOLDAU_SCRAM_SECRET.name)


def scram_secret_record(secret: str) -> MetadataRecord:
    return ConfigRecord(ConfigResource.BROKER, CLUSTER_DEFAULT, MOLDAU_SCRAM_SECRET.name, secret)
