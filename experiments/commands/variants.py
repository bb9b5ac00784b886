"""`attn variants`: lists all variants, from the folder of YAML files alone."""

from __future__ import annotations

from typing import NamedTuple

from experiments.config.command_line import check_single
from experiments.config.compose import compose, compose_raw
from experiments.config.groups import options
from experiments.display.lines import warn
from experiments.display.rows import show
from experiments.failures.failure import Mistake
from experiments.failures.unread import unread_settings
from experiments.settings.conf_files import yaml_file
from experiments.settings.variant import keys_around_attention

# what the costs of a layer follow from; a group stands for all of its keys
READ_KEYS = {"variant", "model", "experiment", "heads", "key_size", "value_size", "hidden_size", "length"}
CACHE_BYTES = 2  # of a number that is kept


class Variant(NamedTuple):
    """A variant in the words of its YAML in `conf/variant`."""

    definition: str  # the first comment line
    paper: str  # the second
    further: list[str]  # the others

    @classmethod
    def read(cls, name: str) -> Variant:
        """The variant of this name. A line that its YAML lacks is empty."""
        lines = yaml_file("variant", name).read_text(encoding="utf-8").splitlines()
        comments = [line.lstrip("# ").strip() for line in lines if line.startswith("#")]
        definition, paper, *_ = [*comments, "", ""]
        return cls(definition, paper, comments[2:])


def print_variants(overrides: list[str], format: str) -> None:
    """Print a row for each variant: the cost of one attention layer for one sequence at the composed sizes."""
    if any(override.startswith("variant=") for override in overrides):
        raise Mistake("attn variants lists every variant", "give only sizes, such as heads=24 hidden_size=768")
    check_single(overrides)
    for text, key, _ in unread_settings(overrides, READ_KEYS, keys_around_attention()):
        # a key that there is not has a message of its own
        compose_raw(overrides)
        raise Mistake(f"{text}: attn variants does not use {key}", "it shows the costs of one attention layer")
    settings = compose(overrides)
    from experiments.model.layers.build_attention import build_attention
    from experiments.model.without_values import without_values

    rows = []
    for name in options("variant"):
        variant = Variant.read(name)
        try:
            settings = compose([*overrides, f"variant={name}"])
            with without_values():
                attention = build_attention(settings.variant)
            cost = attention.cost(settings.length, settings.length)
        except Exception as error:
            # one that is broken hides no other
            warn(f"left out: {name}: {error if str(error) else type(error).__name__}")
            continue
        rows.append(
            {
                "variant": name,
                "parameters": cost.parameters,
                "multiplies": cost.multiplies,
                "cache": CACHE_BYTES * cost.cached,
                "definition": variant.definition,
                "paper": variant.paper,
            }
        )
    sizes = " ".join(f"{key}={getattr(settings, key)}" for key in ("hidden_size", "heads", "key_size", "length"))
    caption = (
        f"The costs are those of one attention layer and one sequence, at {sizes}. The cache is the bytes of keys and "
        "values that are kept, in 16 bits."
    )
    show(rows, format, caption=caption)
