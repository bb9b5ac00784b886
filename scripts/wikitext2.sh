#!/usr/bin/env bash
# Make the runs and the picture of docs/wikitext2.md, in runs/wikitext2. This takes about half an hour on one core.
set -euo pipefail

attn train -m optimizer=adamw precision=fp32 objective.rate=0.15 model.rotary_base=10000 variant=multi_head,talking_heads heads=24 data=wikitext2 max_steps=4000 runs=runs/wikitext2
attn compare --runs runs/wikitext2 --sort loss
python scripts/plot_curves.py runs/wikitext2 docs/wikitext2.svg
