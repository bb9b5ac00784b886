#!/usr/bin/env bash
# The papers' tables at the nano budget, a line each: about an hour a table on two CPU cores; theorem1 takes minutes.
# Where there is no network, give each the text: data=parquet data.documents=article data.train=FILE data.validation=FILE
set -euo pipefail

attn table bhojanapalli2020/theorem1 --out docs/results
attn table shazeer2020/heads --out docs/results "$@"
attn table su2020/key_size --out docs/results "$@"
attn table xiong2020/warmup --out docs/results "$@"
attn table bhojanapalli2020/table1 --out docs/results "$@"
attn table bhojanapalli2020/table2a --out docs/results "$@"
attn table bhojanapalli2020/table2b --out docs/results "$@"
attn table shazeer2020/projections --out docs/results "$@"
attn table shazeer2020/unequal --out docs/results "$@"
attn table shazeer2020/dynamic --out docs/results "$@"
attn table follow_ups/mta_baseline --out docs/results "$@"
attn table bhojanapalli2020/figure1 --out docs/results "$@"
attn table shazeer2020/heads_t5 --out docs/results "$@"
attn table shazeer2020/albert --out docs/results "$@"
attn table lan2020/sharing --out docs/results "$@"
# sentence pairs: from the hub, or with data=pairs data.train=FILE (docs/translation.md)
attn table vaswani2017/table3a --out docs/results
attn table vaswani2017/table3b --out docs/results
