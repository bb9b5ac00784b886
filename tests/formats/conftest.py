from tests.model.conftest import settings_of, variant_of

__all__ = ["settings_of", "variant_of"]
