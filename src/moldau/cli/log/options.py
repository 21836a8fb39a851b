"""The options --log-level and --log-format of the commands that start servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from moldau.cli.log.output import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS

F = TypeVar("F", bound=Callable[..., Any])

log_level_option: Callable[[F], F] = click.option(
    "--log-level",
    type=click.Choice(list(LEVELS), case_sensitive=False),
    help=f"The lowest level that is logged. Default: {LEVEL_VARIABLE}, or info",
)
log_format_option: Callable[[F], F] = click.option(
    "--log-format",
    type=click.Choice(FORMATS, case_sensitive=False),
    help=f"Log lines as text, or as one JSON object per line. Default: {FORMAT_VARIABLE}, or text",
)
