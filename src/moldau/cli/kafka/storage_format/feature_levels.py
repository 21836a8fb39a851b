"""The features of Kafka 4.3 and their levels: since which release, and which levels of others they require. Pure.

This is a table of Kafka's releases, not of this broker: `kafka-features describe` shows what a cluster supports and
has finalized.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed

METADATA_VERSION: Final = "metadata.version"


class MetadataVersion(NamedTuple):
    level: int
    release: str
    iteration: str

    def __str__(self) -> str:
        return f"{self.release}-{self.iteration}"


_RELEASES: Final = """
    3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0
    3.9-IV0 4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0 4.4-IV0
"""
FIRST_LEVEL: Final = 7
VERSIONS: Final = tuple(
    MetadataVersion(level, *name.split("-")) for level, name in enumerate(_RELEASES.split(), FIRST_LEVEL)
)
LATEST: Final = VERSIONS[-2]
"""What a new cluster gets. The version after it belongs to the next release and is not final yet."""


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """`since` is the metadata.version from which on new clusters get this level."""

    level: int
    since: int
    requires: dict[str, int] = field(default_factory=dict)


def _plain(*since: int) -> tuple[FeatureLevel, ...]:
    return tuple(FeatureLevel(level, each) for level, each in enumerate(since))


FEATURES: Final = {
    "kraft.version": _plain(7, 21),
    "transaction.version": _plain(7, 24, 24),
    "group.version": _plain(7, 22),
    "eligible.leader.replicas.version": (FeatureLevel(0, 7), FeatureLevel(1, 26, {METADATA_VERSION: 23})),
    "share.version": _plain(7, 28),
    "streams.version": _plain(7, 29),
}


def version_of(text: str, with_unreleased: bool = True) -> MetadataVersion:
    """Parse `4.3`, `4.3-IV0` or `4.3.1`: what comes after the second dot is ignored."""
    key = ".".join(text.split(".")[:2])
    versions = VERSIONS if with_unreleased else VERSIONS[:-1]
    for version in versions:
        if key == str(version):
            return version
    released = [version for version in VERSIONS[:-1] if version.release == key]
    if released:
        return released[-1]
    listed = ", ".join(map(str, versions))
    raise ToolFailed(f"Unknown metadata.version '{text}'. Supported metadata.version are: {listed}")


def version_at(level: int) -> MetadataVersion | None:
    return next((version for version in VERSIONS if version.level == level), None)


def default_level(feature: str, version: MetadataVersion) -> int:
    """Return the level that a new cluster of this version gets."""
    return max(each.level for each in FEATURES[feature] if each.since <= version.level)


def level_text(feature: str, level: int) -> str:
    """Return the level as text; a metadata.version by its release."""
    if feature != METADATA_VERSION:
        return str(level)
    version = version_at(level)
    return str(version) if version else f"UNKNOWN {level}"


def mapping_lines(release: str | None) -> list[str]:
    """Return the levels of all features in a release."""
    name = release or str(LATEST)
    version = version_of(name)
    levels = [f"{feature}={default_level(feature, version)}" for feature in FEATURES]
    return [f"{METADATA_VERSION}={version.level} ({name})", *levels]


class UnknownLevel(ToolFailed):
    """The feature exists, but not this level. Each of Kafka's tools has its own message for that."""


def dependency_lines(feature: str, level: int) -> list[str]:
    """Return the levels of other features that a level requires."""
    if feature == METADATA_VERSION:
        version = version_at(level)
        if version is None:
            raise ToolFailed(f"Unknown metadata.version {level}")
        return [f"{feature}={level} ({version}) has no dependencies."]
    if feature not in FEATURES:
        raise ToolFailed(f"Unknown feature: {feature}")
    requires = next((each.requires for each in FEATURES[feature] if each.level == level), None)
    if requires is None:
        raise UnknownLevel(f"No feature:{feature} with feature level {level}")
    if not requires:
        return [f"{feature}={level} has no dependencies."]
    return [
        f"{feature}={level} requires:",
        *(f"    {_level_with_release(name, each)}" for name, each in requires.items()),
    ]


def _level_with_release(feature: str, level: int) -> str:
    version = version_at(level) if feature == METADATA_VERSION else None
    return f"{feature}={level} ({version})" if version else f"{feature}={level}"


def parse_level(text: str) -> tuple[str, int]:
    """Parse `feature=level`."""
    name, equals, level = text.partition("=")
    if not equals:
        raise ToolFailed(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), parse_integer(level.strip(), bits=16)
    except ValueError:
        message = f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
        raise ToolFailed(message) from None
