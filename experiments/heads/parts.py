"""The parts of a model whose attention is reported separately: encoder, decoder and cross in an encoder-decoder.

In other models all layers form one part. A head is named by its part, its layer and its number: `cross 1-4`.
"""

# L layers, H heads

from __future__ import annotations

from typing import NamedTuple

from experiments.model.transformer import Transformer


class Part(NamedTuple):
    """Attention layers that read the same tokens."""

    name: str  # encoder, decoder or cross; empty if there is one part
    places: range  # in `model.attentions`
    queries: str = "tokens"  # the input of the model whose tokens attend
    memory: str = "tokens"  # the input whose tokens are attended to

    @property
    def title(self) -> str:
        """The title above its figures; empty if there is only one part."""
        kind = (
            "attention of the decoder to the encoder" if self.name == "cross" else f"self-attention of the {self.name}"
        )
        return kind.capitalize() if self.name else ""

    @property
    def row(self) -> dict[str, str]:
        """The columns that name the part in a table; none if there is only one part."""
        return {"attention": self.name} if self.name else {}

    def of(self, name: str) -> str:
        """The name of one of the part's files."""
        return f"{name}_{self.name}" if self.name else name

    def head(self, layer: int, head: int) -> str:
        """The name of a head, `2-3` or `cross 2-3`; layer and head count from 1."""
        return f"{self.name} {layer}-{head}".strip()


def parts_of(model: Transformer) -> list[Part]:
    """The parts of a model, in the order of `model.attentions`: self-attention of every layer, then the decoder's."""
    layers, decoder = len(model.layers), decoder_layers(model)
    if not decoder:
        return [Part("", range(layers))]
    return [
        Part("encoder", range(layers - decoder)),
        Part("decoder", range(layers - decoder, layers), "decoder_tokens", "decoder_tokens"),
        Part("cross", range(layers, layers + decoder), "decoder_tokens", "tokens"),
    ]


def decoder_layers(model: Transformer) -> int:
    """The number of layers that also attend to an encoder: those of the decoder in an encoder-decoder, else none."""
    return len(model.attentions) - len(model.layers)
