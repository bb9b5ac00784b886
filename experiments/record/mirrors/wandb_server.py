"""W&B itself: its library, its settings, and whether its server can be used."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from experiments.failures.failure import Failure, Mistake

REACH_SECONDS = 3.0
START_SECONDS = 10.0
FINISH_SECONDS = 30.0
NO_LOGIN = "nobody is logged in to W&B (`wandb login`, or WANDB_API_KEY)"


def connect() -> ModuleType:
    """The library. Raises Mistake if nobody is logged in, and Failure within a few seconds if the server does not
    answer.
    """
    wandb = import_library()
    obstacle = why_offline(wandb)
    if obstacle is not None:
        raise Mistake(obstacle) if obstacle == NO_LOGIN else Failure(obstacle)
    return wandb


def import_library() -> ModuleType:
    """The library, which prints nothing and reports no error of its own to its makers."""
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    return wandb


def mode_of(setting: str) -> str:
    """auto, online, offline or off: `auto` follows WANDB_MODE."""
    if setting != "auto":
        return setting
    return {"offline": "offline", "dryrun": "offline", "disabled": "off"}.get(os.environ.get("WANDB_MODE", ""), "auto")


def why_offline(wandb: ModuleType) -> str | None:
    """The reason why an online run is not possible, or None. Only opens a connection to a server."""
    if not wandb.login(prompt=False, verify=False):
        return NO_LOGIN
    url = wandb.setup().settings.base_url
    if not _reachable(url):
        return f"{url} can't be reached"
    return None


def _reachable(url: str) -> bool:
    """Whether the host of `url`, or the proxy that leads to it, accepts a connection."""
    # slow to import
    from urllib.request import getproxies, proxy_bypass

    target = urlsplit(url)
    if not proxy_bypass(target.netloc):
        proxy = getproxies().get(target.scheme, url)
        # W&B, as other programs do, also takes a proxy without a scheme: host:3128
        target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    answers = []

    def connect() -> None:
        # ValueError: what stands for the port is no number
        with suppress(OSError, ValueError):
            port = target.port or (443 if target.scheme == "https" else 80)
            with socket.create_connection((target.hostname or "", port), REACH_SECONDS):
                answers.append(True)

    # the lookup of a name has no time limit of its own
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return bool(answers)


def quiet_settings(wandb: ModuleType, online: bool) -> Any:
    """Settings under which W&B prints nothing, watches nothing, and waits no longer than the limits above."""
    return wandb.Settings(
        mode="online" if online else "offline",
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        reinit="create_new",
        init_timeout=START_SECONDS,
        finish_timeout=FINISH_SECONDS,
        finish_timeout_raises=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
        x_transaction_log_flush_interval=1.0,
    )


def in_a_line(error: Exception) -> str:
    """The kind and the message of an error, in at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
