"""Folders as seven released models are published: their config.json, their tokenizer's special tokens, random weights.

Only what makes a model large is smaller: its depth, its width, its vocabulary and its longest text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

WORDS = [
    "the",
    "cat",
    "sees",
    "two",
    "dogs",
    "and",
    "a",
    "king",
    "finds",
    "some",
    "of",
    "them",
    "in",
    "an",
    "old",
    "house",
    "near",
    "by",
]
TEXT = "\n\n".join(
    f"the cat sees {number} dogs. a king finds the old house near by, and two of them." for number in range(300)
)

# what each is published with, but for what every one writes and nothing reads
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {
        "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": False,
        "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 24, "initializer_range": 0.02,
        "intermediate_size": 36, "layer_norm_eps": 1e-12, "max_position_embeddings": 64, "model_type": "bert",
        "num_attention_heads": 4, "num_hidden_layers": 2, "pad_token_id": 0, "position_embedding_type": "absolute",
        "type_vocab_size": 2, "use_cache": True,
    },
    "roberta": {
        "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
        "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 24,
        "initializer_range": 0.02, "intermediate_size": 36, "layer_norm_eps": 1e-05, "max_position_embeddings": 66,
        "model_type": "roberta", "num_attention_heads": 4, "num_hidden_layers": 2, "pad_token_id": 1,
        "type_vocab_size": 1,
    },
    "albert": {
        "architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2,
        "classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 12, "eos_token_id": 3,
        "gap_size": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "hidden_size": 24,
        "initializer_range": 0.02, "inner_group_num": 1, "intermediate_size": 36, "layer_norm_eps": 1e-12,
        "max_position_embeddings": 64, "model_type": "albert", "net_structure_type": 0, "num_attention_heads": 4,
        "num_hidden_groups": 1, "num_hidden_layers": 2, "num_memory_blocks": 0, "pad_token_id": 0,
        "type_vocab_size": 2,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"], "d_ff": 36, "d_kv": 6, "d_model": 24,
        "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0,
        "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 64,
        "num_heads": 4, "num_layers": 2, "output_past": True, "pad_token_id": 0, "relative_attention_num_buckets": 32,
        "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}},
    },
    "gpt2": {
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "embd_pdrop": 0.1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
        "n_ctx": 64, "n_embd": 24, "n_head": 4, "n_layer": 2, "n_positions": 64, "resid_pdrop": 0.1,
        "summary_type": "cls_index", "task_specific_params": {"text-generation": {"max_length": 50}},
    },
    "distilbert": {
        "activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 24,
        "dropout": 0.1, "hidden_dim": 36, "initializer_range": 0.02, "max_position_embeddings": 64,
        "model_type": "distilbert", "n_heads": 4, "n_layers": 2, "pad_token_id": 0, "qa_dropout": 0.1,
        "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True,
    },
    "modernbert": {
        "architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0,
        "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0,
        "classifier_pooling": "mean", "decoder_bias": True, "deterministic_flash_attn": False,
        "embedding_dropout": 0.0, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
        "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 24,
        "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 36, "layer_norm_eps": 1e-05,
        "local_attention": 8, "local_rope_theta": 10000.0, "max_position_embeddings": 64, "mlp_bias": False,
        "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05,
        "num_attention_heads": 4, "num_hidden_layers": 4, "position_embedding_type": "absolute",
        "sparse_prediction": False, "sparse_pred_ignore_index": -100,
    },
}  # fmt: skip
# rows of the embedding for which the tokenizer has no tokens
SPARE = {"t5": 28}


def save(family: str, folder: Path) -> Path:
    """Write a folder of this family, whose weights are all other than they start."""
    import transformers

    tokenizer, ids = tokenizer_of(family)
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1 + SPARE.get(family, 0)
    config = CONFIGS[family] | ids | {"vocab_size": size}
    torch.manual_seed(0)
    kind = getattr(transformers, config["architectures"][0])
    model = kind(transformers.AutoConfig.for_model(**config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    if family == "gpt2":
        _without_prefix(folder / "model.safetensors")
    return folder


def _without_prefix(file: Path) -> None:
    """The names of the published weights."""
    from safetensors.torch import load_file, save_file

    save_file({name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}, file)


def tokenizer_of(family: str) -> tuple[Any, dict[str, int]]:
    """The family's tokenizer over a small vocabulary, and the ids that its config.json names."""
    make = {"roberta": _roberta, "albert": _albert, "t5": _t5, "gpt2": _gpt2, "modernbert": _modernbert}
    return make.get(family, _bert)()


def _frame(single: str, pair: str, *special: tuple[str, int]):
    from tokenizers import processors

    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(special))


def _bert():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    special = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [mark + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789" for mark in ("", "##")]
    vocabulary = {token: i for i, token in enumerate([*special, *WORDS, ".", ",", *(x for x in letters if x != "a")])}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.post_processor = _frame(
        "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ("[CLS]", 3), ("[SEP]", 4)
    )
    inner.add_special_tokens([each for each in special if each != "[unused0]"])
    return inner, {"pad_token_id": 0}


def _bytes(special: list[str]):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([TEXT], trainer)
    return inner


def _gpt2():
    from tokenizers import processors

    inner = _bytes(["<|endoftext|>"])
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    end = inner.token_to_id("<|endoftext|>")
    return inner, {"bos_token_id": end, "eos_token_id": end}


def _roberta():
    from tokenizers import AddedToken, processors

    inner = _bytes(["<s>", "<pad>", "</s>", "<unk>"])
    inner.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return inner, {}


def _modernbert():
    from tokenizers import AddedToken

    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    inner = _bytes([])
    inner.add_tokens(["    "])
    inner.add_special_tokens(
        [AddedToken("<|endoftext|>"), *(AddedToken(each, lstrip=each == "[MASK]") for each in names)]
    )
    inner.add_tokens(["[unused0]", "[unused1]"])
    cls, sep, pad = (inner.token_to_id(each) for each in ("[CLS]", "[SEP]", "[PAD]"))
    inner.post_processor = _frame(
        "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0", ("[CLS]", cls), ("[SEP]", sep)
    )
    return inner, {
        "bos_token_id": cls,
        "cls_token_id": cls,
        "eos_token_id": sep,
        "sep_token_id": sep,
        "pad_token_id": pad,
    }


def _pieces(special: list[str]):
    """A SentencePiece vocabulary, as transformers converts it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    pieces = [f"\u2581{word}" for word in WORDS] + ["\u2581", ".", ",", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    scores = [(each, 0.0) for each in special] + [(piece, -1.0 - i / 10) for i, piece in enumerate(pieces)]
    inner = Tokenizer(models.Unigram(scores, unk_id=special.index("<unk>")))
    inner.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])
    space = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    inner.decoder = decoders.Metaspace(replacement="\u2581", prepend_scheme="always")
    inner.add_special_tokens(special)
    return inner


def _albert():
    from tokenizers import AddedToken

    inner = _pieces(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    inner.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
    inner.post_processor = _frame(
        "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ("[CLS]", 2), ("[SEP]", 3)
    )
    return inner, {}


def _t5():

    inner = _pieces(["<pad>", "</s>", "<unk>"])
    inner.add_special_tokens([f"<extra_id_{99 - i}>" for i in range(100)])
    inner.post_processor = _frame("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0", ("</s>", 1))
    return inner, {}
