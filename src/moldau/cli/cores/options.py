"""The option --cores. Import nothing here that a plain start does not need."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import CompletionItem

from moldau.platforms.machine import usable_cores

ALL: Final = "all"
CORES_MAX: Final = 99
"""More nodes than this would have the ids of the next machine."""


def _parse(ctx: click.Context, param: click.Parameter, text: str) -> int:
    if text == ALL:
        return min(usable_cores(), CORES_MAX)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= CORES_MAX):
        raise click.BadParameter(f"{text!r} is not a number from 1 to {CORES_MAX}, nor {ALL!r}.", ctx, param)
    return int(text)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    choices = (ALL, *map(str, range(1, usable_cores() + 1)))
    return [CompletionItem(each) for each in choices if each.startswith(incomplete)]


cores_option = click.option(
    "--cores",
    metavar="N|all",
    default="1",
    callback=_parse,
    shell_complete=_complete,
    help="How many nodes share the work, a core for each, behind one port. Default: 1",
)
machines_option = click.option(
    "--machines",
    metavar="HOST[:PORT],...",
    help="All machines of a cluster, this one too; the same list on each. Each may have its own --cores.",
)
