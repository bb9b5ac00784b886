#!/usr/bin/env bash
# Make the measurements for docs/performance.md and docs/kernels.md, in runs/performance.
set -euo pipefail
mkdir -p runs/performance
bench() { attn bench hidden_size=384 --format csv "${@:2}" > "runs/performance/$1.csv"; }

# kernels, in one attention layer on one thread
export OMP_NUM_THREADS=1
for precision in bf16 fp32; do
  bench "kernels-128-$precision" heads=24 length=128 batch_size=8 precision=$precision variant=talking_heads,multi_head \
    backend=compiled,blocked,sdpa
  bench "kernels-512-$precision" heads=24 length=512 batch_size=2 precision=$precision variant=talking_heads,multi_head \
    backend=compiled,blocked,sdpa
done
bench wide-128 heads=6 length=128 batch_size=8 precision=bf16 variant=talking_heads,multi_head backend=compiled,blocked
bench wide-512 heads=6 length=512 batch_size=2 precision=bf16 variant=talking_heads backend=compiled,blocked
bench dropout-24 heads=24 length=128 batch_size=8 precision=bf16 variant=multi_head variant.dropout=0.1 backend=compiled,blocked
bench dropout-6 heads=6 length=512 batch_size=2 precision=bf16 variant=multi_head variant.dropout=0.1 backend=compiled,blocked
bench dropout-6-fp32 heads=6 length=128 batch_size=8 precision=fp32 variant=multi_head variant.dropout=0.1 backend=compiled,blocked

# whole training steps compared with other libraries, each started as its users start it
unset OMP_NUM_THREADS
step() { attn bench --scope step --peers --format csv optimizer=adamw precision=bf16 tokenizer.vocabulary_size=8192 objective.rate=0.15 --rounds 3 "${@:2}" \
  > "runs/performance/$1.csv"; }
step small-128 --compile layers=4 hidden_size=256 heads=4 model.intermediate_size=1024 length=128 batch_size=32
step steps-128 --compile layers=6 hidden_size=384 heads=24 model.intermediate_size=1536 length=128 batch_size=32 \
  variant=talking_heads,multi_head
step steps-512 layers=6 hidden_size=384 heads=24 model.intermediate_size=1536 length=512 batch_size=8 \
  variant=talking_heads,multi_head

# memory against length
bench memory heads=24 batch_size=1 length=128,256,512,1024,2048 precision=bf16 variant=talking_heads --rounds 1
