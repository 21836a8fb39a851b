"""Feature levels: what this release can, and what a new cluster begins with.

A level is listed only when the feature behind it works; clients fall back cleanly from what they do not see.
"""

from __future__ import annotations

from typing import Final

from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import FeatureLevelRecord

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 30
"""What Kafka 4.3 writes: the record formats of `metadata.records` are those of this level."""

GROUP_VERSION: Final = "group.version"
"""Level 1 is the consumer protocol of KIP-848."""

SUPPORTED: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    GROUP_VERSION: (0, 1),
}


def decide_bootstrap(image: MetadataImage) -> Decision[None]:
    """The records a new metadata log begins with; for one of an earlier release, those of features that came since."""
    missing = [name for name in SUPPORTED if name not in image.features]
    return Decision(None, tuple(FeatureLevelRecord(name, SUPPORTED[name][1]) for name in missing))
