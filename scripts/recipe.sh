#!/usr/bin/env bash
# Make the runs for the first half of docs/recipe.md, in runs/recipe. This takes about an hour on one core.
set -euo pipefail

# the losses that the recipe reaches
attn train -m variant=multi_head heads=6,24 seed=0,1,2,3 runs=runs/recipe/default
attn train -m variant=talking_heads heads=24 seed=0,1,2,3 runs=runs/recipe/default

# starting values of P_l and P_w
attn train -m precision=fp32 model.rotary_base=10000 variant=talking_heads heads=24 variant.start=random,identity seed=0,1,2 runs=runs/recipe/start

# one choice of the recipe changed at a time, with half of the steps
change() { attn train -m precision=fp32 model.rotary_base=10000 variant=multi_head heads=6 max_steps=400 seed=0,1 runs=runs/recipe/changes "$@"; }
change
change model.head_transform=true
change model.position=learned
change learning_rate=1.5e-3,5e-3
change norm=post

attn compare --runs runs/recipe/default --sort loss
attn compare --runs runs/recipe/start --sort loss
attn compare --runs runs/recipe/changes --sort loss
