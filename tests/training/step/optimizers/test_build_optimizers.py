from __future__ import annotations

import itertools
import math
import sys

import pytest
import torch
from torch import nn

from experiments.config.compose import compose
from experiments.config.groups import options
from experiments.failures.failure import Mistake
from experiments.model.build import build
from experiments.settings.optimizer import Adafactor, AdamW, Lamb, Muon
from experiments.training.step.optimizers.build_optimizers import build_optimizers, optimizer_state, set_learning_rate
from experiments.training.step.world import ALONE
from tests.fixtures.campaign import in_campaigns

SHARED = {
    "learning_rate": 0.1,
    "head_mixing_rate_factor": 1.0,
    "position_rate_factor": 1.0,
    "weight_decay": 0.5,
    "clip": None,
}
ADAM = {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}
CONFIGS = {
    "adamw": AdamW(kind="adamw", **SHARED, **ADAM),
    "adafactor": Adafactor(kind="adafactor", **SHARED, beta2_decay=-0.8, least_scale=1e-3, update_clip=1.0),
    "muon": Muon(kind="muon", **SHARED, **ADAM, momentum=0.95, nesterov=True, newton_schulz_steps=5),
    "lamb": Lamb(kind="lamb", **SHARED, **ADAM),
}
KINDS = pytest.mark.parametrize("kind", sorted(CONFIGS))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)
        self.projection = nn.Parameter(torch.eye(2))
        self.head = nn.Linear(2, 3, bias=False)


