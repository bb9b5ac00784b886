"""The answers to the flags of `attn train` that only ask: --cfg, --info, --help and --hydra-help."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from omegaconf import OmegaConf

from experiments.config.command_line import (
    HELP_FLAGS,
    PACKAGE_FLAGS,
    PRINTING_FLAGS,
    CommandLine,
    check_overrides,
    hydra_main,
    value_of,
)
from experiments.config.compose import compose_raw, resolve
from experiments.config.expressions import lines_in_words
from experiments.config.hydra_messages import hydra_errors_as_mistakes, near_key
from experiments.failures.failure import Mistake


def answer(line: CommandLine) -> None:
    """Print Hydra's answer to flags that only ask. Raises Mistake, and OSError if nobody reads the output."""
    check_overrides(line.overrides, line.primary)
    if printed := value_of(PRINTING_FLAGS, line.flags):
        _check_printed(line, printed)
    # all at once: Hydra's logging would print a traceback for each line that nobody reads
    answered = io.StringIO()
    try:
        with redirect_stdout(answered):
            hydra_main(lambda config: None, line)
    finally:
        output = answered.getvalue()
        print(lines_in_words(output) if HELP_FLAGS & {*line.flags} else output, end="", flush=True)


def _check_printed(line: CommandLine, printed: str) -> None:
    """Raises Mistake for a part that the printed configuration does not have, and for wrong values to be resolved."""
    overrides, flags, primary = line
    package = value_of(PACKAGE_FLAGS, flags) or "_global_"
    is_resolved = "--resolve" in flags and printed != "hydra"
    if package == "_global_" and not is_resolved:
        return
    composed = compose_raw(overrides, primary, with_hydra=True)
    settings = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    # the answer shows what must still be given
    if is_resolved and not OmegaConf.missing_keys(settings):
        resolve(settings)
    if package != "_global_":
        other = "job" if package.split(".")[0] == "hydra" else "hydra"
        with hydra_errors_as_mistakes(overrides, primary):
            if printed == other or OmegaConf.select(composed, package) is None:
                raise Mistake(f"--package {package}: there is no such setting", near_key(package, overrides, primary))
