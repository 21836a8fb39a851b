"""kafka-storage: formats the log directories of a node, shows what is in them, and prints new ids.

Formatting is optional for a single node, which does it at its start; the tool is for choosing the cluster id or the
initial controllers, and for scripts. `moldau.log.meta_properties` reads and writes meta.properties,
initial_controllers.py the snapshot that names the first voters.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Final, NoReturn

from moldau.base.cluster_settings import check_cluster_id
from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import Uuid, uuid_text
from moldau.base.setting_sources import SettingsError
from moldau.base.settings.node import (
    CONTROLLER_LISTENER_NAMES,
    CONTROLLER_QUORUM_BOOTSTRAP_SERVERS,
    CONTROLLER_QUORUM_VOTERS,
    NODE_ID,
)
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.storage_format.feature_levels import (
    FEATURES,
    LATEST,
    METADATA_VERSION,
    UnknownLevel,
    default_level,
    dependency_lines,
    mapping_lines,
    parse_level,
)
from moldau.cli.kafka.storage_format.initial_controllers import InitialController, parse_voters, write_first_snapshot
from moldau.cli.kafka.storage_format.scram_users import scram_record
from moldau.cli.kafka.tool import ToolFailed, guarded
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import MetaProperties, read, write
from moldau.secure_setup.first_users import write_first_records
from moldau.settings import Settings, load

RELEASE: Final = str(LATEST)
"""The release whose metadata records are written; there is no other."""

_ALREADY: Final = "is already formatted. Use --ignore-formatted to ignore this directory and format the others."


class _Parser(argparse.ArgumentParser):
    """A wrong command line ends with status 1, as in Kafka's tool, not with 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"kafka-storage: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(_run, argv)


def random_uuid() -> Uuid:
    """Return a UUID whose text does not begin with a dash, which would look like a flag on command lines."""
    while uuid_text(candidate := uuid.uuid4().bytes).startswith("-"):
        pass
    return candidate


def _run(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(list(words))
    try:
        match arguments.command:
            case "random-uuid":
                print(uuid_text(random_uuid()))
                return 0
            case "version-mapping":
                print("\n".join(mapping_lines(arguments.release_version)))
                return 0
            case "feature-dependencies":
                return _feature_dependencies(arguments.feature)
            case "info":
                return _info(load(arguments.config, os.environ, with_security=False))
            case _:
                return _format(arguments)
    except (SettingsError, StorageFault, MalformedData) as error:
        raise ToolFailed(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kafka-storage", description="Format log directories, and show what is in them.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="show what is in the log directories of this node")
    info.add_argument("--config", "-c", required=True, help="the server's properties file")
    _add_format(commands.add_parser("format", help="format the log directories of this node"))
    mapping = commands.add_parser("version-mapping", help="the feature levels of a release")
    mapping.add_argument("--release-version", "-r", help=f"default: {RELEASE}")
    dependencies = commands.add_parser("feature-dependencies", help="which levels of other features a level requires")
    dependencies.add_argument("--feature", "-f", action="append", required=True, metavar="NAME=LEVEL")
    commands.add_parser("random-uuid", help="print a new id for a cluster")
    return parser


def _add_format(format: argparse.ArgumentParser) -> None:
    format.add_argument("--config", "-c", required=True, help="the server's properties file")
    format.add_argument("--cluster-id", "-t", required=True, help="the cluster's id, as random-uuid prints it")
    format.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="MECHANISM=[...]",
        help="a user and password, e.g. 'SCRAM-SHA-256=[name=ann,password=secret]'",
    )
    format.add_argument("--ignore-formatted", "-g", action="store_true", help="skip directories that are formatted")
    format.add_argument("--release-version", "-r", help=f"default, and the only one: {RELEASE}")
    format.add_argument("--feature", "-f", action="append", default=[], metavar="NAME=LEVEL")
    quorum = format.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="this node is its own quorum")
    quorum.add_argument("--no-initial-controllers", "-N", action="store_true", help="the quorum is elsewhere")
    quorum.add_argument("--initial-controllers", "-I", metavar="ID@HOST:PORT:DIRECTORY", help="the first voters")


