"""`railhop completion`: what a shell needs to complete railhop's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from railhop.cli.common import examples

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=examples(
        "railhop completion bash > /etc/bash_completion.d/railhop",
        'railhop completion zsh > "${fpath[1]}/_railhop"',
        "railhop completion fish > ~/.config/fish/completions/railhop.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def COMMAND(ctx: click.Context, shell: str) -> None:  # noqa: N802
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    print(kind(ctx.find_root().command, {}, "railhop", "_RAILHOP_COMPLETE").source())
