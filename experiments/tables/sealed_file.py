"""Files that carry their own digest, whose content has a known form."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from experiments.failures.failure import Mistake
from experiments.failures.wording import first_line
from experiments.files.durable import read_sealed

Content = TypeVar("Content")


def read_content(path: Path, form: type[Content], otherwise: str) -> Content:
    """The content of a file that `write_sealed` wrote, in the form of a dataclass.

    Raises Mistake, which begins with `otherwise` after the path, for a file that has changed since, or that has not
    this form.
    """
    try:
        return TypeAdapter(form).validate_python(read_sealed(path))
    except ValidationError as error:
        fault = error.errors()[0]
        raise Mistake(f"{path}: {otherwise}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from error
    except (OSError, ValueError) as error:
        raise Mistake(f"{path}: {otherwise}: {first_line(error)}") from error