def _format(arguments: argparse.Namespace) -> int:
    settings = load(arguments.config, os.environ, with_security=False)
    check_cluster_id(arguments.cluster_id, "--cluster-id")
    voters = _first_voters(arguments, settings)
    scram_records = [scram_record(text) for text in arguments.add_scram]
    _check_features(arguments, is_dynamic=not settings.value(CONTROLLER_QUORUM_VOTERS))
    files = DiskFiles()
    meta_by_dir = {log_dir: read(files, log_dir) for log_dir in settings.log_dirs}
    for log_dir, meta in meta_by_dir.items():
        _check_formatted(log_dir, meta, arguments.cluster_id, settings, arguments.ignore_formatted)
    unformatted = [log_dir for log_dir, meta in meta_by_dir.items() if meta is None]
    if not unformatted:
        print("All of the log directories are already formatted.")
        return 0
    for log_dir in unformatted:
        is_first = log_dir == settings.log_dirs[0]
        if is_first and scram_records:
            write_first_records(DiskFiles(), log_dir, scram_records, time.time_ns() // 1_000_000)
        _format_directory(arguments.cluster_id, settings, log_dir, voters if is_first else (), is_first)
    return 0


def _format_directory(
    cluster_id: str, settings: Settings, log_dir: str, voters: Sequence[InitialController], is_first: bool
) -> None:
    """Format a directory. Write meta.properties last: with this file, the directory counts as formatted."""
    own_voter = next((voter for voter in voters if voter.node_id == settings.node_id), None)
    kind = (
        "dynamic metadata voter" if own_voter else "dynamic metadata" if voters else "metadata" if is_first else "data"
    )
    print(f"Formatting {kind} directory {log_dir} with metadata.version {RELEASE}.")
    files = DiskFiles()
    # A single voter without a controller listener needs no snapshot that names it.
    if voters and (len(voters) > 1 or own_voter is None or settings.controller_listeners):
        names = settings.value(CONTROLLER_LISTENER_NAMES)
        assert isinstance(names, tuple)
        write_first_snapshot(files, log_dir, voters, str(names[0]).upper(), time.time_ns() // 1_000_000)
    directory_id = own_voter.directory_id if own_voter else random_uuid()
    write(files, log_dir, MetaProperties(cluster_id, settings.node_id, directory_id))


def _check_formatted(
    log_dir: str, meta: MetaProperties | None, cluster_id: str, settings: Settings, ignore_formatted: bool
) -> None:
    if meta is None:
        return
    if not ignore_formatted:
        raise ToolFailed(f"Log directory {log_dir} {_ALREADY}")
    for key, expected, stored in (
        ("cluster.id", cluster_id, meta.cluster_id),
        (NODE_ID.name, settings.node_id, meta.node_id),
    ):
        if expected != stored:
            raise ToolFailed(f"Invalid {key} in: {log_dir}/meta.properties. Expected {expected}, but read {stored}")


def _first_voters(arguments: argparse.Namespace, settings: Settings) -> Sequence[InitialController]:
    """Return the first voters, if the flags name them. A single node is its own quorum, with or without a flag."""
    if (arguments.standalone or arguments.initial_controllers) and settings.value(CONTROLLER_QUORUM_VOTERS):
        raise ToolFailed(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or"
            " --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify"
            " controller.quorum.bootstrap.servers instead."
        )
    if arguments.initial_controllers:
        return parse_voters(arguments.initial_controllers)
    if arguments.standalone:
        return [_only_voter(settings)]
    needs_no_flag = settings.value(CONTROLLER_QUORUM_VOTERS) or not settings.value(CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)
    if settings.is_controller and not needs_no_flag and not arguments.no_initial_controllers:
        raise ToolFailed(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following:"
            " --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return ()


def _only_voter(settings: Settings) -> InitialController:
    if not settings.is_controller:
        raise ToolFailed("You can only use --standalone on a controller.")
    if not settings.advertised_controllers:
        return InitialController(settings.node_id, "localhost", 0, random_uuid())
    listener = settings.advertised_controllers[0]
    return InitialController(settings.node_id, listener.host, listener.port, random_uuid())


def _check_features(arguments: argparse.Namespace, is_dynamic: bool) -> None:
    """Fail if a flag sets another level than the one in RELEASE: new clusters have no other."""
    levels = dict(map(parse_level, arguments.feature))
    if arguments.release_version is not None:
        if METADATA_VERSION in levels:
            raise ToolFailed("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
        if arguments.release_version.split("-")[0].split(".")[:2] != LATEST.release.split("."):
            supported = f"Supported metadata.version are: {RELEASE}"
            raise ToolFailed(f"Unknown metadata.version '{arguments.release_version}'. {supported}")
    for name, level in levels.items():
        if name not in FEATURES and name != METADATA_VERSION:
            listed = ", ".join(sorted(FEATURES))
            raise ToolFailed(f"Unsupported feature: {name}. Supported features are: {listed}")
        expected = LATEST.level if name == METADATA_VERSION else default_level(name, LATEST)
        if name == "kraft.version" and not is_dynamic:
            expected = 0
        if level != expected:
            raise ToolFailed(f"--feature {name}={level}: a new cluster begins with {name}={expected}")


def _info(settings: Settings) -> int:
    files = DiskFiles()
    directories = [log_dir for log_dir in sorted(settings.log_dirs) if os.path.isdir(log_dir)]
    meta_by_dir = {log_dir: read(files, log_dir) for log_dir in directories}
    metadata = next(filter(None, meta_by_dir.values()), None)
    problems = [
        problem for log_dir in sorted(settings.log_dirs) if (problem := _problem(log_dir, meta_by_dir, metadata))
    ]
    _print_list("Found log director", "y:", "ies:", directories)
    if metadata:
        print(f"Found metadata: {_meta_text(metadata)}\n")
    _print_list("Found problem", ":", "s:", problems)
    return 1 if problems else 0


def _problem(
    log_dir: str, meta_by_dir: dict[str, MetaProperties | None], metadata: MetaProperties | None
) -> str | None:
    if log_dir not in meta_by_dir:
        return f"{log_dir} {'is not a directory' if os.path.exists(log_dir) else 'does not exist'}"
    meta = meta_by_dir[log_dir]
    if meta is None or metadata is None:
        return f"{log_dir} is not formatted."
    if (meta.cluster_id, meta.node_id) != (metadata.cluster_id, metadata.node_id):
        return f"{log_dir} has other metadata: {_meta_text(meta)}"
    return None


def _meta_text(meta: MetaProperties) -> str:
    directory_id = uuid_text(meta.directory_id)
    return f"{{cluster.id={meta.cluster_id}, directory.id={directory_id}, node.id={meta.node_id}, version=1}}"


def _print_list(stem: str, singular_ending: str, plural_ending: str, lines: list[str]) -> None:
    if lines:
        print(f"{stem}{singular_ending if len(lines) == 1 else plural_ending}")
        print("".join(f"  {line}\n" for line in lines))


def _feature_dependencies(features: list[str]) -> int:
    for text in features:
        name, equals, level = text.partition("=")
        if not equals:
            form = "Expected format: 'feature=version' (e.g. 'group.version=1')"
            raise ToolFailed(f"Invalid feature format: {text}. {form}")
        try:
            number = parse_integer(level.strip(), bits=16)
        except ValueError:
            raise ToolFailed(f"Invalid version format: {level.strip()} for feature {name.strip()}") from None
        try:
            print("\n".join(dependency_lines(name.strip(), number)))
        except UnknownLevel as error:
            message = f"Feature level {number} is not supported for feature {name.strip()}"
            raise ToolFailed(message) from error
    return 0


if __name__ == "__main__":
    sys.exit(main())
