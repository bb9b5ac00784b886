"""The settings of a run folder, which may be somebody else's.

It decides what is computed; this machine decides where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from experiments.config.check import class_of, errors_of, from_tree
from experiments.config.command_line import check_single
from experiments.config.compose import compose_raw, resolve
from experiments.config.groups import groups, options
from experiments.config.hydra_messages import hydra_errors_as_mistakes, near_key
from experiments.config.primary import primary_of
from experiments.failures.failure import Mistake
from experiments.failures.wording import as_yaml, did_you_mean
from experiments.record.code.plugin_files import check_plugins
from experiments.record.folder import CONFIG, RunFolder
from experiments.settings.finetuning import FinetuningSettings
from experiments.settings.run import Settings


def on_this_machine(run: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, which may be somebody else's, with the folders, the device and the W&B account of this
    machine. Raises Mistake.
    """
    with hydra_errors_as_mistakes():
        ours = OmegaConf.to_container(compose_raw([]), resolve=True)
    assert isinstance(ours, dict)
    trainer = run.get("trainer")
    if not isinstance(trainer, dict):
        raise Mistake(f"trainer = {as_yaml(trainer)}: must be a group of settings")
    device = {key: ours["trainer"][key] for key in ("device", "devices", "sharded")}
    return run | {key: ours[key] for key in ("runs", "cache", "logger")} | {"trainer": trainer | device}


def config_here(folder: RunFolder) -> dict[str, Any]:
    """The settings in a run folder, with the folders, the device and the W&B account of this machine.

    Raises Mistake if the run needs files of plugins that are not in use, and names the file if it has settings that
    there are not.
    """
    check_plugins(folder)
    config = on_this_machine(folder.config())
    if wrong := list(errors_of(config, class_of(config))):
        raise Mistake(f"{folder.path / CONFIG}: {'; '.join(wrong)}", "use the version of attn that made the run")
    return config


def project_and_entity(path: str | None) -> tuple[str, str | None]:
    """Project and entity in W&B: those named as [ENTITY/]PROJECT, or those of this machine. Raises Mistake."""
    if path is None:
        logger = compose_raw([]).logger
        return logger.project, logger.entity
    entity, slash, project = path.rpartition("/")
    if not project or "/" in entity or (slash and not entity):
        raise Mistake(f"--project {path}: must be PROJECT or ENTITY/PROJECT")
    return project, entity or None


def pretraining(folder: RunFolder) -> Settings:
    """The settings of a pretrained run. Raises Mistake for a fine-tuned one."""
    settings = from_tree(config_here(folder))
    if isinstance(settings, FinetuningSettings):
        raise Mistake(f"{folder.name} is a fine-tuned run", f"name the pretrained run: {settings.origin.run}")
    return settings


def override(tree: dict[str, Any], overrides: list[str]) -> Settings:
    """The settings of a run's `config.yaml` with other values. Raises Mistake.

    A group is composed afresh; a key that people vary also reaches the places that refer to it.
    """
    primary = primary_of(tree)
    parsed = check_single(overrides, primary)
    for text, each in zip(overrides, parsed, strict=True):
        if each.key_or_group in groups() and each.key_or_group not in tree:
            # an overlay of several settings
            raise Mistake(f"{text}: a run has no {each.key_or_group}", "name the settings themselves: length=64")
    composed_groups = {each.key_or_group for each in parsed} & set(groups())
    pairs = zip(overrides, parsed, strict=True)
    group_overrides = [text for text, each in pairs if each.key_or_group.split(".")[0] in composed_groups]
    # its expressions are about the run's own sizes
    fresh = OmegaConf.to_container(compose_raw(group_overrides, primary), resolve=False)
    assert isinstance(fresh, dict)
    config = OmegaConf.create(tree | {group: fresh[group] for group in composed_groups})
    variant = tree["variant"].get("name")
    if variant not in (known := options("variant")):
        hint = "give plugins=FOLDER or --config-dir FOLDER that has it"
        raise Mistake(f"there is no variant {variant!r} here" + did_you_mean(str(variant), known), hint)
    sources = OmegaConf.to_container(compose_raw([f"variant={variant}"]), resolve=False)
    assert isinstance(sources, dict)
    for each in parsed:
        key: str = each.key_or_group
        value: Any = each.value()
        if key.split(".")[0] in composed_groups:
            continue
        if OmegaConf.select(config, key, default=config) is config:
            raise Mistake(f"there is no setting {key!r}", near_key(key, primary=primary))
        OmegaConf.update(config, key, value)
        for place in _places_of(key, sources, tree):
            # not the value, whose mistake would be said of each place
            OmegaConf.update(config, place, f"${{{key}}}")
    return resolve(config)


def _places_of(key: str, sources: dict[Any, Any], tree: dict[str, Any]) -> Iterator[str]:
    """Dotted keys of `tree` whose source, its YAML before interpolation, is nothing but `${key}`."""
    for group, keys in sources.items():
        if isinstance(keys, dict) and isinstance(tree.get(str(group)), dict):
            referring = (name for name, source in keys.items() if source == f"${{{key}}}" and name in tree[str(group)])
            yield from (f"{group!s}.{name!s}" for name in referring)
