#!/usr/bin/env bash
# Make the runs of docs/recipe.md, in runs/recipe. This takes about three hours on one core.
set -euo pipefail

# the losses that the recipe reaches
attn train -m variant=multi_head heads=6,24 seed=0,1,2,3 runs=runs/recipe/default
attn train -m variant=talking_heads heads=24 seed=0,1,2,3 runs=runs/recipe/default

# the share of masked tokens, at which no losses but those of attn evaluate can be compared
attn train -m variant=multi_head heads=6 objective.rate=0.15,0.3,0.4,0.5 seed=100 runs=runs/recipe/share
attn train -m variant=multi_head heads=6 objective.rate=0.15,0.25,0.4 data=wikitext2 max_steps=1000 runs=runs/recipe/share
attn evaluate multi_head objective.rate=0.15 --runs runs/recipe/share

# what follows masks 15%
bert() { attn train -m objective.rate=0.15 "$@"; }
# Muon and AdamW
for optimizer in muon adamw; do
  bert optimizer=$optimizer variant=multi_head heads=6,24 seed=0,1,2,3 runs=runs/recipe/optimizer
  bert optimizer=$optimizer variant=talking_heads heads=24 seed=0,1,2,3 runs=runs/recipe/optimizer
done
# AdamW for the processor time that Muon takes
bert optimizer=adamw max_steps=1200 variant=multi_head heads=6,24 seed=0,1 runs=runs/recipe/optimizer
bert optimizer=adamw max_steps=1200 variant=talking_heads heads=24 seed=0,1 runs=runs/recipe/optimizer

# the learning rate of Muon
bert variant=multi_head heads=6,24 learning_rate=3e-3,6e-3 seed=100 runs=runs/recipe/rate

# starting values of P_l and P_w
bert optimizer=adamw precision=fp32 model.rotary_base=10000 variant=talking_heads heads=24 variant.start=random,identity seed=0,1,2 runs=runs/recipe/start

# one choice of the recipe changed at a time, with half of the steps
change() { bert optimizer=adamw precision=fp32 variant=multi_head heads=6 max_steps=400 seed=0,1 runs=runs/recipe/changes "$@"; }
rotary=model.rotary_base=10000
change $rotary
change $rotary model.head_transform=true
change model.position=learned
change $rotary learning_rate=1.5e-3,5e-3
change $rotary norm=post

attn compare --runs runs/recipe/default --over-seeds
attn compare --runs runs/recipe/optimizer --sort loss
attn compare --runs runs/recipe/rate --sort loss
attn compare --runs runs/recipe/start --sort loss
attn compare --runs runs/recipe/changes --sort loss