def ones(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    return model


def go(model, optimizers, gradient):
    """One step, every gradient being `gradient`."""
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    ALONE.update(optimizers)


def test_every_option_has_a_kind_here():
    assert {compose([f"optimizer={option}"]).optimizer.kind for option in options("optimizer")} == set(CONFIGS)


def test_two_steps_of_adamw_by_hand():
    model = ones(Model())
    optimizers = build_optimizers(model, CONFIGS["adamw"])
    value, vector, moment, second = 1.0, 1.0, 0.0, 0.0
    for number, (rate, gradient) in enumerate([(0.1, 2.0), (0.05, -1.0)], 1):
        set_learning_rate(optimizers, rate)
        go(model, optimizers, gradient)
        moment = 0.9 * moment + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        update = rate * (moment / (1 - 0.9**number)) / ((second / (1 - 0.99**number)) ** 0.5 + 1e-8)
        # decoupled: the decay doesn't go through the moments, and follows the schedule
        value = value * (1 - rate * 0.5) - update
        vector = vector - update
        assert model.linear.weight.flatten().tolist() == pytest.approx([value] * 4, rel=1e-6)
        assert model.linear.bias.tolist() == pytest.approx([vector] * 2, rel=1e-6)


def test_a_step_of_lamb_by_hand():
    model = ones(Model())
    nn.init.constant_(model.linear.bias, 3.0)
    go(model, build_optimizers(model, CONFIGS["lamb"]), 2.0)
    # m / sqrt(v) without bias correction: 0.1 * 2 / (0.1 * 2) = 1; with the decay of a matrix 1 + 0.5
    update = 0.1 * 2.0 / math.sqrt(0.01 * 4.0) + 0.5
    # of [2, 2] ones the norm is 2, of its update 2 * 1.5
    assert model.linear.weight.flatten().tolist() == pytest.approx([1 - 0.1 * 2 / (2 * update) * update] * 4)
    # a vector takes neither decay nor trust ratio, which would be 3
    assert model.linear.bias.tolist() == pytest.approx([3 - 0.1 * 1.0] * 2)


def test_matrices_keep_the_trust_ratio_of_lamb_without_decay():
    model = ones(Model())
    go(model, build_optimizers(model, CONFIGS["lamb"].model_copy(update={"weight_decay": 0.0})), 6.0)
    with torch.no_grad():
        moved = 1 - model.linear.weight, 1 - model.head.weight
    # of length 0.1 |W| whatever the gradient
    assert [float(each.norm()) for each in moved] == pytest.approx([0.1 * 2, 0.1 * 6**0.5], rel=1e-5)
    # however large |W| is
    for factor in (2.0, 100.0):
        larger = ones(Model())
        with torch.no_grad():
            larger.linear.weight.mul_(factor)
        go(larger, build_optimizers(larger, CONFIGS["lamb"].model_copy(update={"weight_decay": 0.0})), 6.0)
        assert float((factor - larger.linear.weight.detach()).norm()) == pytest.approx(0.1 * 2 * factor, rel=1e-4)


def test_a_step_of_adafactor_by_hand():
    model = ones(Model())
    go(model, build_optimizers(model, CONFIGS["adafactor"]), 2.0)
    # the first update is the sign of the gradient; its rate is 0.1 of the parameter's scale, 1; matrices decay
    assert model.linear.weight.flatten().tolist() == pytest.approx([1 - 0.1 * 0.5 - 0.1] * 4, rel=1e-5)
    assert model.linear.bias.tolist() == pytest.approx([1 - 0.1] * 2, rel=1e-5)


def test_muon_has_the_hidden_matrices_and_adamw_the_rest():
    model = Model()
    muon, adamw = build_optimizers(model, CONFIGS["muon"])
    names = {parameter: name for name, parameter in model.named_parameters()}
    owned = [{names[each] for group in every.param_groups for each in group["params"]} for every in (muon, adamw)]
    assert owned == [{"linear.weight"}, {"linear.bias", "norm.weight", "norm.bias", "projection", "head.weight"}]
    before = model.linear.weight.detach().clone()
    model.linear.weight.grad = torch.tensor([[3.0, 0.0], [0.0, 0.01]])
    muon.step()
    # orthogonal whatever the gradient's scale, and of AdamW's size: 0.2 sqrt(max(A, B)) times singular values near 1
    moved = (before * (1 - 0.1 * 0.5) - model.linear.weight.detach()) / (0.1 * 0.2 * math.sqrt(2))
    assert moved[0, 0].item() == pytest.approx(1, abs=0.35) and moved[1, 1].item() == pytest.approx(1, abs=0.35)
    assert moved[0, 1].item() == pytest.approx(0, abs=0.05)


OTHERS = {
    "learning_rate": 0.05, "weight_decay": 0.1, "beta1": 0.5, "beta2": 0.5, "epsilon": 0.1, "beta2_decay": -0.3,
    "least_scale": 3.0, "update_clip": 5.0, "momentum": 0.5, "nesterov": False, "newton_schulz_steps": 1,
}  # fmt: skip


@KINDS
def test_every_setting_acts(kind):
    def moved(config):
        model, random = ones(Model()), torch.Generator().manual_seed(0)
        optimizers = build_optimizers(model, config)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=random)
            ALONE.update(optimizers)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    # the learner clips, and `Model` has no parameters with a factor
    own = type(CONFIGS[kind]).model_fields.keys() - {"kind", "clip", "head_mixing_rate_factor", "position_rate_factor"}
    before = moved(CONFIGS[kind])
    for setting in sorted(own):
        other = moved(CONFIGS[kind].model_copy(update={setting: OTHERS[setting]}))
        assert (other - before).abs().max() > 1e-3, setting


@KINDS
def test_only_matrices_decay(kind):
    model = ones(Model())
    go(model, build_optimizers(model, CONFIGS[kind]), 0.0)
    decayed = {name for name, parameter in model.named_parameters() if parameter.ne(1).any()}
    assert decayed == {"linear.weight", "projection", "head.weight"}


@KINDS
def test_building_moves_nothing_and_the_first_step_is_the_librarys_first(kind):
    torch.manual_seed(0)
    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizers = build_optimizers(model, CONFIGS[kind])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    state = {name: value.clone() for name, value in optimizer_state(model, optimizers).items()}
    assert state and all(value.eq(0).all() for value in state.values())
    # the state that a step uses is the one that was there, so a checkpoint can restore it in place
    go(model, optimizers, 1.0)
    after = optimizer_state(model, optimizers)
    assert after.keys() == state.keys()
    assert all(after[name].ne(0).any() for name in after if name.startswith("step/"))
    for optimizer in optimizers:
        optimizer.state.clear()
        for group in optimizer.param_groups:
            if "step" in group:
                group["step"] = 0
    again = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(before)
    go(model, optimizers, 1.0)
    assert all(torch.equal(again[name], value) for name, value in model.state_dict().items())


