"""Draw the pictures of docs/dashboard.md: the comparison page of runs that this script makes up, in Chromium.

python scripts/draw_dashboard.py [docs]

The settings are those that `attn train` would compose. The numbers are formulas and noise; nothing is trained.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from experiments.commands.dashboard import write_dashboard
from experiments.config.compose_many import Composer
from experiments.record.folder import RunFolder, run_name
from tests.fixtures.browser import set_screen, start_chromium
from tests.fixtures.record import leave_result

ROOT = Path(__file__).resolve().parents[1]
RUNS = "made_up_runs"  # the foot of the page names the folder
# what a configuration's loss is higher than that of 6 heads
HIGHER = {
    ("multi_head", 6): 0.0, ("multi_head", 12): 0.01, ("multi_head", 24): 0.06,
    ("talking_heads", 6): -0.03, ("talking_heads", 12): -0.07, ("talking_heads", 24): -0.06,
}  # fmt: skip
SEEDS, STEPS, EVERY, TOKENS = 6, 800, 20, 1024
# what becomes of a run that does not end
UNFINISHED = {("talking_heads", 24, SEEDS - 1)}
# name -> width, the part of the page's state that the address holds, height (None: the whole page)
PICTURES: dict[str, tuple[int, dict[str, Any], int | None]] = {
    "dashboard": (1280, {}, None),
    "dashboard_phone": (390, {"theme": "dark"}, 1150),
}


def make_run(runs: Path, settings: dict[str, Any], higher: float, finishes: bool) -> None:
    """Write the folder of a run: a curve that falls to 4.5 nats and `higher`, with noise that runs of a seed share."""
    variant, seed = settings["variant"]["name"], settings["seed"]
    shared, own = random.Random(seed), random.Random(f"{variant} {settings['heads']} {seed}")
    offset = higher + shared.gauss(0, 0.02) + own.gauss(0, 0.004)
    talks = variant == "talking_heads"
    speed = (8000 if talks else 11000) / (1 + settings["heads"] / 48) * own.uniform(0.97, 1.03)
    memory = int(1e6 * (380 + (4 if talks else 1) * settings["heads"]) * own.uniform(0.99, 1.01))
    folder = RunFolder(runs / run_name(settings))
    folder.create(settings)
    last = STEPS if finishes else STEPS * 6 // 10
    for step in range(EVERY, last + 1, EVERY):
        part = step / STEPS
        loss = 4.5 + offset + 3.4 * math.exp(-6 * part) + 0.5 * (1 - part) ** 2
        line = {"step": step, "tokens": step * TOKENS, "loss": loss + shared.gauss(0, 0.03), "tokens_per_second": speed,
                "peak_memory_bytes": memory, "gradient_norm": math.exp(own.gauss(-0.5, 0.1)),
                "learning_rate": 0.006 * (1 - part), "wall_seconds": step * TOKENS / speed}  # fmt: skip
        folder.metrics.append(line | ({"validation_loss": loss} if step % 100 == 0 else {}))
    folder.close()
    if finishes:
        leave_result(
            folder.path, validation_loss=loss, perplexity=math.exp(loss), unigram_loss=6.5, tokens=STEPS * TOKENS,
            tokens_per_second=speed, peak_memory_bytes=memory, parameters={"total": 2_500_000}, steps=STEPS, seed=seed,
            wall_seconds=STEPS * TOKENS / speed, config=settings, late_gain=0.001, backend="compiled", precision="fp32",
        )  # fmt: skip


def make_runs(runs: Path) -> None:
    """Write the folders of all runs."""
    composer = Composer()
    for (variant, heads), higher in HIGHER.items():
        for seed in range(SEEDS):
            settings = composer.compose([f"variant={variant}", f"heads={heads}", f"seed={seed}", f"runs={RUNS}"])
            make_run(runs, settings.model_dump(), higher, (variant, heads, seed) not in UNFINISHED)


def photographs(page: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, PNG) for each picture of the page."""
    browser = start_chromium("--hide-scrollbars")
    if browser is None:
        raise SystemExit("the pictures need chromium with its chromedriver: apt install chromium-driver")
    try:
        for name, (width, state, height) in PICTURES.items():
            set_screen(browser, width)
            browser.get("about:blank")
            browser.get(f"{page.as_uri()}#{quote(json.dumps(state))}")
            height = height or browser.execute_script("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            shot = {"clip": clip, "captureBeyondViewport": True}
            yield name, base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])
    finally:
        browser.quit()


def main(out: Path) -> None:
    """Make the runs and write the pictures."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        make_runs(Path(RUNS))
        write_dashboard([], Path(RUNS), Path("page.html"), watch=False, show=False)
        for name, picture in photographs(Path(scratch) / "page.html"):
            few_colours = Image.open(io.BytesIO(picture)).convert("RGB").quantize(dither=Image.Dither.NONE)
            few_colours.save(out / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "docs")
