#!/usr/bin/env bash
# Make the pages of docs/results again, in results/ below the current folder, from runs in runs/.
#
#   scripts/tables.sh --plan [PAGE ...]    first, and once: write down the seeds of the pages that have a plan
#   scripts/tables.sh [PAGE ...]           train and write; if it is stopped, the same command continues
#
# PAGE is a name such as su2020_key_size-C3-10-21; without one, all pages are meant. The current folder contains the texts under the
# names that the pages' commands give: train.parquet and validation.parquet of WikiText-2, and, for the tables of translation,
# multi30k_train.parquet and multi30k_validation.parquet (docs/translation.md). Each page says what its runs take.
set -euo pipefail

results=$(cd "$(dirname "${BASH_SOURCE[0]}")/../docs/results" && pwd)
plan=false
if [[ ${1:-} == --plan ]]; then
  plan=true
  shift
fi
if (($# == 0)); then
  set -- $(cd "$results" && ls -- *.json)
fi

for page; do
  file=$results/${page%.json}.md
  command=$(grep '^attn table ' "$file" | tail -n 1)
  if ! $plan; then
    bash -c "$command --out results"
  elif grep -q '^\* plan: [^;]*$' "$file"; then # that of another page has its name after a semicolon
    [[ $command =~ ' --seeds '([0-9]+)(-([0-9]+))? ]]
    if [[ ${BASH_REMATCH[2]} ]]; then
      first=${BASH_REMATCH[1]} last=${BASH_REMATCH[3]}
    else # a number of seeds from 0 on
      first=0 last=$((BASH_REMATCH[1] - 1))
    fi
    bash -c "${command/${BASH_REMATCH[0]}/ --seeds $first-$last} --plan $((last - first + 1))"
  fi
done
