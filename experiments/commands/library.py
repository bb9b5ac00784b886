"""The functions for notebooks: a trained model, finished runs as rows, a training.

They are available from `experiments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.cells.cell import execute, folder_of
from experiments.config.check import from_tree
from experiments.config.command_line import check_single
from experiments.config.compose import compose
from experiments.config.recorded import config_here
from experiments.display.lines import warn
from experiments.failures.failure import Mistake
from experiments.failures.unread import check_none_idle
from experiments.record.folder import RunFolder
from experiments.record.result import Result
from experiments.results.checked import ended_results
from experiments.results.columns import table_of
from experiments.results.find import find_run
from experiments.results.selection import matching
from experiments.settings.group import known_checkpoint
from experiments.settings.plugins import take
from experiments.settings.run import Settings
from experiments.tasks.trained import load_trained

if TYPE_CHECKING:
    from experiments.data.tokenizer import Tokenizer
    from experiments.model.transformer import Transformer


class Loaded(NamedTuple):
    """A trained run, without its text."""

    model: Transformer  # on the CPU, in float32, in evaluation mode
    tokenizer: Tokenizer
    settings: Settings


def load(run: str | Path, runs: str | Path = "runs", checkpoint: str = "best") -> Loaded:
    """The model of a run with its weights, its tokenizer and its settings.

    run: a run folder, its name in `runs`, or the unique start of it. checkpoint: best, with the lowest validation loss,
    or newest. Raises Mistake if there is no such run, or none of its checkpoints is good.
    """
    from experiments.data import tokenizer as tokenizers
    from experiments.model.check_inputs import check_inputs_of

    which = known_checkpoint(checkpoint, f"checkpoint={checkpoint!r}")
    folder = RunFolder(find_run(str(run), Path(runs)))
    settings = from_tree(config_here(folder))
    tokenizer = tokenizers.load(folder.tokenizer_file())
    model, _, _ = load_trained(folder, settings, tokenizer, which, warn)
    check_inputs_of(model)
    return Loaded(model, tokenizer, settings)


def runs(folder: str | Path = "runs", **filters: Any) -> Any:
    """The finished runs of a folder, one row each, with the columns of `attn compare`.

    filters: as for `attn compare`: variant="talking_heads", or heads=[6, 24] for either value. A key with a dot is
    given as **{"optimizer.clip": 1}. Returns a DataFrame if pandas is installed, else a list of dicts. Raises Mistake
    if there is no such folder, and for a key that no run has.
    """
    if not Path(folder).is_dir():
        raise Mistake(f"there is no folder {str(folder)!r}")
    selection = [
        f"{key}={value if isinstance(value, str) or not isinstance(value, Iterable) else ','.join(map(str, value))}"
        for key, value in filters.items()
    ]
    results = matching(selection, ended_results(Path(folder), [], warn))
    rows = table_of(results) if results else []
    if find_spec("pandas") is None:
        return rows
    import pandas

    return pandas.DataFrame(rows)


def train(overrides: Sequence[str] = ()) -> Result:
    """Train with these overrides in this process, as `attn train` does. A finished run returns its result at once.

    Raises Mistake for wrong settings, Failure if the run cannot continue, KeyboardInterrupt after Ctrl-C.
    """
    if isinstance(overrides, str):
        raise Mistake("the overrides are a text, must be a list of them", f"experiments.train([{overrides!r}])")
    words = take([*overrides])
    check_single(words)
    settings = compose(words)
    check_none_idle(words, [settings.idle()])
    execute(settings)
    result = folder_of(settings).result()
    if result is None or result.status == "interrupted":
        raise KeyboardInterrupt("the same call goes on")
    return result
