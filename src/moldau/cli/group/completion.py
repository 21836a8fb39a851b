"""Group names for the shell. Light: commands name it in their options, and pay for it only when a shell asks."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from moldau.cli.connect import COMPLETION_SECONDS, CommandFailed, broker_so_far


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Quick, and silent when nobody answers."""
    from moldau.cli.group.connect import group_client

    with suppress(CommandFailed), group_client(broker_so_far(ctx), COMPLETION_SECONDS) as client:
        names = sorted(group.group_id for group in client.groups.listed())
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []
