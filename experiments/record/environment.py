"""The environment of a run: versions, commit, machine. Facts that only torch knows are passed in by the caller."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from experiments.measure.cores import cpu_field, usable
from experiments.processes.environment_variables import TUNED
from experiments.settings.plugins import code_folders

PACKAGES = (
    "torch", "numpy", "datasets", "hydra-core", "nltk", "omegaconf", "pydantic", "rich", "sacrebleu",
    "safetensors", "scikit-learn", "scipy", "tokenizers", "typer", "wandb",
)  # fmt: skip
COMPUTING = ("Python", "numpy", "tokenizers")
STARTED = "%Y-%m-%dT%H:%M:%S%z"  # the form of the time of a start
VARIABLES = ("OMP_NUM_THREADS", *TUNED)  # they affect the speed
# they choose the instructions of torch's libraries, and so how sums are rounded
ROUNDING = (
    "ATEN_CPU_CAPABILITY", "DNNL_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA",
)  # fmt: skip


def describe(torch_facts: dict[str, Any], seed: int, backend: str | None) -> dict[str, Any]:
    """Facts about this process and machine for `environment.json`.

    torch_facts: facts about torch and the accelerator (threads, CUDA version, name of the GPU, ...). backend: the
    attention kernels that ran, None before the first step. Never raises; an unknown fact is None.
    """
    return {
        "started": time.strftime(STARTED),
        "command": sys.argv,
        "plugins": [str(folder) for folder in code_folders()],
        "seed": seed,
        "backend": backend,
        "python": platform.python_version(),
        "packages": package_versions(),
        "git": checkout(),
        "host": platform.node(),
        "system": platform.platform(),
        "variables": {name: os.environ[name] for name in (*VARIABLES, *ROUNDING) if name in os.environ},
        "cpu": cpu_field("model name") or platform.processor() or None,
        "cores": os.cpu_count(),
        "usable_cores": len(usable()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "torch": torch_facts,
    }


@functools.cache
def package_versions() -> dict[str, str | None]:
    """The versions of the packages on which a run may depend; None for one that is not installed."""
    return {name: _version(name) for name in PACKAGES}


def since_last_start(before: dict[str, Any], now: dict[str, Any]) -> str:
    """A line about the changes between the environments of two starts of a run on which its numbers may depend.

    Empty without one.
    """
    rounding = _changes(_rounding(before), _rounding(now))
    changes = ", ".join(filter(None, (rounding, _changes(_computing(before), _computing(now)))))
    rounded = ", so sums may be rounded differently" if rounding else ""
    return f"since the last start this has changed{rounded}: {changes}" if changes else ""


def _changes(before: list[str | None], now: list[str | None]) -> str:
    pairs = zip(before, now, strict=True)
    return ", ".join(f"{old} -> {new}" for old, new in pairs if old != new and old is not None)


def _rounding(facts: dict[str, Any]) -> list[str | None]:
    """By which sums are rounded differently."""
    torch, variables = facts["torch"], facts.get("variables", {})
    chosen = [f"{name}={variables[name]}" if name in variables else f"no {name}" for name in ROUNDING]
    return [f"torch {facts['packages']['torch']}", torch["device"], torch.get("instructions"), *chosen]


def _computing(facts: dict[str, Any]) -> list[str | None]:
    """What else computes numbers, where no digest covers it."""
    versions = {"Python": facts.get("python"), **facts["packages"]}
    return [f"{name} {versions[name]}" if versions.get(name) else None for name in COMPUTING]


def versions() -> str:
    """A line for a bug report: the versions of attn, Python and torch, the commit of a checkout, and the system."""
    git = checkout()
    changed = ", modified" if git and git["modified"] else ""
    commit = f" (commit {git['commit'][:12]}{changed})" if git else ""
    return f"attn {_version('attn')}{commit}, Python {platform.python_version()}, torch {_version('torch')}, " + (
        platform.platform()
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def checkout() -> dict[str, Any] | None:
    """Commit of the checkout that tracks this file, and whether its files were modified; None outside a checkout."""
    this_file = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        # without the lock of the index, which a command of the user's may want at this moment
        command = ["git", "--no-optional-locks", "-C", str(this_file.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        # an installed copy may lie inside another project's checkout, whose commit is irrelevant
        git("ls-files", "--error-unmatch", this_file.name)
        return {
            "commit": git("rev-parse", "HEAD"),
            "modified": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None
