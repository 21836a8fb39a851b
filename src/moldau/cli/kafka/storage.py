"""kafka-storage: makes log directories ready for a node, tells what is in them, and prints new ids.

Formatting is optional here, a start does it by itself; the tool is for those who choose their cluster id, and for
scripts. Directories are read and written by `moldau.log.meta_properties` alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Sequence
from typing import Final, NoReturn

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import Uuid, uuid_from_text, uuid_text
from moldau.base.setting_sources import SettingsError
from moldau.cli.kafka.tool import ToolFailed, guarded
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import MetaProperties, read, write
from moldau.settings import Settings, check_cluster_id, load

METADATA_VERSION: Final = "4.3-IV0"
FEATURES: Final = {
    "metadata.version": 30,
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
"""The feature levels of the release whose protocol is spoken."""

_ALREADY: Final = "is already formatted. Use --ignore-formatted to ignore this directory and format the others."


class _Parser(argparse.ArgumentParser):
    """Kafka's tool ends with status 1, not 2, on a wrong command line."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"kafka-storage: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(_run, argv)


def random_uuid() -> Uuid:
    """A UUID whose text does not begin with a dash: it is going to stand on command lines."""
    while uuid_text(candidate := uuid.uuid4().bytes).startswith("-"):
        pass
    return candidate


def _run(words: Sequence[str]) -> int:
    given = _parser().parse_args(list(words))
    try:
        match given.command:
            case "random-uuid":
                print(uuid_text(random_uuid()))
                return 0
            case "version-mapping":
                return _version_mapping(given.release_version)
            case "feature-dependencies":
                return _feature_dependencies(given.feature)
            case "info":
                return _info(load(given.config, os.environ))
            case _:
                return _format(given)
    except (SettingsError, StorageFault, MalformedData) as wrong:
        raise ToolFailed(str(wrong)) from wrong


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kafka-storage", description="Make log directories ready, and look at them.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="tell what is in the log directories of this node")
    info.add_argument("--config", "-c", required=True, help="the server's properties file")
    _add_format(commands.add_parser("format", help="make the log directories of this node ready"))
    mapping = commands.add_parser("version-mapping", help="the feature levels of a release")
    mapping.add_argument("--release-version", "-r", default=METADATA_VERSION, help=f"default: {METADATA_VERSION}")
    dependencies = commands.add_parser("feature-dependencies", help="what a feature level needs of others")
    dependencies.add_argument("--feature", "-f", action="append", required=True, metavar="NAME=LEVEL")
    commands.add_parser("random-uuid", help="print a new id for a cluster")
    return parser


def _add_format(format: argparse.ArgumentParser) -> None:
    format.add_argument("--config", "-c", required=True, help="the server's properties file")
    format.add_argument("--cluster-id", "-t", required=True, help="the cluster's id, as random-uuid prints it")
    format.add_argument("--add-scram", "-S", action="append", help="a user and password; not supported yet")
    format.add_argument("--ignore-formatted", "-g", action="store_true", help="pass over directories that are ready")
    format.add_argument("--release-version", "-r", default=METADATA_VERSION, help=f"default: {METADATA_VERSION}")
    format.add_argument("--feature", "-f", action="append", default=[], metavar="NAME=LEVEL")
    quorum = format.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="this node is its own quorum")
    quorum.add_argument("--no-initial-controllers", "-N", action="store_true", help="the quorum is elsewhere")
    quorum.add_argument("--initial-controllers", "-I", metavar="ID@HOST:PORT:DIRECTORY", help="the first voters")


def _format(given: argparse.Namespace) -> int:
    settings = load(given.config, os.environ)
    check_cluster_id(given.cluster_id, "--cluster-id")
    _check_release(given.release_version)
    for feature in given.feature:
        _check_feature(feature)
    first_directory_id = _quorum(given, settings)
    files = DiskFiles()
    found = {log_dir: read(files, log_dir) for log_dir in settings.log_dirs}
    for log_dir, meta in found.items():
        _check_formatted(log_dir, meta, given.cluster_id, settings, given.ignore_formatted)
    unformatted = [log_dir for log_dir, meta in found.items() if meta is None]
    if not unformatted:
        print("All of the log directories are already formatted.")
        return 0
    dynamic = given.standalone or given.initial_controllers
    for log_dir in unformatted:
        is_first = log_dir == settings.log_dirs[0]
        kind = ("dynamic metadata voter" if dynamic else "metadata") if is_first else "data"
        directory_id = first_directory_id if is_first and first_directory_id else random_uuid()
        write(files, log_dir, MetaProperties(given.cluster_id, settings.node_id, directory_id))
        print(f"Formatting {kind} directory {log_dir} with metadata.version {METADATA_VERSION}.")
    return 0


