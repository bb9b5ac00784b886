"""Tables and views (workspaces, reports) that W&B stores. A view is made once and then updated in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.failures.failure import Mistake
from experiments.failures.missing_extra import check_installed
from experiments.failures.wording import first_line
from experiments.files.disk import read_bytes
from experiments.files.durable import to_json, write
from experiments.files.plain import from_json
from experiments.record.errors import or_other_runs
from experiments.record.folder import RENDERED, WANDB
from experiments.record.mirrors.wandb_server import (
    connect,
    import_library,
    in_a_line,
    mode_of,
    quiet_settings,
    why_offline,
)

# in the runs' folder: where each view of each project was saved
MEMORY = ".views.json"


def owner(entity: str | None) -> str:
    """The entity, or that of the user who is logged in.

    Raises Mistake without W&B's library of views or a login, and Failure without the server, before anything is built.
    """
    check_installed("dashboard", "--wandb", "wandb_workspaces")
    wandb = connect()
    return entity or str(wandb.Api().default_entity)


def rendered_tables(runs: Path) -> list[str]:
    """The papers' tables in `runs`, as Markdown."""
    return [path.read_text(encoding="utf-8") for path in sorted((runs / RENDERED).glob("*.md"))]


def _addresses(memory: Path) -> dict[str, str]:
    """The address of each view that was saved. Raises Mistake if the file is damaged."""
    try:
        addresses = from_json(read_bytes(memory)) if memory.exists() else {}
        if not isinstance(addresses, dict) or not all(isinstance(value, str) for value in addresses.values()):
            raise ValueError("it is not a mapping of addresses")
    except (OSError, ValueError) as error:
        raise Mistake(f"{memory}: damaged ({first_line(error)}); remove this file") from error
    return addresses


def save(view: Any, content: tuple[str, ...], runs: Path) -> str:
    """Save a workspace or a report, and return its address. Raises Mistake.

    If one of its kind was saved in the project before, its fields `content` are replaced, and the rest of it stays as
    people have set it.
    """
    kind = type(view).__name__.lower()
    project = f"{view.entity}/{view.project}"
    memory = runs / MEMORY
    addresses = _addresses(memory)
    try:
        if address_before := addresses.get(f"{kind} {project}"):
            saved = type(view).from_url(address_before)
            for field in content:
                setattr(saved, field, getattr(view, field))
            view = saved
        view.save()
        address: str = view.url
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise Mistake(f"the {kind} of {project} was not saved: {reason}", f"{memory} names it") from error
    with or_other_runs():
        write(memory, to_json(addresses | {f"{kind} {project}": address}, indent=2) + "\n")
    return address


def log_tables(name: str, tables: dict[str, list[dict[str, Any]]], logger: dict[str, Any], root: Path) -> str:
    """Log tables of rows as a W&B run of their own, offline unless somebody is logged in; returns a line about its
    place.

    logger: the settings of that group. root: the folder of the runs. Never raises.
    """
    mode = mode_of(logger["wandb"])
    if mode == "off":
        return "W&B off"
    try:
        wandb = import_library()
        online = mode != "offline" and why_offline(wandb) is None
        root.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=logger["project"], entity=logger["entity"], tags=logger["tags"], id=name, name=name, dir=str(root),
            resume="allow" if online else None, settings=quiet_settings(wandb, online),
        )  # fmt: skip
        for key, rows in tables.items():
            columns = list(rows[0]) if rows else []
            run.log({key: wandb.Table(columns=columns, data=[[row[column] for column in columns] for row in rows])})
        run.finish()
        return f"W&B online: {run.url}" if online else f"W&B offline: {root / WANDB}"
    except Exception as error:
        return f"W&B failed; the table is not affected: {in_a_line(error)}"
