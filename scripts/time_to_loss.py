"""Print the loss that Hugging Face's Trainer reaches in some minutes, with the text, tokenizer and evaluation of attn.

    python scripts/time_to_loss.py bert 1e-3 10 data=wikitext2

The arguments are bert or modernbert, the learning rate, the minutes, and overrides of attn. The overrides set the sizes
of the model and the batch. Everything else is the library's default, but without dropout. The learning rate falls to 0
over the steps, so a short run first measures how many steps fit. Needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.config.compose import compose
from experiments.objectives.objective import Batch
from experiments.settings.run import Settings
from experiments.tasks.choose import task_of
from experiments.training.evaluate import evaluation_batches

KINDS = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
    "modernbert": (transformers.ModernBertConfig, transformers.ModernBertForMaskedLM),
}
CALIBRATION = 150  # steps


def main() -> None:
    """Find how many steps fit into the minutes, train that many, and print the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("learning_rate", type=float)
    parser.add_argument("minutes", type=float)
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args()
    settings = compose(chosen.words)
    task = task_of(settings)
    dataset = task.prepare(print)
    objective = task.objective(dataset.tokenizer)

    def collated(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """A batch, masked as by `attn train` and differently each time: 80% masks, 10% random, 10% unchanged."""
        indices = [row["index"] for row in rows]
        batch = objective.batch(dataset.train.tokens[indices], settings.seed, indices[0])
        labels = torch.full_like(batch.tokens, -100)
        labels.view(-1)[batch.positions] = batch.targets
        return {"input_ids": batch.tokens, "labels": labels}

    def trained(steps: int) -> tuple[nn.Module, float]:
        transformers.set_seed(settings.seed)
        model = peer(chosen.kind, settings, dataset.tokenizer.vocabulary_size)
        rows = [{"index": index} for index in range(len(dataset.train.tokens))]
        return model, train(model, settings, chosen.learning_rate, steps, collated, rows)

    trained(CALIBRATION // 10)  # so that costs of the start are not timed
    _, seconds = trained(CALIBRATION)
    steps = round(chosen.minutes * 60 / seconds * CALIBRATION)
    model, seconds = trained(steps)
    batches = evaluation_batches(dataset.validation, objective, settings.trainer.evaluation_sequences)
    loss, count = evaluated(model, batches)
    speed = steps * settings.batch_size * settings.length / seconds
    print(
        f"{chosen.kind}, learning rate {chosen.learning_rate:g}: {steps:,} steps in {seconds:.0f} s, "
        f"{speed:,.0f} tokens/s, {sum(each.numel() for each in model.parameters()):,} parameters, "
        f"validation loss {loss:.4f} on {count:,} positions"
    )


def peer(kind: str, settings: Settings, vocabulary_size: int) -> nn.Module:
    """The library's model at the sizes of the settings, without dropout."""
    configuration, model = KINDS[kind]
    made: nn.Module = model(
        configuration(
            vocab_size=vocabulary_size,
            hidden_size=settings.hidden_size,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            intermediate_size=settings.model.intermediate_size,
            max_position_embeddings=settings.length,
            pad_token_id=0, cls_token_id=0, sep_token_id=0, bos_token_id=0, eos_token_id=0,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip
    return made


def train(
    model: nn.Module,
    settings: Settings,
    learning_rate: float,
    steps: int,
    collated: Callable[[list[dict[str, Any]]], dict[str, Tensor]],
    rows: list[dict[str, Any]],
) -> float:
    """Train the model and return the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=learning_rate,
            warmup_steps=min(steps // 10, 60),
            weight_decay=0.01,
            bf16=True,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            report_to="none",
            remove_unused_columns=False,
            logging_steps=200,
            disable_tqdm=True,
            seed=settings.seed,
        )
        trainer = transformers.Trainer(model, arguments, data_collator=collated, train_dataset=rows)
        began = time.perf_counter()
        trainer.train()
        return time.perf_counter() - began


@torch.inference_mode()
def evaluated(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, int]:
    """The loss in nats per position, and the number of positions."""
    model.eval()
    device = next(model.parameters()).device
    nats, count = 0.0, 0
    for batch in batches:
        batch = batch.map_tensors(lambda tensor: tensor.to(device))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits_BNV = model(input_ids=batch.tokens).logits
        logits = logits_BNV.flatten(0, 1)[batch.positions].float()
        nats += float(F.cross_entropy(logits, batch.targets, reduction="sum"))
        count += len(batch.targets)
    return nats / count, count


if __name__ == "__main__":
    main()