def _check_formatted(
    log_dir: str, meta: MetaProperties | None, cluster_id: str, settings: Settings, ignore_formatted: bool
) -> None:
    if meta is None:
        return
    if not ignore_formatted:
        raise ToolFailed(f"Log directory {log_dir} {_ALREADY}")
    for key, expected, stored in (
        ("cluster.id", cluster_id, meta.cluster_id),
        ("node.id", settings.node_id, meta.node_id),
    ):
        if expected != stored:
            raise ToolFailed(f"Invalid {key} in: {log_dir}/meta.properties. Expected {expected}, but read {stored}")


def _quorum(given: argparse.Namespace, settings: Settings) -> Uuid | None:
    """The id of the first directory, where the flags name one. A single node is its own quorum, said or not."""
    if given.add_scram:
        raise ToolFailed("--add-scram: users and passwords are not supported yet")
    if given.no_initial_controllers:
        raise ToolFailed("--no-initial-controllers: a cluster of several nodes is not supported yet; use --standalone")
    if (given.standalone or given.initial_controllers) and settings.value("controller.quorum.voters"):
        raise ToolFailed(
            "You cannot specify controller.quorum.voters and format the node "
            "with --initial-controllers or --standalone."
        )
    return _initial_controller(given.initial_controllers, settings) if given.initial_controllers else None


def _initial_controller(text: str, settings: Settings) -> Uuid:
    if "," in text:
        raise ToolFailed("--initial-controllers: a cluster of several nodes is not supported yet; name this node alone")
    node_id, _, rest = text.strip().partition("@")
    address, _, directory = rest.rpartition(":")
    try:
        if not address.rpartition(":")[2].isdecimal() or int(node_id) != settings.node_id:
            raise ValueError
        return uuid_from_text(directory)
    except ValueError:
        form = f"expected {settings.node_id}@host:port:directory-id"
        raise ToolFailed(f"--initial-controllers {text}: {form}") from None


def _check_release(release: str) -> None:
    if release not in (METADATA_VERSION, METADATA_VERSION.partition("-")[0]):
        raise ToolFailed(f"Unknown metadata.version '{release}'. Supported metadata.version are: {METADATA_VERSION}")


def _check_feature(text: str) -> None:
    name, _, level = text.partition("=")
    if name not in FEATURES:
        raise ToolFailed(f"Unknown feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}")
    if not level.isdecimal() or int(level) > FEATURES[name]:
        raise ToolFailed(f"--feature {text}: expected a level of {name} from 0 to {FEATURES[name]}")


def _info(settings: Settings) -> int:
    files = DiskFiles()
    directories = [log_dir for log_dir in sorted(settings.log_dirs) if os.path.isdir(log_dir)]
    found = {log_dir: read(files, log_dir) for log_dir in directories}
    metadata = next(filter(None, found.values()), None)
    problems = [problem for log_dir in sorted(settings.log_dirs) if (problem := _problem(log_dir, found, metadata))]
    _print_list("Found log director", "y:", "ies:", directories)
    if metadata:
        print(f"Found metadata: {_shown(metadata)}\n")
    _print_list("Found problem", ":", "s:", problems)
    return 1 if problems else 0


def _problem(log_dir: str, found: dict[str, MetaProperties | None], metadata: MetaProperties | None) -> str | None:
    if log_dir not in found:
        return f"{log_dir} {'is not a directory' if os.path.exists(log_dir) else 'does not exist'}"
    meta = found[log_dir]
    if meta is None or metadata is None:
        return f"{log_dir} is not formatted."
    if (meta.cluster_id, meta.node_id) != (metadata.cluster_id, metadata.node_id):
        return f"{log_dir} has other metadata: {_shown(meta)}"
    return None


def _shown(meta: MetaProperties) -> str:
    directory_id = uuid_text(meta.directory_id)
    return f"{{cluster.id={meta.cluster_id}, directory.id={directory_id}, node.id={meta.node_id}, version=1}}"


def _print_list(stem: str, one: str, many: str, lines: list[str]) -> None:
    if lines:
        print(f"{stem}{one if len(lines) == 1 else many}")
        print("".join(f"  {line}\n" for line in lines))


def _version_mapping(release: str) -> int:
    _check_release(release)
    for name, level in FEATURES.items():
        print(f"{name}={level} ({METADATA_VERSION})" if name == "metadata.version" else f"{name}={level}")
    return 0


def _feature_dependencies(features: list[str]) -> int:
    for feature in features:
        _check_feature(feature)
        print(f"{feature} has no dependencies.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
