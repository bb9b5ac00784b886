#!/usr/bin/env bash
# Make the papers' tables at the nano budget, in results/. Seeds are added where they decide most, for at most HOURS hours a table.
#
#   scripts/tables.sh [HOURS] [KEY=VALUE ...]
#
# Without a network, name the text: data=parquet data.documents=article data.train=FILE data.validation=FILE
set -euo pipefail

hours=2
if [[ ${1:-} =~ ^[0-9.]+$ ]]; then
  hours=$1
  shift
fi

# these tables train nothing
for table in bhojanapalli2020/theorem1 vaswani2017/scaling xiong2020/gradients; do
  attn table "$table" --out results
done
for table in shazeer2020/heads bhojanapalli2020/table1 su2020/key_size shazeer2020/projections bhojanapalli2020/table2a \
  bhojanapalli2020/table2b bhojanapalli2020/figure1 xiong2020/warmup lan2020/sharing shazeer2020/unequal shazeer2020/dynamic \
  clark2019/head_distance shazeer2020/projection_structure britz2017/additive ioffe2015/batch_norm_padding \
  follow_ups/mta_baseline follow_ups/today; do
  attn table "$table" --until-resolved --hours "$hours" --out results "$@"
done
# docs/results/README.md names the tables of which a claim cannot hold before `attn table NAME --tune` has found learning rates.
# shazeer2020/heads_t5, shazeer2020/albert and cordonnier2020/collaborative are left out: none of their rates is tuned.
# vaswani2017/table3a and table3b are left out too, because they need sentence pairs (docs/translation.md).
