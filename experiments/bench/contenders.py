"""The contenders of a bench: the attention layer of a configuration, or a whole training step of it or of a peer."""

# B batch, N length, D hidden size

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from attention.layers.attention_layer import AttentionLayer
from experiments.bench.peers import PEERS
from experiments.failures.failure import Mistake
from experiments.measure.hardware import resolve_device, resolve_precision
from experiments.model.initialization import initialize
from experiments.model.kernel_availability import set_kernel_cache
from experiments.model.layers.build_attention import build_attention
from experiments.model.transformer import Transformer
from experiments.objectives.objective import Batch
from experiments.settings.run import Settings
from experiments.settings.tokenizer import FileTokenizer
from experiments.tasks.pretraining import Pretraining
from experiments.training.made_up import MadeUpVocabulary
from experiments.training.step.compiling import compile_layers
from experiments.training.step.micro_batches import Forward, backward
from experiments.training.step.optimizers.build_optimizers import build_optimizers
from experiments.training.step.precision import autocast
from experiments.training.step.world import ALONE

Scope = Literal["attention", "step"]  # the attention layer alone, or a whole training step

# float32 weights, of a step: read forward and backward, gradient written and read, weight and two moments read, written
STEP_BYTES_PER_PARAMETER = 4 * (2 + 2 + 6)


class Contender(NamedTuple):
    """A model that is timed against others of the same sizes. `peer` is empty for this project itself."""

    settings: Settings
    scope: Scope
    peer: str = ""
    compiled: bool = False

    @property
    def name(self) -> str:
        """The variant or the peer, and whether it is compiled."""
        return (self.peer or str(self.settings.variant["name"])) + (" compiled" if self.compiled else "")

    @property
    def device(self) -> torch.device:
        """The device that it runs on."""
        return resolve_device(self.settings.trainer.device)

    @property
    def precision(self) -> str:
        """fp32 or bf16, whichever the configuration means on its device."""
        return resolve_precision(self.settings.trainer.precision, self.device)


class Work(NamedTuple):
    """The amount of work in one run of a contender."""

    tokens: int  # that one run reads
    flops: float  # of the products of one run
    moved_bytes: float  # at least, of one run


class Built(NamedTuple):
    """A contender that can be timed: `run()` does it once."""

    run: Callable[[], None]
    kernels: Callable[[], list[str]]  # attention kernels that ran
    work: Work


def build(contender: Contender) -> Built:
    """Build a contender. Raises Mistake for sizes that do not fit together, and for a peer that is not installed."""
    set_kernel_cache(contender.settings)
    torch.set_num_threads(contender.settings.trainer.threads)
    if contender.scope == "attention":
        return _attention(contender)
    return _peer_step(contender) if contender.peer else _step(contender)


def vocabulary_size(settings: Settings) -> int:
    """The number of ids of a run, sentinels included. Raises Mistake if only a file would tell."""
    if isinstance(settings.tokenizer, FileTokenizer):
        raise Mistake(
            "tokenizer=file: a bench does not read files", "choose another one, such as tokenizer.vocabulary_size=8192"
        )
    return Pretraining(settings).vocabulary_size()


def layer_and_input(settings: Settings, dtype: torch.dtype = torch.float32) -> tuple[AttentionLayer, Tensor]:
    """The attention layer, and x [B, N, D] of unit variance; its weights keep that variance. Both need gradients."""
    layer = build_attention(settings.variant)
    initialize(layer, settings.seed, std=settings.hidden_size**-0.5)
    generator = torch.Generator().manual_seed(settings.seed)
    x = torch.randn(settings.batch_size, settings.length, settings.hidden_size, generator=generator)
    x = x.to(resolve_device(settings.trainer.device), dtype)
    return layer.to(x.device, dtype), x.requires_grad_()


def _attention(contender: Contender) -> Built:
    settings = contender.settings
    layer, x = layer_and_input(settings)
    called = torch.compile(layer) if contender.compiled else layer
    grad, dropout_seed = torch.ones_like(x), torch.tensor(settings.seed)

    def run() -> None:
        layer.zero_grad(set_to_none=True)
        x.grad = None
        with autocast(contender.precision, contender.device):
            output = called(x, dropout_seed=dropout_seed)
        output.backward(grad.to(output.dtype))

    cost = layer.cost(settings.length, settings.length)
    # x and the gradient of the output are read, the output and the gradient of x written;
    # weights are read twice, and their gradient is written
    moved_bytes = 4 * x.nbytes + 3 * 4 * cost.parameters
    tokens, flops = settings.batch_size * settings.length, 6.0 * cost.multiplies * settings.batch_size
    return Built(run, lambda: [layer.kernel] if layer.kernel else [], Work(tokens, flops, moved_bytes))


def _step(contender: Contender) -> Built:
    """A step on one batch as peers have it: forward, backward, update.

    A run's own step (`training/step/learner.py`) also draws its batch, measures and clips the gradient and checks that
    it is finite. This is not work of the model, and the peers do not do it.
    """
    settings, batch = contender.settings, made_up_batch(contender.settings)
    model = initialized_model(settings).to(contender.device)
    optimizers = build_optimizers(model, settings.optimizer, contender.precision)
    if contender.compiled:
        compile_layers(model)
    forward = Forward(model, contender.device, contender.precision, settings.seed)
    micro_batch = min(settings.trainer.micro_batch or settings.batch_size, settings.batch_size)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        backward(forward, batch, 0, micro_batch)
        ALONE.update(optimizers)

    tokens = batch.tokens_read
    flops = model.flops_per_token(settings.length, len(batch.positions) / tokens) * tokens
    return Built(run, model.kernels, Work(tokens, flops, _step_bytes(model)))


def _peer_step(contender: Contender) -> Built:
    """The same batch, optimizer and precision. The loss is over all positions with labels, as in each library."""
    settings, batch = contender.settings, made_up_batch(contender.settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = PEERS[contender.peer](settings, vocabulary_size(settings)).to(contender.device)
    optimizers = build_optimizers(model, settings.optimizer, contender.precision)
    called = torch.compile(model) if contender.compiled else model
    tokens_BN = batch.tokens.to(contender.device)
    labels_BN = torch.full_like(tokens_BN, -100)
    labels_BN.view(-1)[batch.positions.to(contender.device)] = batch.targets.to(contender.device)

    def run() -> None:
        model.zero_grad(set_to_none=True)
        with autocast(contender.precision, contender.device):
            loss = called(tokens_BN, labels_BN)
        loss.backward()
        ALONE.update(optimizers)

    # what the model needs is counted as ours is: products of every weight matrix and of the maps
    tokens = batch.tokens_read
    flops = initialized_model(settings).flops_per_token(settings.length, len(batch.positions) / tokens) * tokens
    return Built(run, list, Work(tokens, flops, _step_bytes(model)))


def _step_bytes(model: nn.Module) -> float:
    return STEP_BYTES_PER_PARAMETER * sum(parameter.numel() for parameter in model.parameters())


def initialized_model(settings: Settings) -> Transformer:
    """The model that the objective trains, with its starting values."""
    return Pretraining(settings).build_initialized_model(vocabulary_size(settings))


def made_up_batch(settings: Settings) -> Batch:
    """Random tokens, masked as in training. The time of a step does not depend on the tokens."""
    vocabulary = MadeUpVocabulary(vocabulary_size(settings))
    return Pretraining(settings).objective(vocabulary).batch(vocabulary.random_rows(settings), settings.seed, 0)
