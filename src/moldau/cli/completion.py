"""Shell completion: `moldau completion SHELL`, and the completion of names of topics, groups and transactions.

Commands name the completers in their options, so clients are imported only when a shell asks for names.
"""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem, get_completion_class

from moldau.cli.connect import (
    COMPLETION_SECONDS,
    CommandFailed,
    completion_broker,
    is_internal,
)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that teaches SHELL to complete moldau's commands and options, and names of topics and groups.

    \b
    eval "$(moldau completion bash)"          in ~/.bashrc
    eval "$(moldau completion zsh)"           in ~/.zshrc
    moldau completion fish | source           in ~/.config/fish/config.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "moldau", "_MOLDAU_COMPLETE").source())


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete topic names; silent if no broker answers within COMPLETION_SECONDS."""
    from moldau.cli.cluster.connect import answering_cluster

    with suppress(CommandFailed), answering_cluster(completion_broker(ctx), COMPLETION_SECONDS) as cluster:
        topics = cluster.topics()
        with_internal = incomplete.startswith("_")
        return [
            CompletionItem(name)
            for name in sorted(topics)
            if name.startswith(incomplete) and (with_internal or not is_internal(name))
        ]
    return []


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete group names; silent if no broker answers within COMPLETION_SECONDS."""
    from moldau.cli.group.connect import group_connection

    with suppress(CommandFailed), group_connection(completion_broker(ctx), COMPLETION_SECONDS) as connection:
        names = sorted(group.group_id for group in connection.groups.listed())
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return []


def complete_transactional_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete transactional ids, with their states; silent if no broker answers within COMPLETION_SECONDS."""
    from moldau.cli.transaction.connect import transaction_connection

    with suppress(CommandFailed), transaction_connection(completion_broker(ctx), COMPLETION_SECONDS) as connection:
        return [
            CompletionItem(listed.transactional_id, help=listed.state)
            for listed in sorted(connection.transactions.listed())
            if listed.transactional_id.startswith(incomplete)
        ]
    return []
