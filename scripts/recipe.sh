#!/usr/bin/env bash
# Make the runs of docs/recipe.md, in runs/recipe. This takes about two hours on one core.
set -euo pipefail

# the losses that the recipe reaches, with its optimizer and with AdamW
for optimizer in muon adamw; do
  attn train -m optimizer=$optimizer variant=multi_head heads=6,24 seed=0,1,2,3 runs=runs/recipe/default
  attn train -m optimizer=$optimizer variant=talking_heads heads=24 seed=0,1,2,3 runs=runs/recipe/default
done
# AdamW for the processor time that Muon takes
attn train -m optimizer=adamw max_steps=1200 variant=multi_head heads=6,24 seed=0,1 runs=runs/recipe/default
attn train -m optimizer=adamw max_steps=1200 variant=talking_heads heads=24 seed=0,1 runs=runs/recipe/default

# the learning rate of Muon
attn train -m variant=multi_head heads=6,24 learning_rate=3e-3,6e-3 seed=100 runs=runs/recipe/rate

# starting values of P_l and P_w
attn train -m optimizer=adamw precision=fp32 model.rotary_base=10000 variant=talking_heads heads=24 variant.start=random,identity seed=0,1,2 runs=runs/recipe/start

# one choice of the recipe changed at a time, with half of the steps
change() { attn train -m optimizer=adamw precision=fp32 variant=multi_head heads=6 max_steps=400 seed=0,1 runs=runs/recipe/changes "$@"; }
rotary=model.rotary_base=10000
change $rotary
change $rotary model.head_transform=true
change model.position=learned
change $rotary learning_rate=1.5e-3,5e-3
change $rotary norm=post

attn compare --runs runs/recipe/default --sort loss
attn compare --runs runs/recipe/rate --sort loss
attn compare --runs runs/recipe/start --sort loss
attn compare --runs runs/recipe/changes --sort loss
