"""The pretrained weights under another head; with a Hugging Face model's weights its logits."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from experiments.formats.bert import BertFormat
from experiments.model.architectures import encoder, sentence_order_encoder, two_stream_encoder
from experiments.model.finetuned_encoder import FinetunedEncoder
from experiments.objectives.loss import loss
from experiments.objectives.objective import Batch
from experiments.settings.conf_files import CONF
from experiments.settings.model import Model
from experiments.training.step.micro_batches import padded

transformers = pytest.importorskip("transformers")

VARIANT = {
    "name": "multi_head", "hidden_size": 24, "memory_size": 24, "heads": 4, "key_size": 6, "value_size": 6,
    "scaled": True, "linear_bias": True, "dropout": 0.0, "backend": "auto",
}  # fmt: skip


def bert(kind: type[encoder.Architecture] = encoder.Architecture, **changes) -> tuple[encoder.Architecture, Model]:
    model = Model(
        hidden_size=24, intermediate_size=48, embedding_size=24, layers=2, sharing="none", length=11, norm="post",
        norm_kind="layer", norm_epsilon=1e-12, embedding_norm=True, position="learned", rotary_base=10000.0,
        sinusoidal_base=10000.0, position_start="normal", first_norm=True, local_window=None, global_every=3,
        local_rotary_base=10000.0, segment_length=None,
        relative_buckets=8, relative_distance=16, activation="gelu", gated=False, linear_bias=True, token_types=2,
        head_transform=True, tied=True, head_bias=True, output_scaled=False, branches_scaled=False, dropout=0.0,
        attention_dropout=0.0,
        initial_std=0.3,
    ).model_copy(update=changes)  # fmt: skip
    torch.manual_seed(1)
    return kind(model, VARIANT, 31), model


def batch() -> dict[str, torch.Tensor]:
    """Three sequences of different lengths, of two texts each."""
    tokens = torch.randint(5, 31, (3, 11), generator=torch.Generator().manual_seed(2))
    mask = torch.arange(11) < torch.tensor([[11], [7], [9]])
    types = (torch.arange(11) >= torch.tensor([[5], [3], [4]])).long() * mask
    return {"tokens": tokens, "mask": mask, "token_types": types}


def peer(kind: str, **more):
    config = transformers.BertConfig(
        vocab_size=31, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=11, initializer_range=0.3, **more,
    )  # fmt: skip
    torch.manual_seed(0)
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def take_body(ours: FinetunedEncoder, theirs) -> None:
    stored = {name: tensor for name, tensor in theirs.state_dict().items() if name.startswith("bert.")}
    stored = {name: tensor for name, tensor in stored.items() if "pooler" not in name and "position_ids" not in name}
    stored["cls.predictions.bias"] = torch.zeros(31)
    found = BertFormat().from_hugging_face(stored)
    del found["head.bias"]
    ours.body.load_state_dict(found)


def test_spans_are_those_of_a_bert_for_question_answering():
    theirs, inputs = peer("BertForQuestionAnswering"), batch()
    body, model = bert()
    ours = FinetunedEncoder(body, model, None).eval()
    take_body(ours, theirs)
    ours.head.output.load_state_dict(theirs.qa_outputs.state_dict())
    positions = torch.tensor([0, 1, 11, 12, 22, 23])
    with torch.no_grad():
        logits = ours(positions=positions, **inputs).reshape(3, 2, 11)
        expected = theirs(inputs["tokens"], inputs["mask"].long(), inputs["token_types"])
    for index, there in enumerate((expected.start_logits, expected.end_logits)):
        assert_close(logits[:, index][inputs["mask"]], there[inputs["mask"]], atol=1e-5, rtol=1e-5)
    assert logits[1, 0].softmax(0)[7:].sum() == 0, "padding is no answer"


def test_labels_are_those_of_a_bert_for_sequence_classification():
    theirs, inputs = peer("BertForSequenceClassification", num_labels=3), batch()
    body, model = bert()
    ours = FinetunedEncoder(body, model, 3).eval()
    take_body(ours, theirs)
    ours.head.dense.load_state_dict(theirs.bert.pooler.dense.state_dict())
    ours.head.output.load_state_dict(theirs.classifier.state_dict())
    with torch.no_grad():
        logits = ours(positions=torch.tensor([0, 11, 22]), **inputs)
        expected = theirs(inputs["tokens"], inputs["mask"].long(), inputs["token_types"]).logits
    assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("outputs", [None, 3])
def test_padding_changes_nothing(outputs):
    body, model = bert()
    ours, inputs = FinetunedEncoder(body, model, outputs).eval(), batch()
    other = {**inputs, "tokens": inputs["tokens"].masked_fill(~inputs["mask"], 7)}
    positions = torch.tensor([0, 1, 11, 12, 22, 23]) if outputs is None else torch.tensor([0, 11, 22])
    with torch.no_grad():
        assert_close(ours(positions=positions, **inputs), ours(positions=positions, **other))


@pytest.mark.parametrize("sharing", ["none", "all"])
@pytest.mark.parametrize("architecture", [encoder, sentence_order_encoder, two_stream_encoder])
def test_nothing_is_left_of_what_only_pretraining_needs(architecture, sharing):
    body, model = bert(architecture.Architecture, embedding_size=8, sharing=sharing)
    ours, inputs = FinetunedEncoder(body, model, 3), batch()
    ours(positions=torch.tensor([0, 11, 22]), **inputs).square().sum().backward()
    unused = [name for name, parameter in ours.named_parameters() if parameter.grad is None]
    assert not unused
    plain = FinetunedEncoder(encoder.Architecture(model, VARIANT, 31), model, 3)
    assert ours.parameter_counts() == plain.parameter_counts()
    assert ours.flops_per_token(11, 1 / 11) == plain.flops_per_token(11, 1 / 11)


def test_the_loss_of_numbers_is_the_squared_error_and_leaves_out_what_is_ignored():
    logits = torch.tensor([[1.0], [2.0], [-97.0]], requires_grad=True)
    # -100 is a number like others
    part = Batch({}, torch.arange(3), torch.tensor([0.0, 4.0, -100.0]), 3)
    found = loss(logits, part.targets)
    assert found.item() == pytest.approx(1 + 4 + 9)
    longer = padded(part._replace(targets=part.targets[:0], positions=part.positions[:0]))
    ignored = loss(logits[:1], longer.targets)
    ignored.backward()
    assert len(longer.targets) == 1 and ignored.item() == 0 and logits.grad.eq(0).all()


def test_the_configuration_names_no_other_kind():
    kinds = {line.split()[1] for path in (CONF / "task").glob("*.yaml") for line in path.read_text().splitlines()
             if line.startswith("  kind:")}  # fmt: skip
    assert kinds == {"span", "classification", "regression"}
