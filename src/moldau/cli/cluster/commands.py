"""`moldau cluster`: start, watch, kill, pause and restart a cluster of processes on this machine; and show any cluster
(`info`, `describe`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from moldau.base.limits import PORT_MAX
from moldau.cli.cluster.describe import describe
from moldau.cli.cluster.directory import (
    DEFAULT_BASE_PORT,
    DEFAULT_DIRECTORY,
    DEFAULT_NODES,
    ClusterDirectory,
    Description,
    Security,
    check_ports_are_free,
    write_text,
)
from moldau.cli.cluster.info import info
from moldau.cli.cluster.processes import (
    LOOK_EVERY_S,
    NodeProcess,
    NodeState,
    ProcessIdentity,
    check_not_running,
    last_process,
    live_process,
    live_processes,
    running_foreground,
    spawn,
)
from moldau.cli.cluster.stopping import STOP_ALL_SECONDS, quorum_leader, stop_all, stop_one
from moldau.cli.connect import CommandFailed
from moldau.cli.log.options import log_format_option, log_level_option
from moldau.cli.output import Bytes, Table, format_option, show
from moldau.cli.secure_options import secure_name_option
from moldau.platforms.processes import PROCESSES
from moldau.platforms.support import refusal_text

if TYPE_CHECKING:
    from moldau.cli.log.output import LogOutput

F = TypeVar("F", bound=Callable[..., Any])
NODES_MAX: Final = 9
PATIENCE_S: Final = 60.0


def _complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        nodes = ClusterDirectory(Path(ctx.params.get("data_dir") or DEFAULT_DIRECTORY)).description().nodes
    except (CommandFailed, OSError):
        return []
    return [CompletionItem(str(node.id)) for node in nodes if str(node.id).startswith(incomplete)]


def _check_platform(ctx: click.Context, param: click.Parameter, data_dir: str) -> str:
    """Fail on Windows: these commands start and stop processes, which Moldau does not support there."""
    if line := refusal_text(f"`{ctx.command_path}`"):
        raise CommandFailed(line)
    return data_dir


data_dir_option: Callable[[F], F] = click.option(
    "--data-dir",
    "-d",
    metavar="DIR",
    default=DEFAULT_DIRECTORY,
    type=click.Path(file_okay=False),
    show_default=f"./{DEFAULT_DIRECTORY}",
    callback=_check_platform,
    help="The directory of the cluster, which identifies it to all commands.",
)
node_argument: Callable[[F], F] = click.argument("node", metavar="N", type=int, shell_complete=_complete_nodes)


@click.group()
def cluster() -> None:
    """Start a cluster on this machine, kill and restart its nodes, and show who leads and follows what."""


@cluster.command(short_help="Start a cluster of several brokers on this machine.")
@click.option("--nodes", "-n", type=click.IntRange(1, NODES_MAX), help=f"How many brokers. Default: {DEFAULT_NODES}")
@data_dir_option
@click.option(
    "--base-port", "-p", type=click.IntRange(1, PORT_MAX), help=f"The port of node 1. Default: {DEFAULT_BASE_PORT}"
)
@click.option("--override", "-o", "overrides", metavar="K=V", multiple=True, help="Any setting of Kafka's; repeatable.")
@click.option("--secure", is_flag=True, help="TLS, passwords and ACLs, set up automatically; listen on all interfaces.")
@click.option("--listen", metavar="HOST", help="With --secure: the interface for clients. Default: all")
@click.option(
    "--advertise", metavar="HOST", help="With --secure: the name that clients connect to. Later starts remember it."
)
@secure_name_option
@log_level_option
@log_format_option
@click.pass_context
def start(
    ctx: click.Context,
    nodes: int | None,
    data_dir: str,
    base_port: int | None,
    overrides: tuple[str, ...],
    secure: bool,
    listen: str | None,
    advertise: str | None,
    secure_names: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Start a cluster of several brokers, each a process of its own, and serve until Ctrl-C.

    Nodes are numbered from 1, with consecutive ports. Every node is broker and controller. Their server.properties
    are written when the cluster is new; edit them as you like. A node that dies is reported, not restarted:
    `moldau cluster restart` does that.

    With --secure the first start makes an authority and certificates, a user `admin` with a random password, and
    client.properties in the data directory, which all tools take by --command-config. Without it, the cluster can be
    reached from this machine only.

    \b
    moldau cluster start
    moldau cluster start --secure --advertise kafka.example.com
    moldau cluster start --nodes 5 --data-dir /var/lib/moldau --base-port 19092
    """
    from moldau.cli.cluster.foreground import Foreground
    from moldau.cli.cluster.screen import screen
    from moldau.cli.kafka.storage import random_uuid

    directory = ClusterDirectory(Path(data_dir))
    check_not_running(directory)
    output = _log_output(log_level, log_format)
    if not secure and (listen or advertise or secure_names):
        raise CommandFailed("--listen, --advertise and --secure-name need --secure")
    security = Security(listen, advertise, secure_names) if secure else None
    description = directory.plan(nodes, base_port, _overrides(overrides), random_uuid(), output.variables(), security)
    check_ports_are_free(description)
    password = directory.lay_out(description, security)
    if secure:
        description = directory.with_advertised_hosts(description)
        directory.save(description)
    with screen(output.is_json) as cluster_screen:
        ctx.exit(Foreground(directory, description, cluster_screen, password).run())


