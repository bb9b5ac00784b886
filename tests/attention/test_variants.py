"""The tests that every variant gets for free: each YAML file of conf/variant is built and checked."""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from experiments.config.compose import compose
from experiments.settings.variant import arguments_of

ROOT = Path(__file__).parents[2]
VARIANTS = sorted(path.stem for path in (ROOT / "conf/variant").glob("*.yaml"))
HIDDEN, MEMORY = 12, 10
SEED = torch.tensor(5)
SIZES = {
    "hidden_size": HIDDEN,
    "heads": 3,
    "key_size": 4,
    "value_size": 5,
    "backend": "auto",
    "model": {"linear_bias": True, "attention_dropout": 0.1},
}


@functools.cache
def group(variant: str) -> DictConfig:
    """The content of the YAML file, on top of the files in its defaults list."""
    own = OmegaConf.load(ROOT / f"conf/variant/{variant}.yaml")
    return OmegaConf.merge(*map(group, own.pop("defaults", [])), own)


def module(variant: str) -> ModuleType:
    keys = group(variant)
    return importlib.import_module(f"attention.{keys.get('module', keys.name)}")


@functools.cache
def resolved(variant: str) -> dict:
    """The arguments of the class, with interpolations resolved at small sizes."""
    keys = OmegaConf.to_container(OmegaConf.create({**SIZES, "variant": group(variant)}).variant, resolve=True)
    return {key: value for key, value in keys.items() if key not in ("name", "module")}


def arguments(variant: str, **changes: object) -> dict:
    """The same, with `changes` of existing keys."""
    keys = copy.deepcopy(resolved(variant))
    assert set(changes) <= set(keys)
    return {**keys, **changes}


def build(variant: str, **changes: object) -> nn.Module:
    """The layer with other parameters than at its start, where those of some mechanisms are alike in all heads."""
    torch.manual_seed(0)
    layer = module(variant).Attention(**arguments(variant, **changes)).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


@pytest.fixture(params=VARIANTS)
def variant(request) -> str:
    return request.param


def test_the_keys_of_the_yaml_are_the_arguments_of_the_constructor(variant):
    parameters = inspect.signature(module(variant).Attention).parameters
    assert list(arguments(variant)) == list(parameters)
    assert group(variant).name == variant
    wanted = [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]
    assert len(wanted) == 2 and wanted[0] == "hidden_size" and wanted[1].endswith("heads")


@pytest.mark.parametrize("heads", [1, 4])
def test_the_defaults_of_the_constructor_are_those_of_the_yaml(variant, heads):
    """So `Attention(512, 8)` is what `attn train hidden_size=512 heads=8` trains."""
    if group(variant).get("module", variant) != variant:
        pytest.skip("its class has the defaults of another YAML")
    settings = compose([f"variant={variant}", "hidden_size=24", f"heads={heads}"])
    ours = module(variant).Attention(24, heads)
    theirs = module(variant).Attention(**arguments_of(settings.variant))
    shapes = [{name: tensor.shape for name, tensor in each.state_dict().items()} for each in (ours, theirs)]
    assert shapes[0] == shapes[1] and ours.sizes == theirs.sizes and ours.scale == theirs.scale
    for name, parameter in list(inspect.signature(module(variant).Attention).parameters.items())[2:]:
        given = settings.variant[name]
        assert parameter.default is None or parameter.default == (tuple(given) if type(given) is list else given), name


def test_the_yaml_begins_with_its_definition_paper_equation_and_what_differs(variant):
    lines = (ROOT / f"conf/variant/{variant}.yaml").read_text(encoding="ascii").splitlines()
    assert all(line.startswith("# ") for line in lines[:3])
    assert "arXiv" in lines[1] and lines[2].startswith("# $") and lines[2].endswith("$")
    assert lines[3].startswith("# differs: ") == (variant != "multi_head") and not lines[4].startswith("#")


@pytest.mark.parametrize("length", [1, 7, 63])
def test_shapes_and_finite_gradients_with_dropout(variant, length):
    layer = build(variant).train()
    x = torch.randn(2, length, HIDDEN, requires_grad=True)
    bias = torch.zeros(1, layer.softmax_heads, length, length, requires_grad=True)
    assert layer.kernel is None
    output = layer(x, bias=bias, dropout_seed=SEED)
    assert output.shape == x.shape and layer.kernel in ("reference", "sdpa", "blocked", "compiled", layer.own_kernel)
    output.square().sum().backward()
    for name, tensor in [("x", x), ("bias", bias), *layer.named_parameters()]:
        assert tensor.grad is not None and tensor.grad.isfinite().all(), name