@KINDS
@pytest.mark.parametrize(
    ("setting", "overrides", "slower"),
    [
        ("head_mixing_rate_factor", ["variant=talking_heads"], ("logits_projection", "weights_projection")),
        ("position_rate_factor", ["model.position=learned"], ("embedding.position.",)),
        ("position_rate_factor", ["model.position=relative"], ("relative.",)),
    ],
)
def test_parameters_with_a_factor_step_at_their_own_rate(kind, setting, overrides, slower):
    composed = compose([*overrides, "hidden_size=24", "heads=3", "layers=1", "norm=post"])
    moved = {}
    for factor in (1.0, 0.1):
        model = build("encoder", composed.model, composed.variant, 50, seed=0)
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        config = CONFIGS[kind].model_copy(update={setting: factor, "learning_rate": 1e-3})
        go(model, build_optimizers(model, config), 1.0)
        moved[factor] = {name: value.detach() - before[name] for name, value in model.named_parameters()}
    assert any(each in name for name in moved[1.0] for each in slower)
    for name, whole in moved[1.0].items():
        share = 0.1 if any(each in name for each in slower) else 1.0
        torch.testing.assert_close(moved[0.1][name], share * whole, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("kind", ["muon", *in_campaigns(*sorted(CONFIGS.keys() - {"muon"}))])
def test_a_run_that_is_cut_ends_with_the_same_bytes(kind, settings, ends_alike_when_cut):
    base = settings(max_steps=10)
    optimizer = compose([f"optimizer={kind}"]).optimizer.model_copy(update={"learning_rate": base.learning_rate})
    ends_alike_when_cut(base.model_copy(update={"optimizer": optimizer}), 8)


def test_a_missing_library_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(Mistake, match=r"(?s)optimizer=lamb needs pytorch_optimizer.*\.\[optimizers\]"):
        build_optimizers(Model(), CONFIGS["lamb"])


PRESETS, OPTIMIZERS = options("model"), options("optimizer")
PAIRS = [*itertools.product(PRESETS, OPTIMIZERS)]
# each preset and each optimizer once
LONGER = max(len(PRESETS), len(OPTIMIZERS))
SOME = [(PRESETS[index % len(PRESETS)], OPTIMIZERS[index % len(OPTIMIZERS)]) for index in range(LONGER)]


@pytest.mark.parametrize("pairs", [SOME, pytest.param(PAIRS, marks=pytest.mark.campaign)], ids=["some", "all"])
def test_every_optimizer_goes_with_every_preset(pairs):
    assert {preset for preset, _ in pairs} == set(PRESETS) and {option for _, option in pairs} == set(OPTIMIZERS)
    for preset, option in pairs:
        assert compose([f"model={preset}", f"optimizer={option}"]).optimizer.learning_rate
    assert compose(["model=base"]).optimizer == compose(["optimizer=adamw_bert", "learning_rate=1e-4"]).optimizer
    assert compose(["model=base"]).optimizer.beta2 == 0.999


@pytest.mark.parametrize(("warmup", "said"), [(4, True), (5, True), (3, False), (0, False)])
def test_a_run_that_never_leaves_its_warmup_is_told(settings, go, capsys, warmup, said):
    result, folder = go(settings(schedule__warmup_steps=warmup, max_steps=4))
    assert ("the learning rate only rises" in capsys.readouterr().err) == said
    # on a busy machine it also says that others hold its cores
    log = folder.path / "log.txt"
    assert (log.exists() and "the learning rate only rises" in log.read_text()) == said
    rates = [line["learning_rate"] for line in folder.metrics.read()]
    # without a warm-up the fall begins with the first step
    assert rates[0] == pytest.approx(1e-2 / warmup if warmup else 1e-2 * 4 / 5) and result.status == "done"
