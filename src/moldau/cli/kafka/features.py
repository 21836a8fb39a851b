"""kafka-features: shows the features of a cluster and their levels; raises, lowers and disables them.

version-mapping and feature-dependencies use no cluster, only the table of Kafka's releases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import connect
from moldau.cli.kafka.java.exceptions import message_of
from moldau.cli.kafka.storage_format.feature_levels import (
    FEATURES,
    LATEST,
    METADATA_VERSION,
    VERSIONS,
    default_level,
    dependency_lines,
    level_text,
    mapping_lines,
    parse_level,
    version_of,
)
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.kafka.verbs import INTEGER, VerbParser, add_connection, kafka_message, run_verbs
from moldau.client.admin.cluster_values import Features, UpgradeType


class _Parser(VerbParser):
    def error(self, message: str) -> NoReturn:
        self.exit(1, f"Command line error: {kafka_message(message)}. Type --help for help.\n")


def main(argv: Sequence[str] | None = None) -> int:
    return run_verbs(_parser(), _run, argv)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kafka-features", description="This tool manages feature flags in Kafka.", allow_abbrev=False)
    add_connection(parser, is_verb=False)
    verbs = parser.add_subparsers(dest="command", required=True)
    describe = verbs.add_parser("describe", help="list features, their supported and their finalized levels")
    describe.add_argument("--node-id", type=INTEGER, help="the node to ask; default: any")
    upgrade = verbs.add_parser("upgrade", help="raise features")
    downgrade = verbs.add_parser("downgrade", help="lower features")
    for verb in (upgrade, downgrade):
        verb.add_argument("--metadata", help="DEPRECATED: the new metadata.version, such as 4.3-IV0")
        verb.add_argument("--release-version", help="set all features as this release does")
    disable = verbs.add_parser("disable", help="lower features to level 0")
    for verb in (upgrade, downgrade, disable):
        metavar = "FEATURE" if verb is disable else "FEATURE=LEVEL"
        verb.add_argument("--feature", action="append", metavar=metavar, help="a feature; repeatable")
        verb.add_argument("--dry-run", action="store_true", help="only check whether the cluster would accept it")
    for verb in (downgrade, disable):
        verb.add_argument("--unsafe", action="store_true", help="even if metadata may be lost")
    mapping = verbs.add_parser("version-mapping", help="the levels of all features in a release")
    mapping.add_argument("--release-version", help=f"from {VERSIONS[0]} on; default: {LATEST}")
    dependencies = verbs.add_parser("feature-dependencies", help="which levels of other features a level requires")
    dependencies.add_argument("--feature", action="append", required=True, metavar="FEATURE=LEVEL", help="repeatable")
    for verb in (describe, upgrade, downgrade, disable, mapping, dependencies):
        add_connection(verb, is_verb=True)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "version-mapping":
            print("\n".join(mapping_lines(arguments.release_version)))
            return 0
        case "feature-dependencies":
            for text in arguments.feature:
                print("\n".join(dependency_lines(*parse_level(text))))
            return 0
    if arguments.bootstrap_server is None and arguments.bootstrap_controller is None:
        message = "You must specify either --bootstrap-controller or --bootstrap-server."
        raise ToolFailed(f"Command line error: {message}. Type --help for help.")
    java_config = properties.load(arguments.command_config)
    if arguments.command == "describe":
        return _describe(arguments, java_config)
    unsafe = getattr(arguments, "unsafe", False)
    lowering = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    kind = UpgradeType.UPGRADE if arguments.command == "upgrade" else lowering
    return _update(arguments, requested_levels(arguments, kind), kind, java_config)


def _describe(arguments: argparse.Namespace, java_config: Mapping[str, str]) -> int:
    node_id: int | None = arguments.node_id
    if node_id is not None and node_id < 0:
        raise ToolFailed(f"Invalid node id {node_id}: must be non-negative.")
    with connect(arguments.bootstrap_server, arguments.bootstrap_controller, java_config) as admin:
        if node_id is not None and node_id not in admin.cluster.nodes():
            message = "Timed out waiting for a node assignment. Call: describeFeatures"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
        features = admin.features(node_id)
    print("\n".join(feature_lines(features)))
    return 0


def feature_lines(features: Features) -> list[str]:
    epoch = "-" if features.epoch is None else features.epoch
    lines = []
    for name, (lowest, highest) in sorted(features.supported.items()):
        finalized = level_text(name, features.finalized.get(name, 0))
        lines.append(
            f"Feature: {name:<40}  SupportedMinVersion: {level_text(name, lowest):<15}"
            f"  SupportedMaxVersion: {level_text(name, highest):<15}"
            f"  FinalizedVersionLevel: {finalized:<15}  Epoch: {epoch}"
        )
    return lines


def requested_levels(arguments: argparse.Namespace, kind: UpgradeType) -> dict[str, int]:
    features: list[str] = arguments.feature or []
    if arguments.command == "disable":
        return _refuse_duplicates((name, 0) for name in features)
    if arguments.release_version is not None:
        if arguments.metadata is not None or arguments.feature is not None:
            raise ToolFailed("Can not specify `release-version` with other feature flags.")
        version = version_of(arguments.release_version)
        levels = {name: default_level(name, version) for name in FEATURES}
        # A feature cannot be raised to level 0.
        to_set = {name: level for name, level in levels.items() if level > 0 or kind is not UpgradeType.UPGRADE}
        return {METADATA_VERSION: version.level, **to_set}
    named_levels = list(map(parse_level, features))
    if arguments.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.", flush=True)
        named_levels.insert(0, (METADATA_VERSION, version_of(arguments.metadata).level))
    return _refuse_duplicates(named_levels)


def _refuse_duplicates(named_levels: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the levels by name."""
    unique: dict[str, int] = {}
    for name, level in named_levels:
        if name in unique:
            raise ToolFailed(f"Feature {name} was specified more than once.")
        unique[name] = level
    return unique


def _update(
    arguments: argparse.Namespace, levels: Mapping[str, int], kind: UpgradeType, java_config: Mapping[str, str]
) -> int:
    if not levels:
        raise ToolFailed(f"You must specify at least one feature to {arguments.command}")
    with connect(arguments.bootstrap_server, arguments.bootstrap_controller, java_config) as admin:
        outcomes = admin.update_features(levels, kind, arguments.dry_run)
    for name in sorted(levels):
        print(update_line(arguments.command, name, levels[name], outcomes[name], arguments.dry_run))
    failures = sum(outcome is not None for outcome in outcomes.values())
    if failures:
        raise ToolFailed(f"{failures} out of {len(levels)} operation(s) failed.")
    return 0


def update_line(verb: str, name: str, level: int, refusal: KafkaError | None, dry_run: bool) -> str:
    to = "" if verb == "disable" else f" to {level}"
    if refusal is not None:
        return f"{'Can' if dry_run else 'Could'} not {verb} {name}{to}. {message_of(refusal)}"
    return f"{name} {'can be' if dry_run else 'was'} {verb}d{to}."


if __name__ == "__main__":
    sys.exit(main())
