"""`moldau doctor`: check this machine, and print a table of what it found, what is wrong and what to do.

moldau.doctor defines what is checked and how it is judged.
"""

from __future__ import annotations

import os
from typing import Any, Final

import click

from moldau.base.setting_sources import SettingsError, parse_override
from moldau.cli.connect import CommandFailed
from moldau.cli.output import Styled, Table, format_option, show
from moldau.cli.start import listener_flags
from moldau.platforms.support import refusal_text
from moldau.settings import Settings, load

COLUMNS: Final = ("CHECK", "STATUS", "FOUND", "TO DO")
STYLES: Final = {"ok": "green", "warning": "yellow", "broken": "bold red"}


@click.command(short_help="Look at this machine: what is wrong and what to do.")
@click.option("--config", "-c", "file", metavar="FILE", help="The server.properties of the broker to be started.")
@click.option("--data-dir", "-d", metavar="DIR", help="The directory it would keep its data in. Default: ./moldau-data")
@click.option("--listen", "-l", metavar="HOST:PORT", help="The address it would listen on. Default: localhost:9092")
@click.option("--override", "-o", "overrides", metavar="K=V", multiple=True, help="Any setting of Kafka's; repeatable.")
@format_option
@click.pass_context
def doctor(
    ctx: click.Context,
    file: str | None,
    data_dir: str | None,
    listen: str | None,
    overrides: tuple[str, ...],
    output_format: str,
) -> None:
    """Look at this machine: Python, packages, Java, Spark, ports, limits, disks, names, proxies, clock, cores, memory.

    Give it the --config, --data-dir, --listen and --override of your `moldau start`. It leaves nothing behind but the
    script that starts Spark's Java. The exit status is 1 if something is broken, 0 if all is fine or there are
    warnings only.

    \b
    moldau doctor
    moldau doctor --listen 0.0.0.0:9092 --data-dir /var/lib/moldau
    moldau doctor --format json | jq '.[] | select(.status != "ok")'
    """
    if line := refusal_text("`moldau doctor`"):
        raise CommandFailed(line)
    from moldau.doctor.finding import Finding, Status
    from moldau.doctor.gathering import gather
    from moldau.doctor.verdicts import judge

    settings = _settings(file, data_dir, listen, overrides)
    metrics = (settings.metrics_listener,) if settings.metrics_listener else ()
    listeners = (*settings.listeners, *settings.controller_listeners, *metrics)
    findings = judge(gather(listeners, settings.log_dirs[0], settings.reserve_bytes))

    def row(finding: Finding) -> tuple[Any, ...]:
        status = finding.status.value
        return finding.check, Styled(status, STYLES[status]), finding.found, finding.todo

    data = [
        {"check": finding.check, "status": finding.status.value, "found": finding.found, "todo": finding.todo}
        for finding in findings
    ]
    show(output_format, Table(COLUMNS, [row(finding) for finding in findings]), data=data)
    ctx.exit(1 if any(finding.status is Status.BROKEN for finding in findings) else 0)


def _settings(file: str | None, data_dir: str | None, listen: str | None, overrides: tuple[str, ...]) -> Settings:
    try:
        override_pairs = [parse_override(text) for text in overrides]
        return load(file, os.environ, override_pairs, listener_flags(data_dir, listen))
    except SettingsError as wrong:
        raise CommandFailed(str(wrong)) from wrong
