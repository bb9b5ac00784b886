"""click's part of the command line: how it finds commands and options, and how a command that ends early says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from typer.core import TyperGroup

from experiments.commands.frame.ending import explained, stdout_flushed
from experiments.failures.failure import Mistake
from experiments.failures.wording import did_you_mean
from experiments.processes.interruption import Interrupted

# click's, of which some versions of Typer have a copy
UsageError: Any = typer.BadParameter.__base__


class Commands(TyperGroup):
    """The commands; each also accepts a folder with the user's own additions to the project."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Use the folder, and read the other arguments."""
        if any(argument.startswith(("plugins=", "--config-dir", "-cd")) for argument in args[1:]):
            from experiments.settings.plugins import take

            # while the shell completes a word, no message can be shown
            with suppress(Mistake) if ctx.resilient_parsing else _ending(ctx, args[0]):
                args = [args[0], *take(args[1:])]
        if not args:
            # the help is an error too
            return super().parse_args(ctx, args)
        with _ending(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the command."""
        with _ending(ctx):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first of the arguments names."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise Mistake(f"there is no command {args[0]}" + did_you_mean(args[0], self.commands))
        return super().resolve_command(ctx, args)


def given_options(ctx: Any) -> dict[str, Any]:
    """The options that were typed, with their values."""
    options = {each.name: each.opts[0] for each in ctx.command.params if each.param_type_name == "option"}
    # the class of a source belongs to click or to Typer, depending on Typer's version
    sources = {name: str(ctx.get_parameter_source(name)) for name in options}
    return {options[name]: ctx.params[name] for name, source in sources.items() if source.endswith("COMMANDLINE")}


@contextmanager
def _ending(ctx: Any, name: str = "") -> Iterator[None]:
    """Print in a line or two why a command ended early, and exit with the right code. A bug passes on to `main`.

    A mistake in its arguments is refused in the words for a wrong setting.
    """
    try:
        try:
            with stdout_flushed():
                yield
        except UsageError as error:
            if ctx.resilient_parsing:
                raise
            raise _usage_mistake(error, _typed(ctx, name)) from error
    except (Exception, KeyboardInterrupt, Interrupted) as error:
        if (code := explained(error, _typed(ctx, name))) is None:
            raise
        raise typer.Exit(code) from error


def _typed(ctx: Any, name: str) -> str:
    """The words that begin the command line: `attn train`; `attn` where the command is not known yet."""
    return f"attn {name or ctx.invoked_subcommand or ''}".rstrip()


def _usage_mistake(error: Any, typed: str) -> Mistake:
    # of a wrong value, only the error behind it knows the value
    param, cause = getattr(error, "param", None), error.__cause__
    if param is not None and cause is not None:
        from experiments.config.validation_messages import of_option

        name = f"--{param.name}" if param.param_type_name == "option" else str(param.name)
        return of_option(name.replace("_", "-"), cause)
    if hasattr(error, "possibilities") and (option := getattr(error, "option_name", None)):
        known = [name for each in error.ctx.command.params for name in each.opts]
        return Mistake(f"there is no option {option}" + did_you_mean(option, known))
    if param is not None and not error.message:
        said = f"{param.metavar or param.name} is missing"
    else:
        said = error.message[:1].lower() + error.message[1:].rstrip(".")
    return Mistake(said, f"{typed} --help shows how to write it")