def _overrides(texts: tuple[str, ...]) -> dict[str, str]:
    from moldau.base.setting_sources import SettingsError, parse_override

    try:
        return dict(parse_override(text) for text in texts)
    except SettingsError as error:
        raise CommandFailed(str(error)) from error


def _log_output(level: str | None, format: str | None) -> LogOutput:
    from moldau.cli.log.output import WrongLogChoice, choose

    try:
        return choose(level, format, os.environ)
    except WrongLogChoice as error:
        raise CommandFailed(str(error)) from error


@cluster.command(short_help="Stop all nodes in order.")
@data_dir_option
def stop(data_dir: str) -> None:
    """Stop all nodes of a cluster that runs on this machine, the leader of the quorum last.

    \b
    moldau cluster stop
    """
    directory = ClusterDirectory(Path(data_dir))
    description = directory.description()
    foreground = running_foreground(directory)
    if foreground is not None:
        foreground.signal(signal.SIGTERM)
        _await(lambda: not foreground.is_alive, f"process {foreground.pid} does not end", STOP_ALL_SECONDS)
    alive = live_processes(directory, description)
    if foreground is None and not alive:
        raise CommandFailed(f"the cluster in {directory.path} is not running")
    if not stop_all(directory, description, alive, lambda line: click.echo(line, err=True)):
        raise CommandFailed(
            "some nodes did not stop in time and were killed; they recover their logs at the next start"
        )
    click.echo("stopped")


@cluster.command(short_help="Show which nodes are up, and who leads the quorum.")
@format_option
@data_dir_option
def status(data_dir: str, output_format: str) -> None:
    """Show the nodes of a cluster on this machine: which are up, who leads the quorum, and their memory.

    \b
    moldau cluster status
    moldau cluster status --format json | jq '.[] | select(.state != "up")'
    """
    directory = ClusterDirectory(Path(data_dir))
    description = directory.description()
    alive = {process.node_id: process for process in live_processes(directory, description)}
    leader_id = quorum_leader(directory, description, alive.values())
    rows = [_status_row(description, node.id, alive.get(node.id), leader_id) for node in description.nodes]
    columns = ("NODE", "PID", "ROLES", "ADDRESS", "STATE", "QUORUM", "MEMORY")
    show(output_format, Table(columns, rows))


def _status_row(
    description: Description, node_id: int, process: NodeProcess | None, leader_id: int | None
) -> tuple[Any, ...]:
    node = description.node(node_id)
    if process is None:
        return node_id, None, node.roles, node.address, NodeState.DOWN.value, None, None
    state, memory = process.state(), PROCESSES.memory_bytes(process.identity.pid)
    quorum = None if leader_id is None else "leader" if node_id == leader_id else "follower"
    if not node.controller_port:
        quorum = None
    size = Bytes(memory) if memory is not None else None
    return node_id, process.identity.pid, node.roles, node.address, state.value, quorum, size


