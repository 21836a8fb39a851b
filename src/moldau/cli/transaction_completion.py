"""Transactional ids for the shell. Light: commands name it in their options, and pay for it only when a shell asks."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from moldau.cli.connect import COMPLETION_SECONDS, DEFAULT_BOOTSTRAP, Broker, CommandFailed


def complete_transactional_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Quick, and silent when nobody answers."""
    from moldau.cli.transaction_connect import transaction_client

    servers = ctx.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP
    extra = dict(item.split("=", 1) for item in ctx.params.get("client_config") or () if "=" in item)
    with suppress(CommandFailed), transaction_client(Broker(servers, extra), COMPLETION_SECONDS) as client:
        listed = sorted(client.transactions.listed())
        return [
            CompletionItem(each.transactional_id, help=each.state)
            for each in listed
            if each.transactional_id.startswith(incomplete)
        ]
    return []
