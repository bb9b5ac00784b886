#!/usr/bin/env bash
# Make the runs of docs/recipe.md, in runs/recipe. This takes about five hours on one core.
set -euo pipefail

# the losses that the recipe reaches
attn train -m variant=multi_head heads=6,24 seed=0,1,2,3 runs=runs/recipe/default
attn train -m variant=talking_heads heads=24 seed=0,1,2,3 runs=runs/recipe/default

# half of the steps
attn train -m max_steps=400 variant=multi_head heads=6,24 seed=0,1,2,3 runs=runs/recipe/default
attn train -m max_steps=400 variant=talking_heads heads=24 seed=0,1,2,3 runs=runs/recipe/default

# the share of masked tokens, at which no losses but those of attn evaluate can be compared
attn train -m optimizer=muon variant=multi_head heads=6 objective.rate=0.15,0.3,0.4,0.5 seed=100 runs=runs/recipe/share
attn train -m optimizer=muon variant=multi_head heads=6 objective.rate=0.15,0.25,0.4 data=wikitext2 max_steps=1000 runs=runs/recipe/share
attn evaluate multi_head objective.rate=0.15 --runs runs/recipe/share

# the settings of Muon in short runs
muon() { attn train -m optimizer=muon variant=multi_head heads=6 data=wikitext2 max_steps=600 seed=100 trainer.evaluate_every=600 trainer.evaluation_sequences=2000 runs=runs/recipe/muon "$@"; }
faster="learning_rate=1e-2 optimizer.momentum=0.9 optimizer.weight_decay=0.1"
muon optimizer.momentum=0.95,0.9,0.85,0.8
muon optimizer.weight_decay=0.1
muon learning_rate=1e-2
muon optimizer.beta1=0.5
muon optimizer.beta2=0.95
muon schedule.warmup_steps=20
muon model.initial_std=0.05
muon model.activation=relu
muon optimizer.newton_schulz_steps=3
muon $faster optimizer.beta1=0,0.2,0.5,0.8
muon $faster optimizer.beta1=0.2 optimizer.beta2=0.99
muon $faster optimizer.beta1=0.5 optimizer.beta2=0.95
muon optimizer.momentum=0.9 optimizer.weight_decay=0.1 optimizer.beta1=0.5 learning_rate=8e-3,1.4e-2
muon optimizer.momentum=0.9 learning_rate=1e-2 optimizer.beta1=0.5
batch() { attn train -m optimizer=muon variant=multi_head heads=6 data=wikitext2 seed=100 trainer.evaluate_every=900 trainer.evaluation_sequences=2000 runs=runs/recipe/muon "$@"; }
batch batch_size=32 max_steps=375
batch batch_size=8 max_steps=900
both() { attn train -m optimizer=muon,muon_short runs=runs/recipe/both "$@"; }
both variant=multi_head heads=6 data=wikitext2 max_steps=600 seed=101 trainer.evaluate_every=600 trainer.evaluation_sequences=2000
both variant=multi_head heads=6 data=wikitext2 max_steps=2000 seed=100 trainer.evaluate_every=2000 trainer.evaluation_sequences=2000
both variant=multi_head heads=6,24 seed=100
both variant=talking_heads heads=24 seed=100

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
bert optimizer=muon variant=multi_head heads=6,24 learning_rate=3e-3,6e-3 seed=100 runs=runs/recipe/rate

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
attn compare --runs runs/recipe/muon --sort loss
attn compare --runs runs/recipe/both --sort loss
attn compare --runs runs/recipe/optimizer --sort loss
attn compare --runs runs/recipe/rate --sort loss
attn compare --runs runs/recipe/start --sort loss
attn compare --runs runs/recipe/changes --sort loss