@cluster.command(short_help="Kill a node as a crash would (SIGKILL).")
@node_argument
@data_dir_option
def kill(node: int, data_dir: str) -> None:
    """Kill node N with SIGKILL, as a crash would. The cluster goes on without it.

    \b
    moldau cluster kill 2
    """
    _signal(data_dir, node, signal.SIGKILL)
    directory = ClusterDirectory(Path(data_dir))
    if directory.description().shared_port and running_foreground(directory) is not None:
        click.echo(f"node {node} is killed; `moldau start --cores` restarts it")
    else:
        click.echo(f"node {node} is killed; `moldau cluster restart {node}` brings it back")


@cluster.command(short_help="Suspend a node (SIGSTOP).")
@node_argument
@data_dir_option
def pause(node: int, data_dir: str) -> None:
    """Suspend node N with SIGSTOP: its connections stay open, but it does not answer.

    \b
    moldau cluster pause 2
    """
    _signal(data_dir, node, signal.SIGSTOP)
    click.echo(f"node {node} is paused; `moldau cluster resume {node}` resumes it")


@cluster.command(short_help="Resume a paused node (SIGCONT).")
@node_argument
@data_dir_option
def resume(node: int, data_dir: str) -> None:
    """Resume node N after `moldau cluster pause`.

    \b
    moldau cluster resume 2
    """
    _signal(data_dir, node, signal.SIGCONT)
    click.echo(f"node {node} is resumed")


def _signal(data_dir: str, node_id: int, number: int) -> None:
    directory = ClusterDirectory(Path(data_dir))
    directory.description().node(node_id)
    process = live_process(directory, node_id)
    if process is None or not process.identity.signal(number):
        raise CommandFailed(f"node {node_id} is not running; `moldau cluster restart {node_id}` starts it")
    if number == signal.SIGKILL:
        _await(lambda: not process.identity.is_alive, f"node {node_id} does not end")


@cluster.command(short_help="Start a node again, stopping it first if it runs.")
@node_argument
@data_dir_option
def restart(node: int, data_dir: str) -> None:
    """Start node N again; if it is running, stop it in order first.

    If `moldau cluster start` is running, it starts the node; else the node runs in the background until
    `moldau cluster stop`.

    \b
    moldau cluster restart 2
    """
    directory = ClusterDirectory(Path(data_dir))
    description = directory.description()
    description.node(node)
    began = time.monotonic()
    foreground = running_foreground(directory)
    if foreground is not None:
        process = _restart_by_foreground(directory, node, foreground)
    else:
        process = _restart_here(directory, description, node)
    _await(
        lambda: process.is_ready or not process.identity.is_alive,
        f"node {node} is not ready yet; see its log {process.log_path}",
    )
    if not process.identity.is_alive:
        raise CommandFailed(f"node {node} ended before it was ready; its log is {process.log_path}")
    click.echo(f"node {node} is up again after {time.monotonic() - began:.1f} s (process {process.identity.pid})")


def _restart_by_foreground(directory: ClusterDirectory, node_id: int, foreground: ProcessIdentity) -> NodeProcess:
    """Ask the running `moldau cluster start` by creating the node's restart file, and wait until the node has a
    new process."""
    before = last_process(directory, node_id)
    write_text(directory.restart_path(node_id), "")
    request = directory.restart_path(node_id)
    _await(
        lambda: not request.exists() or not foreground.is_alive,
        f"process {foreground.pid}, which runs the cluster, does not react to {request}",
    )
    after = last_process(directory, node_id)
    if after is None or after == before:
        if foreground.is_alive:
            raise CommandFailed(f"process {foreground.pid}, which runs the cluster, could not start node {node_id}")
        raise CommandFailed("the cluster was stopped in the meantime")
    return after


def _restart_here(directory: ClusterDirectory, description: Description, node_id: int) -> NodeProcess:
    process = live_process(directory, node_id)
    if process is not None:
        stop_one(process, lambda line: click.echo(line, err=True))
    directory.renew_if_due(description)
    return spawn(directory, description, node_id)[0]


def _await(is_done: Callable[[], bool], complaint: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise CommandFailed(complaint)
        time.sleep(LOOK_EVERY_S)


cluster.add_command(info)
cluster.add_command(describe)
