"""The examples of a task, and the pretrained model with a head for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.data.cache import Cache, MissingError
from experiments.data.packing import Dataset, Packed
from experiments.data.tokenizer import TOKENIZER_FILE, ReportProgress, Tokenizer, load
from experiments.failures.failure import Mistake
from experiments.record.checkpoint_paths import checkpoint_path
from experiments.record.errors import RunFolderError
from experiments.record.folder import RunFolder
from experiments.settings.finetuning import FinetuningSettings
from experiments.tasks.finetuning.features import Features, check_batch, obtain
from experiments.tasks.finetuning.kind import kind_of
from experiments.tasks.finetuning.rows import check_splits, identity, is_local
from experiments.tasks.finetuning.weights import pretrained_weights

if TYPE_CHECKING:
    from experiments.model.finetuned_encoder import FinetunedEncoder
    from experiments.model.transformer import Transformer
    from experiments.objectives.objective import Vocabulary
    from experiments.tasks.finetuning.objective import FinetuningObjective


class Finetuning:
    """The examples of a benchmark, and a pretrained encoder with a head for them: a `tasks.task.Task`."""

    def __init__(self, settings: FinetuningSettings) -> None:
        self.settings = settings
        self.cache = Path(settings.cache)
        self.name = settings.task.name
        self.features: Features | None = None

    def identity(self) -> dict[str, Any] | None:
        """The identity of the examples, if they are local files."""
        task = self.settings.task
        return identity(task, Cache(self.cache, None)) if is_local(task) else None

    def tokenizer_digest(self) -> None:
        """None: the tokenizer is part of the pretrained run, whose digests are in the settings."""

    def is_ready(self) -> bool:
        """Whether the windows are in the cache. Raises DataError also if a run would be scored on what it learns."""
        cache = Cache(self.cache, None)
        check_splits(self.settings.task, cache)
        try:
            self._obtain(cache, lambda stage, done, total: None)
        except MissingError:
            return False
        return True

    def prepare(self, report: ReportProgress) -> Dataset:
        """The examples as a dataset, whose sequences are rows of features."""
        settings = self.settings
        features = self._obtain(Cache(self.cache, lambda text: report(text, 0, None)), report)
        self.features = features
        check_batch(len(features.train), settings.trainer.batch_size, settings.task)
        counts = kind_of(settings.task).target_counts(features.train[:, settings.length + 2 :], settings.length)
        train = Packed("train", features.train, 0, 0, features.examples["train"])
        held_out = sum(count for split, count in features.examples.items() if split != "train")
        validation = Packed("validation", features.validation, 0, 0, held_out)
        return Dataset(
            train, validation, None, self.tokenizer(), counts, features.identity, features.sequences, features.remark
        )

    def objective(self, vocabulary: Vocabulary) -> FinetuningObjective:
        """The objective of the task; before `prepare` it is good for shapes alone."""
        from experiments.tasks.finetuning.objective import FinetuningObjective

        settings = self.settings
        return FinetuningObjective(
            settings.task,
            settings.length,
            self.features,
            vocabulary,
            token_types=settings.model.token_types >= 2,
            causal=settings.objective.architecture == "causal_decoder",
        )

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the pretrained run."""
        return load(Path(self.settings.pretrained) / TOKENIZER_FILE)

    def vocabulary_size(self) -> int:
        """Ids of that tokenizer."""
        return self.tokenizer().vocabulary_size

    def remark(self) -> str:
        """A line if the pretrained run had a later checkpoint of the kind than the one of the settings."""
        from experiments.record.checkpoint_file import header_of, remark

        settings = self.settings
        folder, which = RunFolder(settings.pretrained), settings.checkpoint
        path = checkpoint_path(folder.checkpoint, which, settings.origin.step)
        header = header_of(path)
        with suppress(RunFolderError):
            return remark(path, header, which, folder.result())
        return ""

    def build_model(self, vocabulary_size: int) -> FinetunedEncoder:
        """The pretrained layers with a new head, without values; for an encoder-decoder, the layers of its encoder.

        Raises Mistake for an architecture that is neither an encoder-decoder nor one stack of layers.
        """
        from experiments.model.architectures import encoder
        from experiments.model.finetuned_encoder import FinetunedEncoder
        from experiments.tasks.pretraining import Pretraining

        settings = self.settings
        if settings.objective.architecture == "encoder_decoder":
            body = encoder.Architecture(settings.model, settings.variant, vocabulary_size)
        else:
            whole = Pretraining(settings).build_model(vocabulary_size)
            if not isinstance(whole, encoder.Architecture):
                raise Mistake(
                    f"{settings.pretrained}: its model, {settings.objective.architecture}, cannot be fine-tuned: its "
                    "class must be a subclass of the encoder's"
                )
            body = whole
        return FinetunedEncoder(body, settings.model, settings.task.outputs)

    def build_initialized_model(self, vocabulary_size: int) -> Transformer:
        """The pretrained layers with a new head, which is drawn from the seed."""
        import torch

        from experiments.model.initialization import initialize
        from experiments.record.checkpoint_file import restore, weights

        settings = self.settings
        with torch.random.fork_rng(devices=[]):
            model = self.build_model(vocabulary_size)
        initialize(model, settings.seed, settings.model.initial_std)
        live = weights(model.body)
        stored = {name: tensor for name, tensor in pretrained_weights(settings).items() if name in live}
        # of the stored weights those of the head that was cut off are not needed; whatever the body has must be there
        restore(live, stored)
        return model

    def _obtain(self, cache: Cache, report: ReportProgress) -> Features:
        settings = self.settings
        return obtain(settings.task, self.tokenizer(), settings.length, cache, report)
