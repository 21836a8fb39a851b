"""`moldau completion SHELL`: the script a shell sources to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


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
