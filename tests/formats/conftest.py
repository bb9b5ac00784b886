"""Our model by the words of a format, and another library's model whose weights are all different from their start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from experiments.config.compose import compose
from experiments.formats.format import Format
from experiments.model.build import build
from experiments.model.transformer import Transformer
from experiments.settings.run import Settings
from tests.model.conftest import settings_of, variant_of

__all__ = ["settings_of", "variant_of"]

VOCABULARY = 31


@pytest.fixture
def of_words() -> Callable[[list[str]], tuple[Settings, Transformer]]:
    def make(words: list[str]) -> tuple[Settings, Transformer]:
        settings = compose(words)
        model = build(settings.objective.architecture, settings.model, settings.variant, VOCABULARY, 0)
        return settings, model.eval()

    return make


@pytest.fixture
def there_and_back(of_words) -> Callable[[Format, Any], Any]:
    def make(format: Format, theirs: Any) -> Any:
        """Make another model of their class from what ours writes after reading theirs."""
        settings, ours = of_words(format.overrides(theirs.config.to_dict()))
        ours.load_state_dict(format.from_hugging_face(theirs.state_dict()))
        again = type(theirs)(type(theirs.config)(**format.config(settings, VOCABULARY)))
        again.load_state_dict(format.to_hugging_face(ours.state_dict(), settings))
        return again.eval()

    return make


@pytest.fixture
def shaken() -> Callable[[Any], Any]:
    def shake(model: Any) -> Any:
        """Biases start as zeros and norms as ones, which would hide a mix-up."""
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        return model.eval()

    return shake


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))
