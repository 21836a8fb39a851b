"""Feature levels: those that this release supports, those of a new cluster, and their updates (UpdateFeatures v0–2).

SUPPORTED lists a level only when the feature works; clients fall back if they do not see it. A level can be set if all
brokers and controllers support it. All updates of a request succeed, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.wire.log_records.metadata import FeatureLevelRecord
from moldau.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.wire.schema import MetadataRecord

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 30
"""The level of Kafka 4.3, which defines the formats of `wire.log_records.metadata`."""

GROUP_VERSION: Final = "group.version"
"""Level 1 is the consumer protocol of KIP-848."""

TRANSACTION_VERSION: Final = "transaction.version"
"""Level 1 writes the coordinator's records in a flexible format; level 2 gives the producer a new epoch at the end of
every transaction (KIP-890)."""

SHARE_VERSION: Final = "share.version"
"""Level 1 is share groups (KIP-932), level 2 their dead letters (KIP-1191), as in Kafka 4.4."""
DEAD_LETTERS_LEVEL: Final = 2

SUPPORTED: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    SHARE_VERSION: (0, DEAD_LETTERS_LEVEL),
}

NOT_SUPPORTED: Final = (0, 0)
ABSENT_FEATURES: Final = frozenset(("kraft.version", "streams.version", "eligible.leader.replicas.version"))
"""Features of Kafka that this release lacks, or whose level only the storage tool sets (`kraft.version`, which the
image does not have): they count as level 0, and setting 0 is accepted."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def decide_bootstrap(image: MetadataImage, first_records: tuple[MetadataRecord, ...] = ()) -> Decision[None]:
    """Return, for a new log, all levels, then the storage tool's records; for an older release's log, only the levels
    that it lacks. A feature that some node does not support yet is left out."""
    is_new = not image.features and not image.features_off
    missing = [name for name in SUPPORTED if name not in image.features and name not in image.features_off]
    levels = tuple(
        FeatureLevelRecord(name, level) for name in missing if (level := _highest_common_level(image, name)) is not None
    )
    return Decision(None, levels + first_records if is_new else levels)


def _highest_common_level(image: MetadataImage, feature: str) -> int | None:
    """Return the highest level above 0 that all nodes support; None if there is none."""
    ranges = [supported.get(feature, NOT_SUPPORTED) for _, supported in _nodes(image)]
    level = min(high for _, high in ranges)
    return level if level > 0 and all(low <= level for low, _ in ranges) else None


def decide_update_features(image: MetadataImage, request: UpdateFeaturesRequest) -> Decision[UpdateFeaturesResponse]:
    updates = {update.feature: update for update in request.feature_updates}
    try:
        for update in updates.values():
            _check(image, update)
    except KafkaError as refused:
        message = f"The update failed for all features since the following feature had an error: {refused.message}"
        return Decision(UpdateFeaturesResponse(error_code=refused.code, error_message=message))
    changed = [each for each in updates.values() if each.max_version_level != image.features.get(each.feature, 0)]
    records = tuple(FeatureLevelRecord(each.feature, each.max_version_level) for each in changed)
    results = [UpdatableFeatureResult(name, 0, None) for name in updates]
    return Decision(
        UpdateFeaturesResponse(error_message=None, results=results), () if request.validate_only else records
    )


def _check(image: MetadataImage, update: FeatureUpdateKey) -> None:
    level, current = update.max_version_level, image.features.get(update.feature, 0)
    try:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType(update.upgrade_type)
    except ValueError:
        raise _invalid(update, "The controller does not support the given upgrade type.") from None
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    for node, supported in _nodes(image):
        if update.feature not in supported and update.feature not in ABSENT_FEATURES:
            raise _invalid(update, f"{node} does not support this feature.")
        low, high = supported.get(update.feature, NOT_SUPPORTED)
        if not low <= level <= high:
            reason = f"only supports versions {low}-{high}" if high else "does not support this feature."
            raise _invalid(update, f"{node} {reason}")
    if level < current and upgrade_type is UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and upgrade_type is not UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")


def _nodes(image: MetadataImage) -> Iterator[tuple[str, Mapping[str, tuple[int, int]]]]:
    """Yield the name and the supported levels of every node that must support an update."""
    yield "Local controller", SUPPORTED
    for broker_id in sorted(image.brokers):
        yield f"Broker {broker_id}", image.brokers[broker_id].features
    for controller_id in sorted(image.controllers):
        yield f"Controller {controller_id}", image.controllers[controller_id].features


def _invalid(update: FeatureUpdateKey, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.feature}. {reason}",
    )
