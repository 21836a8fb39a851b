"""Transactional ids for the shell. Light: commands name it in their options, and pay for it only when a shell asks."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from moldau.cli.connect import COMPLETION_SECONDS, CommandFailed, broker_so_far


def complete_transactional_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Quick, and silent when nobody answers."""
    from moldau.cli.transaction.connect import transaction_client

    with suppress(CommandFailed), transaction_client(broker_so_far(ctx), COMPLETION_SECONDS) as client:
        listed = sorted(client.transactions.listed())
        return [
            CompletionItem(each.transactional_id, help=each.state)
            for each in listed
            if each.transactional_id.startswith(incomplete)
        ]
    return []
