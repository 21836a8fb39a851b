"""`moldau start`: start a broker on this machine, with defaults or with Kafka's own settings.

`moldau.cli.kafka.server_start` starts the server; this module only has the options. Import no client library and no
table code: the whole start has to take less than half a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from moldau.base.limits import PORT_MAX
from moldau.base.setting_sources import SettingsError, SettingText, parse_override
from moldau.base.settings.log import LOG_DIRS
from moldau.base.settings.node import ADVERTISED_LISTENERS, LISTENERS
from moldau.cli.cores.options import cores_option, machines_option
from moldau.cli.kafka.server_start import announce_plainly, choose_log_output, print_warning, serve
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.log.options import log_format_option, log_level_option
from moldau.cli.secure_options import secure_name_option
from moldau.cli.side_processes import Address, SideProcesses, asked_for, console_option, gateway_option, mqtt_option
from moldau.cli.stop_signals import STOP_WITH_STDIN, stop_with_stdin
from moldau.platforms.support import refusal_text
from moldau.settings import Settings, from_texts, log_dirs, read_texts

DEFAULT_PORT: Final = 9092


@click.command(short_help="Start a broker on this machine.")
@click.option("--config", "-c", "file", metavar="FILE", help="A server.properties file, with Kafka's names.")
@click.option("--data-dir", "-d", metavar="DIR", help="Where data is kept (log.dirs). Default: ./moldau-data")
@click.option("--listen", "-l", metavar="HOST:PORT", help="Where to listen (listeners). Default: localhost:9092")
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="What clients connect to (advertised.listeners). With --secure, later starts remember it.",
)
@click.option("--override", "-o", "overrides", metavar="K=V", multiple=True, help="Any setting of Kafka's; repeatable.")
@cores_option
@machines_option
@console_option
@gateway_option
@mqtt_option
@click.option("--secure", is_flag=True, help="TLS, passwords and ACLs, set up automatically; listen on all interfaces.")
@secure_name_option
@log_level_option
@log_format_option
@click.pass_context
def start(
    ctx: click.Context,
    file: str | None,
    data_dir: str | None,
    listen: str | None,
    advertise: str | None,
    overrides: tuple[str, ...],
    cores: int,
    machines: str | None,
    console_listen: str | None,
    gateway_listen: str | None,
    mqtt_listen: str | None,
    secure: bool,
    secure_names: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Start a broker on this machine and serve until Ctrl-C.

    Settings have Kafka's names and come, each winning over the one before, from the file, from KAFKA_* variables of
    the environment and from --override; an option such as --listen wins over the file and the variables, and excludes
    the same --override. An empty data directory is made ready by itself.

    With --secure the first start makes an authority and certificates, a user `admin` with a random password, and
    client.properties in the data directory, which all tools take by --command-config. Later starts use them again.

    With --cores N the broker is N nodes, each a process. Clients connect to one port, and learn from any node which of
    them leads which partition; node K listens on the Kth port above. A node that dies is restarted. A partition is
    served by one node, so topics need as many partitions as there are cores, or more.

    \b
    moldau start
    moldau start --console
    moldau start --gateway --mqtt
    moldau start --cores all
    moldau start --secure
    moldau start --secure --advertise kafka.example.com
    moldau start --listen localhost:19092 --data-dir /var/lib/moldau
    moldau start --config server.properties --override num.partitions=6
    moldau start --log-level warning --log-format json
    """
    if secure_names and not secure:
        raise click.UsageError("--secure-name needs --secure", ctx)
    beside = asked_for(console_listen, gateway_listen, mqtt_listen)
    if cores > 1 or machines is not None:
        _refuse_beside_cores(ctx, beside)
    if os.environ.get(STOP_WITH_STDIN):
        stop_with_stdin()
    protocol = "SASL_SSL" if secure else "PLAINTEXT"
    _refuse_the_same_twice(ctx, listener_flags(data_dir, listen, advertise, protocol), overrides)

    def setting_texts() -> dict[str, SettingText]:
        others = read_texts(file, os.environ, [parse_override(text) for text in overrides])
        return {**others, **listener_flags(data_dir, listen, advertise, protocol, others)}

    try:
        if cores > 1 or machines is not None:
            names = secure_names if secure else None
            ctx.exit(_serve_by_cores(setting_texts, cores, machines, names, log_level, log_format))
        _refuse_directory_of_nodes(setting_texts)
        processes = SideProcesses(beside)
        try:
            if secure:
                ctx.exit(_serve_secured(setting_texts, secure_names, log_level, log_format, processes))
            ctx.exit(_serve_plainly(setting_texts, log_level, log_format, processes))
        finally:
            processes.stop()
    except ToolFailed as failed:
        raise click.ClickException(str(failed)) from failed


