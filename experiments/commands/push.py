"""`attn push`: an exported folder on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from experiments.failures.failure import Failure, Mistake
from experiments.failures.wording import first_line

SERVER_ERROR = 500  # the least status of an answer about an error of the server's
EXPORTED = ("config.json", "model.safetensors", "tokenizer.json")


def push(folder: Path, name: str) -> None:
    """Send an exported folder to the hub as owner/name, which becomes a new commit if the name exists there.

    Raises Mistake if the folder is no export, if nobody is logged in, or if the hub refuses it. Raises Failure if
    the hub cannot be reached, or fails itself.
    """
    import huggingface_hub
    from huggingface_hub import errors

    if missing := next((file for file in EXPORTED if not (folder / file).is_file()), None):
        raise Mistake(f"{folder}: there is no {missing}", "attn export RUN FOLDER writes such a folder")
    if huggingface_hub.get_token() is None:
        raise Mistake("you are not logged in to the Hugging Face hub", "hf auth login")
    try:
        # the hub's name, which has an owner even if the given one has none
        there = huggingface_hub.create_repo(name, exist_ok=True).repo_id
        done = huggingface_hub.upload_folder(repo_id=there, folder_path=folder, ignore_patterns="*.pyc")
    except errors.HFValidationError as error:
        raise Mistake(
            f"{name!r} can be no name on the Hugging Face hub", "OWNER/NAME, of letters, digits, -, _ and ."
        ) from error
    except errors.HfHubHTTPError as error:
        said = error.server_message or first_line(error)
        if (status := error.response.status_code) >= SERVER_ERROR:
            raise Failure(f"{name}: the Hugging Face hub has an error of its own ({status}): {said}") from error
        raise Mistake(f"{name}: the Hugging Face hub refuses it: {said}") from error
    except Exception as error:
        # every library beneath the hub's has exceptions of its own
        raise Failure(f"{name}: cannot be sent to the Hugging Face hub: {first_line(error)}") from error
    print(f"{folder}: {done}")