def test_bf16_autocast_trains_and_casts_its_input_once(variant):
    layer = build(variant).train()
    x = torch.randn(2, 7, HIDDEN)
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if torch.equal(tensor.flatten().float(), x.bfloat16().flatten().float()):
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autocast("cpu", dtype=torch.bfloat16), saved_tensors_hooks(keep, lambda tensor: tensor):
        output = layer(x, dropout_seed=SEED)
    assert output.dtype == torch.bfloat16
    assert len(kept) <= 1, "x is cast once"
    output.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    assert (output - layer.eval()(x)).isfinite().all()


@pytest.mark.parametrize(("N", "M", "linear_bias"), [(7, 5, False), (4, 9, True)])
def test_the_cost_formula_is_what_is_counted(variant, N, M, linear_bias):
    # the reference of a mechanism with arithmetic of its own may be a longer way to the same numbers
    backend = "reference" if module(variant).Attention.own_kernel is None else "auto"
    layer = build(variant, memory_size=MEMORY, backend=backend, linear_bias=linear_bias)
    cost = layer.cost(N, M)
    assert cost.parameters == sum(parameter.numel() for parameter in layer.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.randn(3, N, HIDDEN), torch.randn(3, M, MEMORY))
    assert counter.get_total_flops() == 2 * 3 * cost.multiplies


def test_the_cost_is_known_without_memory_for_the_weights(variant):
    with torch.device("meta"):
        layer = build(variant)
    assert layer.cost(8, 8).parameters == sum(parameter.numel() for parameter in layer.parameters())


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("text", [slice(0, 6), slice(3, 9)], ids=["padded after it", "padded before it"])
def test_padding_does_not_leak(variant, backend, text):
    layer, x = build(variant, backend=backend), torch.randn(2, 9, HIDDEN)
    known = torch.zeros(9, dtype=torch.bool)
    known[text] = True
    mask = known[None, None, None]
    other = torch.where(known[:, None], x, 7 * torch.randn(2, 9, HIDDEN))
    expected = layer(x[:, text])
    torch.testing.assert_close(layer(x, mask=mask)[:, text], expected)
    torch.testing.assert_close(layer(other, mask=mask)[:, text], expected)
    bias = torch.zeros(1, 1, 1, 9).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(layer(other, bias=bias)[:, text], expected)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_causal_does_not_look_ahead(variant, backend):
    layer = build(variant, backend=backend)
    x = torch.randn(2, 9, HIDDEN)
    other = x.clone()
    other[:, 5:] = torch.randn(2, 4, HIDDEN)
    output = layer(x, causal=True)
    torch.testing.assert_close(layer(other, causal=True)[:, :5], output[:, :5])
    assert not torch.allclose(layer(other)[:, :5], layer(x)[:, :5])


def test_cross_attention_takes_a_memory_of_another_width_and_length(variant):
    layer = build(variant, memory_size=MEMORY)
    x, memory = torch.randn(2, 7, HIDDEN), torch.randn(2, 4, MEMORY)
    output = layer(x, memory)
    assert output.shape == (2, 7, HIDDEN)
    order = torch.tensor([2, 0, 3, 1])
    if not layer.positional:
        torch.testing.assert_close(layer(x, memory[:, order]), output)
    torch.testing.assert_close(layer(x, torch.cat([memory, memory]).chunk(2)[0]), output)


