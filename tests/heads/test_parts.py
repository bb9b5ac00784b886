"""The three attentions of an encoder-decoder, and the pictures of their maps."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from experiments.failures.failure import Mistake
from experiments.heads.hooks import check_prunable, read_stages, value_heads
from experiments.heads.map_figures import attention_maps
from experiments.heads.measures.importance import by_gradient, by_relevance
from experiments.heads.measures.pruning import loss_without_each, loss_without_heads
from experiments.heads.measures.rank import divergence_by_rank
from experiments.heads.options import HeadsOptions
from experiments.heads.parts import Part, parts_of
from experiments.heads.section import Findings, over_parts
from experiments.heads.sections import rank, roles
from experiments.model.build import build
from experiments.objectives.objective import Batch
from tests.heads.conftest import VOCABULARY, group, small_model


@pytest.fixture(scope="module")
def translator():
    """Two layers on either side, of three talking heads."""
    model = small_model(position="relative")
    tree = {"hidden_size": 12, "heads": 3, "key_size": 4, "value_size": 4, "backend": "auto"}
    tree |= {"model": model.model_dump(), "variant": group("talking_heads")}
    variant = OmegaConf.to_container(OmegaConf.create(tree), resolve=True)["variant"]
    return build("encoder_decoder", model, variant, VOCABULARY, 0).double().eval()


@pytest.fixture(scope="module")
def sides() -> dict[str, torch.Tensor]:
    """Five tokens are read, three written."""
    random = torch.Generator().manual_seed(0)
    lengths = {"tokens": 5, "decoder_tokens": 3}
    return {name: torch.randint(1, VOCABULARY, (2, length), generator=random) for name, length in lengths.items()}


def test_each_part_attends_from_its_own_tokens_to_its_own_memory(translator, sides):
    encoder, decoder, cross = parts_of(translator)
    stages = read_stages(translator, sides, "weights")
    assert len(stages) == len(value_heads(translator)) == 6
    for part, shape in ((encoder, (5, 5)), (decoder, (3, 3)), (cross, (3, 5))):
        for place in part.places:
            weights = stages[place]["weights"]
            assert weights.shape == (2, 3, *shape) and torch.allclose(weights.sum(-1), torch.ones(()).double())
            assert bool((weights.triu(1) == 0).all()) == (part is decoder)
    assert [place for part in (encoder, decoder, cross) for place in part.places] == list(range(6))
    assert cross.head(1, 2) == "cross 1-2" and cross.of("maps") == "maps_cross"


def test_the_bound_of_the_entropy_is_that_of_the_tokens_attended_to(translator, sides):
    run = SimpleNamespace(model=translator, text_batches=lambda: [sides], is_special=lambda tokens: tokens == 0)
    run.token_counts = dict.fromkeys(sides, torch.ones(VOCABULARY, dtype=torch.int64))
    section = roles.make(run, HeadsOptions())
    bounds = "ln 5 = 1.61 nats (encoder), ln 3 = 1.10 nats (decoder), ln 5 = 1.61 nats (cross)"
    assert f"Entropy is at most {bounds};" in section.text
    memory = {"encoder": 5, "decoder": 3, "cross": 5}
    assert all(row["entropy"] <= math.log(memory[row["attention"]]) for row in section.tables["heads"])


def run_on(model, batch):
    """A run that reads the batch; its model is a copy, because its precision changes."""
    settings = SimpleNamespace(model=SimpleNamespace(position="relative"))
    return SimpleNamespace(
        model=copy.deepcopy(model), masked_batches=lambda: iter([batch]), has_two_sides=True, settings=settings
    )


def test_padding_has_no_rank_and_no_weights_to_match(translator, sides):
    batch = Batch(sides, torch.arange(6), torch.arange(6), 3)
    padded = {name: torch.nn.functional.pad(side, (0, 3)) for name, side in sides.items()}
    padded["mask"] = torch.arange(8).expand(2, 8) < 5
    wider = Batch(padded, torch.tensor([0, 1, 2, 6, 7, 8]), torch.arange(6), 6)
    expected, found = (rank.make(run_on(translator, each), HeadsOptions()) for each in (batch, wider))
    assert found.text == expected.text
    for name, rows in expected.tables.items():
        numbers, padded_numbers = ([list(row.values())[-1] for row in table] for table in (rows, found.tables[name]))
        assert padded_numbers == pytest.approx(numbers, abs=1e-5), name


def test_the_rank_of_logits_between_two_sequences_is_at_most_the_length_of_the_shorter(translator, sides):
    section = rank.make(run_on(translator, Batch(sides, torch.arange(6), torch.arange(6), 3)), HeadsOptions())
    encoder, decoder, cross = (f"h d_k = 12 and {limit}," for limit in ("N = 5", "N = 3", "min(N, M) = 3"))
    assert encoder in section.text and decoder in section.text and cross in section.text
    assert max(row["numerical_rank"] for row in section.tables["rank"] if row["attention"] == "cross") <= 3
    # positions of two sequences have no bias
    assert section.text.count("before the softmax, after P_l and the bias of the positions.") == 2
    assert section.text.count("before the softmax, after P_l.") == 1


def test_an_encoder_is_one_part_without_a_name(bert_of):
    (part,) = parts_of(bert_of("multi_head"))
    assert (part.title, part.row, part.head(2, 3), part.of("maps")) == ("", {}, "2-3", "maps")


def test_findings_in_several_parts_are_told_apart(translator, bert_of):
    def measure(part: Part) -> Findings:
        row = {"entropy": 0.5, "layer": len(part.places), "head": 1}
        return Findings({"roles": Figure()}, {"heads": [row]}, "" if part.name == "decoder" else "They differ.")

    found = over_parts(translator, measure)
    assert found.text == (
        "Self-attention of the encoder: They differ. Attention of the decoder to the encoder: They differ."
    )
    names = ["encoder", "decoder", "cross"]
    assert list(found.figures) == [f"roles_{name}" for name in names]
    assert found.figures["roles_decoder"].get_suptitle() == "Self-attention of the decoder"
    # the name of a head in three columns beside each other
    rows = [[("entropy", 0.5), ("attention", name), ("layer", 2), ("head", 1)] for name in names]
    assert [list(row.items()) for row in found.tables["heads"]] == rows
    alone = over_parts(bert_of("multi_head"), measure)
    assert (list(alone.figures), alone.text) == (["roles"], "They differ.")
    assert alone.tables == {"heads": [{"entropy": 0.5, "layer": 2, "head": 1}]}
    assert alone.figures["roles"].get_suptitle() == ""


@pytest.mark.parametrize("score", [by_gradient, by_relevance])
def test_every_head_of_the_three_has_an_importance(translator, sides, score):
    batch = Batch(sides, torch.arange(6), torch.arange(6), 3)
    found = score(translator, [batch])
    assert [len(values) for values in found] == 6 * [3] and all((values > 0).any() for values in found)


def test_every_head_of_the_three_is_removed_alone(translator, sides):
    batch = Batch(sides, torch.arange(6), torch.arange(6), 3)
    losses = [loss for place in range(6) for loss in loss_without_each(translator, [batch], place)]
    assert len({*losses, loss_without_heads(translator, [batch], [])}) == 19


def test_no_head_is_taken_out_of_an_encoder_decoder(translator):
    with pytest.raises(Mistake, match="--export: needs an encoder or a decoder, not an encoder-decoder"):
        check_prunable(translator, "--export")


def test_what_a_causal_head_may_not_see_is_no_part_of_its_divergence():
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).double()
    # the first row sees one token, and so does every rank
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()
    divergences = divergence_by_rank(logits, [1, 4], allowed)
    assert divergences[0] > 1e-3 and divergences[1].abs() < 1e-12
    assert divergence_by_rank(logits[:1], [1], allowed[:1]).abs().max() < 1e-12


def test_tokens_stand_at_both_axes_of_the_maps_and_a_dollar_is_no_formula():
    maps = {f"1-{head}": np.full((2, 3), 1 / 3) for head in range(1, 5)}
    figure = attention_maps(maps, 4, ["[CLS]", "$a$"], ["b", "<extra_id_0>", "\\xe4"])
    FigureCanvasAgg(figure).draw()
    first, *others = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["[CLS]", "$a$"]
    assert [label.get_text() for label in first.get_xticklabels()] == ["b", "<extra_id_0>", "\\xe4"]
    assert [axes.get_title(loc="left") for axes in figure.axes[:4]] == [
        f"1-{head} \u2264 0.33" for head in (1, 2, 3, 4)
    ]
    assert not any(axes.get_yticklabels() for axes in others[:3])
    # above them stands the scale of the colours, and nothing sticks out
    scale = figure.axes[4]
    assert [label.get_text() for label in scale.get_xticklabels()] == ["0", "most"]
    width, height = figure.get_size_inches() * figure.dpi
    for text in figure.texts:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= width and box.y0 > first.title.get_window_extent().y1 and box.y1 <= height


def test_a_stage_that_is_named_and_not_computed_is_refused(bert_of, batch, monkeypatch):
    model = bert_of("multi_head")
    attention = model.layers[0].attention
    monkeypatch.setattr(type(attention), "stages", (*attention.stages, "gated_weights"))
    with pytest.raises(Mistake, match="names gated_weights in `stages`, but its reference kernel does not give it"):
        read_stages(model, batch.tokens, "gated_weights")
