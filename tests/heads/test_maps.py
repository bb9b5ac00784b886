"""The maps of one text: their table, their numbers on the page, and how long the text may be."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch
from pyarrow import parquet

from experiments.failures.failure import Mistake
from experiments.heads import output
from experiments.heads.map_figures import attention_maps
from experiments.heads.options import HeadsOptions
from experiments.heads.section import Column, Maps, Section
from experiments.heads.sections import maps as maps_section
from tests.fixtures.browser import Opened


@pytest.fixture
def run_with_words(trained_run_of):
    """run_with_words(model): its tokens have names, and a text has a token for each of its letters."""

    def make(model):
        run = trained_run_of(model)
        vars(run.tokenizer).update(
            cls_id=0, sep_id=1, tokens=lambda ids: [f"t{each}" for each in ids], decode=lambda ids: f"t{ids[0]}",
            encode=lambda texts: [np.full(len(text), 2) for text in texts],
        )  # fmt: skip
        return run

    return make


def test_the_table_has_a_row_for_every_weight(tmp_path):
    # two queries, three tokens in memory; two heads, then one
    layers = [np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.arange(6, dtype=np.float32).reshape(1, 2, 3)]
    shown = Maps(["a", "b"], ["c", "d", "c"], layers)
    table = maps_section.map_table({"attention": "cross", "stage": "weights"}, shown)
    output.save_sections([Section("Attention maps", "a text", tables={"maps": table})], tmp_path)
    expected = [
        {"attention": "cross", "stage": "weights", "layer": layer, "head": head, "query": n,
         "query_token": shown.queries[n], "memory": m, "memory_token": shown.memory[m],
         "weight": weights[head - 1, n, m]}
        for layer, weights in enumerate(layers, 1)
        for head in range(1, len(weights) + 1)
        for n in range(2)
        for m in range(3)
    ]  # fmt: skip
    read = parquet.read_table(tmp_path / "maps.parquet")
    assert read.to_pylist() == expected and read.schema.field("query_token").type == "string"


@pytest.mark.parametrize(("variant", "stages"), [("multi_head", 1), ("talking_heads", 2)])
def test_maps_of_values_are_shown_where_heads_mix(bert_of, run_with_words, variant, stages):
    model = bert_of(variant)
    section = maps_section.make(run_with_words(model), HeadsOptions(sentence="abc"))
    assert list(section.maps) == ["weights of the softmax", "weights of the values"][:stages]
    shown = section.maps["weights of the softmax"]
    assert shown.queries == shown.memory == ["t0", "t2", "t2", "t2", "t1"]
    assert section.tables["maps"].num_rows == stages * 2 * 3 * 5 * 5
    assert np.allclose([weights.sum(-1) for weights in shown.layers], 1)


def test_a_text_whose_maps_do_not_fit_is_refused_before_they_are_made(bert_of, run_with_words, monkeypatch):
    run = run_with_words(bert_of("talking_heads"))
    # two kinds of maps of three heads in two layers: 5 tokens have 300 weights
    monkeypatch.setattr(maps_section, "MAX_WEIGHTS", 431)
    assert maps_section.shown_inputs(run, "abc")["tokens"].shape == (1, 5)
    with pytest.raises(Mistake, match=r"--sentence: has 6 tokens .* at most 5"):
        maps_section.shown_inputs(run, "abcd")
    # of the held-out text, the start
    assert torch.equal(maps_section.shown_inputs(run, None)["tokens"], next(run.token_batches())[:1, :5])


@pytest.mark.parametrize("scale", [0.0, 1.0, -2.5])
def test_weights_on_the_page_are_right_to_four_decimals(scale):
    weights = scale * np.random.default_rng(0).random((3, 4)).astype(np.float32)
    encoded = output._encoded(weights)
    shares = np.frombuffer(base64.b64decode(encoded["shares"]), "<i2").reshape(3, 4)
    assert encoded["largest"] == np.abs(weights).max()
    assert np.abs(shares / output.SHARES * encoded["largest"] - weights).max() < 5e-5


def test_the_page_shows_the_weight_below_the_mouse_and_the_lines_of_a_long_text(chromium, tmp_path):
    N = 200
    lines = np.eye(N, k=-1, dtype=np.float32)
    lines[7, 150] = -0.4321
    tokens = [f"t{place}" for place in range(N)]
    path = tmp_path / "index.html"
    shown = {"weights": Maps(tokens, tokens, [np.stack([lines, lines])])}
    output.write_page(path, [Column("a run", "about it", [Section("Attention maps", "a text", maps=shown)])])
    opened = Opened(chromium, path)
    assert opened.complaints() == []
    opened.js("document.querySelector('.enlarged').scrollIntoView()")
    box = opened.box(".enlarged")
    # a cell is 4 pixels, beside 14 + 6.6 * 4 of the words
    label = 14 + 6.6 * 4
    pixels = box["width"] / (label + 4 * N)
    opened.hover(box["x"] + (label + 4 * 150.5) * pixels, box["y"] + (label + 4 * 7.5) * pixels)
    assert opened.text(".maps output") == "layer 1, head 1: t7 \u2192 t150  -0.432"
    # two weights of a side become one: none of the line is lost
    small = opened.js(
        "const canvas = document.querySelector('.grid canvas'), context = canvas.getContext('2d');"
        "return [canvas.width, ...[0, 1, 50, 99].map((at) => context.getImageData(at, at, 1, 1).data[0])]"
    )
    assert small == [100, 0, 0, 0, 0]


def test_words_beside_a_long_map_do_not_cover_each_other():
    tokens = [f"t{place}" for place in range(100)]
    panel = attention_maps({"1-1": np.eye(100)}, 1, tokens, tokens).axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == tokens[::3]
    assert panel.get_xticks().tolist() == [*range(0, 100, 3)]