def test_no_memory_is_the_sequence_itself(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    torch.testing.assert_close(layer(x), layer(x, x))


def test_a_fully_masked_example_gives_the_output_bias_alone(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN, requires_grad=True)
    output = layer(x, mask=torch.tensor([True, False])[:, None, None, None])
    torch.testing.assert_close(output[1], layer.output.bias.expand(7, -1))
    (grad,) = torch.autograd.grad(output.sum(), x)
    assert grad[1].eq(0).all() and grad.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
def test_an_empty_sequence_gives_no_output_and_an_empty_memory_the_output_bias_alone(variant, causal):
    layer = build(variant)
    for N, M in ((0, 0), (0, 4), (4, 0)):
        x = torch.randn(3, N, HIDDEN, requires_grad=True)
        output = layer(x, torch.randn(3, M, HIDDEN), causal=causal)
        torch.testing.assert_close(output, layer.output.bias.expand(3, N, -1))
        output.sum().backward()
        assert x.grad.eq(0).all()


def test_every_backend_gives_the_same_or_refuses(variant):
    x, expected = torch.randn(2, 7, HIDDEN), None
    for backend in ("reference", "blocked", "sdpa", "auto"):
        try:
            layer = build(variant, backend=backend)
            output = layer(x)
        except ValueError as error:
            own = module(variant).Attention.own_kernel is not None
            assert backend == "sdpa" or (own and backend == "blocked")
            assert f"backend: {backend} can't do this" in str(error)
            continue
        # a mechanism's own arithmetic is its reference, unless it has an equivalent on the kernels
        assert backend == "auto" or layer.kernel in (backend, layer.own_kernel)
        expected = output if expected is None else expected
        torch.testing.assert_close(output, expected)


def test_a_bias_of_minus_infinity_hides_a_position_as_a_mask_does(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[0, :, :, 4:] = False
    bias = torch.zeros(2, 1, 7, 7).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(layer(x, bias=bias), layer(x, mask=mask))


def test_rotary_turns_queries_and_keys_of_one_sequence_only(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    seen = []
    torch.testing.assert_close(layer(x, rotary=lambda heads: seen.append(heads.shape[:2]) or heads), layer(x))
    assert seen == [(2, 7), (2, 7)]
    with pytest.raises(ValueError, match="rotary"):
        layer(x, x, rotary=lambda heads: heads)


@pytest.mark.campaign
def test_the_layer_compiles_and_still_names_its_kernel(variant):
    check_compiled(variant)


def test_a_layer_that_mixes_heads_compiles_and_still_names_its_kernel():
    check_compiled("talking_heads")


def check_compiled(variant: str) -> None:
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    expected, kernel = layer(x), layer.kernel
    layer.kernel = None
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    assert layer.kernel == kernel
    compiled(x).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_a_size_of_zero_and_an_unknown_backend_are_named(variant):
    keys = arguments(variant)
    for key in (key for key, value in keys.items() if type(value) is int):
        with pytest.raises(ValueError, match=rf"\b{key}: is 0, must be at least 1"):
            build(variant, **{key: 0})
    with pytest.raises(ValueError, match="backend: is 'fast', must be one of auto"):
        build(variant, backend="fast")
    with pytest.raises(ValueError, match=r"dropout: is 1\.5"):
        build(variant, dropout=1.5)


def test_an_input_that_does_not_fit_is_named(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    other, heads = torch.randn(2, 6, HIDDEN), layer.sizes.softmax_heads
    padding = torch.ones(2, 1, 1, 6)
    for given, error, message in (
        (([[0.0]], other), TypeError, "x: is a list, must be a tensor"),
        ((x, x.numpy()), TypeError, "memory: is a ndarray, must be a tensor"),
        ((x[0], other), ValueError, f"x: has shape [7, {HIDDEN}], must be [B, N, {HIDDEN}]"),
        ((x[..., 1:], other), ValueError, f"x: has shape [2, 7, {HIDDEN - 1}], must be [B, N, {HIDDEN}]"),
        ((x, other[0]), ValueError, f"memory: has shape [6, {HIDDEN}], must be [2, M, D_M]"),
        ((x, other[:1]), ValueError, f"memory: has shape [1, 6, {HIDDEN}], must be [2, M, D_M]"),
        ((x, other, {"mask": [True]}), TypeError, "mask: is a list, must be a tensor"),
        ((x, other, {"mask": padding}), ValueError, "mask: has dtype torch.float32, must be bool"),
        ((x, other, {"mask": padding.bool()[..., 1:]}), ValueError, "mask: has shape [2, 1, 1, 5], must have four"),
        ((x, other, {"bias": padding[0, 0]}), ValueError, f"1 or that of [2, {heads}, 7, 6] (B, h, N, M); of [B, M]"),
    ):
        *inputs, more = given if isinstance(given[-1], dict) else (*given, {})
        with pytest.raises(error, match=re.escape(message)):
            layer(*inputs, **more)
    # the mechanism's own maps refuse it
    with pytest.raises(RuntimeError):
        layer(x, other[..., 1:])


@pytest.mark.parametrize("size", [3.0, "3", None])
def test_a_number_of_heads_that_is_no_integer_is_named(variant, size):
    keys = arguments(variant)
    name = "key_heads" if "key_heads" in keys else "heads"
    with pytest.raises(TypeError, match=rf"{name}: is {size!r}, must be an integer"):
        module(variant).Attention(**keys | {name: size})


def test_the_attention_room_imports_torch_and_the_standard_library_only():
    known = {*sys.stdlib_module_names, "attention", "torch", "cuda"}
    for path in (ROOT / "attention").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "attention"]
            else:
                continue
            assert {name.partition(".")[0] for name in names} <= known, (path, names)


@pytest.mark.campaign
def test_the_attention_room_loads_nothing_foreign():
    modules = sorted({module(variant).__name__ for variant in VARIANTS})
    program = f"""
import importlib, sys
for name in {modules}:
    importlib.import_module(name)
import attention.layers.rotary
import torch
from attention.talking_heads import Attention
with torch.device("meta"):
    Attention(12, 3).cost(7, 7)
foreign = {{"hydra", "omegaconf", "typer", "wandb", "datasets", "tokenizers", "experiments", "pydantic"}}
foreign.add("torch._dynamo")  # a second that only models that are compiled need
print(*sorted(foreign & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_hook_sees_the_declared_stages_and_what_it_returns_goes_on(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    expected, seen = layer(x), {}
    layer.hook = lambda stage, tensor: seen.setdefault(stage, tensor)
    torch.testing.assert_close(layer(x), expected)
    assert tuple(seen) == layer.stages and layer.kernel in ("reference", layer.own_kernel)
    if "weights" in layer.stages:
        torch.testing.assert_close(seen["weights"], seen["mixed_logits"].softmax(-1))
    layer.hook = lambda stage, tensor: tensor * 0 if stage == "outputs" else tensor
    torch.testing.assert_close(layer(x), layer.output.bias.expand(2, 7, -1))


def test_the_sizes_are_those_of_the_tensors(variant):
    layer, x = build(variant), torch.randn(2, 7, HIDDEN)
    query, key, _ = layer.project(x, x)
    seen = {}
    layer.hook = lambda stage, tensor: seen.setdefault(stage, tensor)
    layer(x)
    sizes = layer.sizes
    assert query.shape == key.shape == (2, 7, sizes.key_heads, sizes.key_size)
    assert seen["mixed_logits"].shape == (2, sizes.softmax_heads, 7, 7)
    assert seen["outputs"].shape[2] == sizes.value_heads == layer.value_heads
    assert sizes.softmax_heads == layer.softmax_heads


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_seed_decides_what_is_dropped_and_nothing_else_does(variant, backend):
    layer, x = build(variant, backend=backend, dropout=0.5).train(), torch.randn(2, 7, HIDDEN)
    seed, state = torch.tensor(1), torch.get_rng_state()
    first, again = layer(x, dropout_seed=seed), layer(x, dropout_seed=seed)
    assert torch.equal(first, again) and torch.equal(torch.get_rng_state(), state)
    seed.fill_(2)
    assert not torch.allclose(layer(x, dropout_seed=seed), first)
    torch.testing.assert_close(layer.eval()(x, dropout_seed=seed), layer(x))
    with pytest.raises(ValueError, match="dropout_seed: is None"):
        layer.train()(x)


@pytest.mark.parametrize(
    ("kept", "backend"),
    [([], "auto"), ([1], "auto"), ([0, 2], "auto"), ([0, 1, 2], "auto"), ([0, 2], "blocked"), ([1], "reference")],
)
def test_heads_that_are_not_kept_are_gated_to_zero(variant, kept, backend):
    kind = module(variant).Attention
    if not kind.prunable or (kind.own_kernel and backend == "blocked"):
        pytest.skip("it declares that heads can't be left out, or that its arithmetic is its own")
    layer, x = build(variant, backend=backend), torch.randn(2, 7, HIDDEN)
    parameters, heads = sum(parameter.numel() for parameter in layer.parameters()), layer.value_heads
    kept = [head for head in kept if head < heads]
    gate = torch.tensor([float(head in kept) for head in range(heads)])
    layer.hook = lambda stage, tensor: tensor * gate[:, None] if stage == "outputs" else tensor
    expected = layer(x)
    layer.hook = None
    layer.keep_heads(kept)
    torch.testing.assert_close(layer(x), expected)
    left = sum(parameter.numel() for parameter in layer.parameters())
    assert left == layer.cost(7, 7).parameters and (left < parameters) == (len(kept) < heads)
