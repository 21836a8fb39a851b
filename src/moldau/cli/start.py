"""`moldau start`: start a broker on this machine, with defaults or with Kafka's own settings.

`moldau.cli.kafka.server_start` starts the server; this module only has the options. Import no client library and no
table code: the whole start has to take less than half a second.
"""

from __future__ import annotations

import os
from typing import Final

import click

from moldau.base.setting_sources import SettingText, parse_override
from moldau.cli.kafka.server_start import serve
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.log.options import log_format_option, log_level_option
from moldau.settings import Settings, load

PORT_MAX: Final = 65_535


@click.command(short_help="Start a broker on this machine.")
@click.option("--config", "-c", "file", metavar="FILE", help="A server.properties file, with Kafka's names.")
@click.option("--data-dir", "-d", metavar="DIR", help="Where data is kept (log.dirs). Default: ./moldau-data")
@click.option("--listen", "-l", metavar="HOST:PORT", help="Where to listen (listeners). Default: localhost:9092")
@click.option("--override", "-o", "overrides", metavar="K=V", multiple=True, help="Any setting of Kafka's; repeatable.")
@log_level_option
@log_format_option
@click.pass_context
def start(
    ctx: click.Context,
    file: str | None,
    data_dir: str | None,
    listen: str | None,
    overrides: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Start a broker on this machine and serve until Ctrl-C.

    Settings have Kafka's names and come, each winning over the one before, from the file, from KAFKA_* variables of
    the environment and from --override. An empty data directory is made ready by itself.

    \b
    moldau start
    moldau start --listen 0.0.0.0:9092 --data-dir /var/lib/moldau
    moldau start --config server.properties --override num.partitions=6
    moldau start --log-level warning --log-format json
    """
    flags = listener_flags(data_dir, listen)

    def read_settings() -> Settings:
        return load(file, os.environ, [parse_override(text) for text in overrides], flags)

    try:
        ctx.exit(serve(read_settings, log_level, log_format))
    except ToolFailed as failed:
        raise click.ClickException(str(failed)) from failed


def listener_flags(data_dir: str | None, listen: str | None) -> dict[str, SettingText]:
    flags: dict[str, SettingText] = {}
    if data_dir is not None:
        flags["log.dirs"] = SettingText(data_dir, "--data-dir")
    if listen is not None:
        flags["listeners"] = SettingText(f"PLAINTEXT://{_address(listen)}", "--listen")
    return flags


def _address(listen: str) -> str:
    """Check HOST:PORT here, so that the error shows the option as it was written, without a listener's name."""
    _, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise click.ClickException(f"--listen {listen}: expected HOST:PORT, such as localhost:9092")
    return listen
