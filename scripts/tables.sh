#!/usr/bin/env bash
# The papers' tables at the nano budget, a line each: about an hour a table on two CPU cores; theorem1 takes minutes.
# Where there is no network, give each the text: data=parquet data.documents=article data.train=FILE data.validation=FILE
set -euo pipefail

attn table bhojanapalli2020/theorem1 --out docs/results
attn table shazeer2020/heads --seeds 3 --out docs/results "$@"
attn table su2020/key_size --seeds 5 --out docs/results "$@"
attn table xiong2020/warmup --seeds 3 --out docs/results "$@"
attn table bhojanapalli2020/table1 --seeds 5 --out docs/results "$@"
attn table bhojanapalli2020/table2a --seeds 3 --out docs/results "$@"
attn table bhojanapalli2020/table2b --seeds 3 --out docs/results "$@"
attn table shazeer2020/projections --seeds 3 --out docs/results "$@"
attn table shazeer2020/unequal --seeds 3 --out docs/results "$@"
attn table shazeer2020/dynamic --seeds 3 --out docs/results "$@"
attn table follow_ups/mta_baseline --seeds 3 --out docs/results "$@"
attn table bhojanapalli2020/figure1 --seeds 3 --out docs/results "$@"
attn table shazeer2020/heads_t5 --seeds 3 --out docs/results "$@"
attn table shazeer2020/albert --seeds 3 --out docs/results "$@"
attn table lan2020/sharing --seeds 3 --out docs/results "$@"
# sentence pairs, from the hub or data=pairs data.train=FILE
attn table vaswani2017/table3a --seeds 3 --out docs/results
attn table vaswani2017/table3b --seeds 3 --out docs/results