def _refuse_the_same_twice(ctx: click.Context, flags: Mapping[str, SettingText], overrides: Sequence[str]) -> None:
    """Fail if an option and --override set the same: one of them would have no effect."""
    overridden = {text.partition("=")[0].strip() for text in overrides}
    for key, setting in flags.items():
        if key in overridden:
            raise click.UsageError(f"{setting.origin} and --override {key}= set the same; give one of them", ctx)


def _refuse_beside_cores(ctx: click.Context, beside: Sequence[Address]) -> None:
    for each in beside:
        command = each.kind.command
        raise click.UsageError(f"{each.option} is for one node; run `moldau {command}` beside --cores", ctx)


def _serve_plainly(
    setting_texts: Callable[[], dict[str, SettingText]],
    log_level: str | None,
    log_format: str | None,
    processes: SideProcesses,
) -> int:
    def settings() -> Settings:
        return processes.checked(from_texts(setting_texts(), os.environ))

    return serve(settings, log_level, log_format, processes.announcing_then_starting(announce_plainly))


def _serve_secured(
    setting_texts: Callable[[], dict[str, SettingText]],
    secure_names: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
    processes: SideProcesses,
) -> int:
    from moldau.cli.secure_start import SecureStart

    try:
        secure_start = SecureStart(setting_texts(), os.environ, secure_names, processes.start)
    except SettingsError as error:
        raise ToolFailed(str(error)) from error
    return serve(lambda: processes.checked(secure_start.prepare()), log_level, log_format, secure_start.announce)


def _serve_by_cores(
    setting_texts: Callable[[], dict[str, SettingText]],
    cores: int,
    machines: str | None,
    secure_names: tuple[str, ...] | None,
    log_level: str | None,
    log_format: str | None,
) -> int:
    from moldau.cli.cores.start import CoresStart

    if line := refusal_text("`moldau start --cores`"):
        raise ToolFailed(line)
    output = choose_log_output(log_level, log_format)
    try:
        return CoresStart(setting_texts(), os.environ, cores, machines, secure_names).run(output)
    except SettingsError as error:
        for warning in error.warnings:
            print_warning(warning)
        raise ToolFailed(str(error)) from error


def _refuse_directory_of_nodes(setting_texts: Callable[[], dict[str, SettingText]]) -> None:
    """Fail if the directory has a file that describes several nodes."""
    try:
        path = log_dirs(setting_texts())[0]
    except SettingsError:
        return  # reported when the settings are read, in the chosen format of log lines
    if os.path.exists(os.path.join(path, "cluster.json")):
        from moldau.cli.cores.start import directory_of_nodes

        raise ToolFailed(directory_of_nodes(path))


def listener_flags(
    data_dir: str | None,
    listen: str | None,
    advertise: str | None = None,
    protocol: str = "PLAINTEXT",
    others: Mapping[str, SettingText] | None = None,
) -> dict[str, SettingText]:
    """Return the settings of these options. `protocol` is also the name of the listener. The advertised port is that of
    the listener, which may be in `others`, the settings from other sources."""
    flags: dict[str, SettingText] = {}
    if data_dir is not None:
        flags[LOG_DIRS.name] = SettingText(data_dir, "--data-dir")
    if listen is not None:
        flags[LISTENERS.name] = SettingText(f"{protocol}://{_address(listen)}", "--listen")
    if advertise is not None:
        from moldau.secure_setup.settings import with_port

        port = listen.rpartition(":")[2] if listen is not None else _port_of_listener(protocol, others or {})
        flags[ADVERTISED_LISTENERS.name] = SettingText(f"{protocol}://{with_port(advertise, port)}", "--advertise")
    return flags


def _port_of_listener(name: str, texts: Mapping[str, SettingText]) -> str:
    listeners = texts[LISTENERS.name].text if LISTENERS.name in texts else ""
    found = re.search(rf"(?:^|,)\s*{name}://[^,]*:([0-9]+)\s*(?:,|$)", listeners, re.IGNORECASE)
    return found[1] if found else str(DEFAULT_PORT)


def _address(listen: str) -> str:
    """Check HOST:PORT here, so that the error shows the option as it was written, without a listener's name."""
    _, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise click.ClickException(f"--listen {listen}: expected HOST:PORT, such as localhost:9092")
    return listen
