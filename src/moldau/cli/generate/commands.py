"""`moldau generate`: files for the programs that watch a cluster: Prometheus, its alerts, Grafana."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import click

from moldau.base.limits import PORT_MAX
from moldau.cli.connect import CommandFailed
from moldau.cli.generate import alerts as alert_rules
from moldau.cli.generate import dashboard, scraping

JOB: Final = "moldau"
_JOB_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]+")
_TARGET: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_INTERVAL: Final = re.compile(r"(?=.)(?:[0-9]{1,6}h)?(?:[0-9]{1,6}m)?(?:[0-9]{1,6}s)?(?:[0-9]{1,6}ms)?")
"""A duration of Prometheus: larger units come first, each at most once."""

output_option = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write to FILE, not to the terminal."
)


def _check_job(ctx: click.Context, param: click.Parameter, name: str) -> str:
    if not _JOB_NAME.fullmatch(name):
        raise click.BadParameter("expected letters, digits and . _ - : / only")
    return name


job_option = click.option(
    "--job", metavar="NAME", default=JOB, show_default=True, callback=_check_job, help="The name of the scrape job."
)


@click.group()
def generate() -> None:
    """Write files for the programs that watch a cluster: Prometheus, its alerts, Grafana.

    \b
    moldau generate prometheus --cluster ./moldau-data-cluster --rules alerts.yml -o prometheus.yml
    moldau generate alerts -o alerts.yml
    moldau generate grafana -o moldau.json
    prometheus --config.file=prometheus.yml
    """


@generate.command(short_help="A dashboard for Grafana.")
@click.option("--title", default="Moldau", show_default=True, help="The title of the dashboard.")
@job_option
@output_option
def grafana(title: str, job: str, output: str | None) -> None:
    """Write a dashboard as JSON. In Grafana: Dashboards, New, Import.

    \b
    moldau generate grafana -o moldau.json
    """
    _write(json.dumps(dashboard.dashboard(title, job), indent=1) + "\n", output)


@generate.command(short_help="Alert rules for Prometheus.")
@job_option
@output_option
def alerts(job: str, output: str | None) -> None:
    """Write alert rules: what is wrong, and what to do about it.

    \b
    moldau generate alerts -o alerts.yml
    promtool check rules alerts.yml
    """
    _write(alert_rules.rules_text(job), output)


@generate.command(short_help="A configuration of Prometheus.")
@click.argument("targets", metavar="[HOST:PORT]...", nargs=-1)
@click.option(
    "--cluster",
    "directory",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="The directory of a cluster of `moldau cluster start`: scrape all its nodes.",
)
@click.option(
    "--pipeline",
    "pipelines",
    metavar="HOST:PORT",
    multiple=True,
    help="Where `moldau pipeline run --metrics` serves; repeatable.",
)
@click.option("--interval", default="15s", show_default=True, help="How often to scrape, such as 500ms, 15s or 1m.")
@click.option("--rules", metavar="FILE", multiple=True, help="A file of alert rules; repeatable.")
@job_option
@output_option
def prometheus(
    targets: tuple[str, ...],
    directory: str | None,
    pipelines: tuple[str, ...],
    interval: str,
    rules: tuple[str, ...],
    job: str,
    output: str | None,
) -> None:
    """Write a configuration that scrapes nodes, each at its `metrics.listener`, and runs of pipelines.

    \b
    moldau generate prometheus localhost:9404
    moldau generate prometheus localhost:9404 --pipeline localhost:9405
    moldau generate prometheus --cluster ./moldau-data-cluster --rules alerts.yml -o prometheus.yml
    """
    addresses = [*targets, *(_metrics_addresses(directory) if directory else ())]
    if not addresses:
        raise CommandFailed("no nodes to scrape: name the HOST:PORT of their metrics.listener, or use --cluster DIR")
    for address in (*addresses, *pipelines):
        if not _TARGET.fullmatch(address) or not 0 < int(address.rpartition(":")[2]) <= PORT_MAX:
            raise CommandFailed(f"{address!r} is not HOST:PORT, such as localhost:9404")
    if not _INTERVAL.fullmatch(interval) or not any(digit in interval for digit in "123456789"):
        raise CommandFailed(f"{interval!r} is not a time above 0; write it as 500ms, 15s or 1m")
    _write(scraping.configuration_text(addresses, pipelines, job, interval, rules), output)


def _metrics_addresses(directory: str) -> list[str]:
    from moldau.cli.cluster.addresses import metrics_listener
    from moldau.cli.cluster.directory import ClusterDirectory

    cluster = ClusterDirectory(Path(directory))
    description = cluster.description()
    paths = {node.id: cluster.properties_path(node.id) for node in description.nodes}
    listeners = {id: metrics_listener(path, description.overrides) for id, path in paths.items()}
    addresses = {id: each.on_this_machine.address for id, each in listeners.items() if each is not None and each.port}
    if not addresses and description.shared_port:
        raise CommandFailed(
            f"the nodes of `{description.start_command}` in {directory} have no fixed ports for metrics; with"
            " --override metrics.listener=localhost:0 each logs the address of its own, which can be given here"
        )
    if not addresses:
        raise CommandFailed(
            f"the nodes in {directory} serve no metrics at a fixed port: set metrics.listener in"
            f" {next(iter(paths.values()))} and in those of the other nodes"
        )
    if left_out := [f"node {id}" for id in paths if id not in addresses]:
        click.echo(f"moldau: left out, without a fixed port in metrics.listener: {', '.join(left_out)}", err=True)
    return list(addresses.values())


def _write(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise CommandFailed(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"written: {output}", err=True)
