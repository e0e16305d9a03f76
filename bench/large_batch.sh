#!/usr/bin/env bash
# Dense and AB-training with global batches of 128, 512 and 2048, the same four epochs: accuracy on test images and on 10,000
# of the training images, a line of bench/large_batch.tsv for each run that ends. Can be stopped at any time. The learning
# rate grows with the square root of the batch; 2048 are 16 ranks.
#   bench/large_batch.sh --data-dir CIFAR10 [--build FOLDER] [--runs FOLDER] [--only REGEX] [--table FILE] [--seeds "0 1"]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build runs=${TMPDIR:-/tmp}/abtrain_large_batch only=. table=bench/large_batch.tsv data=${ABTRAIN_DATA_DIR:-} seeds=0
while [ $# -gt 0 ]; do
  case "$1" in
    --data-dir) data=$2 ;;
    --build) build=$2 ;;
    --runs) runs=$2 ;;
    --only) only=$2 ;;
    --table) table=$2 ;;
    --seeds) seeds=$2 ;;
    *) echo "large_batch.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$data" ] || { echo "large_batch.sh: give --data-dir, the folder of the CIFAR-10 binaries" >&2; exit 2; }

# A program of its own, so that a build meanwhile changes no run; and training images in the place of those of the test.
mkdir -p "$runs/seen"
program=$runs/abtrain
if [ ! -x "$program" ]; then
  git rev-parse --short HEAD >"$program.commit"
  cp "$build/apps/abtrain" "$program"
fi
for file in "$data"/*; do ln -sf "$(realpath "$file")" "$runs/seen/"; done
ln -sf "$(realpath "$data/data_batch_1.bin")" "$runs/seen/test_batch.bin"
[ -f "$table" ] || printf 'method\tbatch\tseed\ttop1\ttop1_of_training_images\tsent_bytes\tsteps\tparameters_final\tcommit\n' >"$table"

top1_of() { "$program" eval --model-file "$1" --data-dir "$2" --threads 2 | grep -oP 'top-1 \K[0-9.]+'; }

# method, batch, flags: groups keep their shares of the run.
train_row() {
  local method=$1 batch=$2 seed folder
  shift 2
  echo "$method $batch" | grep -qE "$only" || return 0
  for seed in $seeds; do
    grep -qP "^$method\t$batch\t$seed\t" "$table" && continue
    folder=$runs/$method/$batch/$seed
    echo "== $method, batch $batch, seed $seed"
    mkdir -p "$(dirname "$folder")"
    "$program" train --config apps/configs/vgg16_cifar_dense.toml --data-dir "$data" --seed "$seed" --threads 1 \
      --ranks-per-node 2 --save-every 50 --keep-checkpoints 1 --eval-every 0 "$@" --out "$folder" --resume auto >"$runs/last.log" 2>&1 ||
      { tail -1 "$runs/last.log" >&2; exit 1; }
    python3 - "$folder/summary.json" "$method" "$batch" "$seed" "$(top1_of "$folder" "$data")" "$(top1_of "$folder" "$runs/seen")" \
      "$(cat "$program.commit")" >>"$table" <<'PYTHON'
import json, sys
summary, method, batch, seed, top1, top1_seen, commit = sys.argv[1:]
s = json.load(open(summary))
print(method, batch, seed, top1, top1_seen, f"{s['sent_bytes_per_rank_total']:.0f}", s["steps"], s["parameters_final"], commit, sep="\t")
PYTHON
    rm -rf "$folder"
  done
}

for batch in 2048 512 128; do
  case $batch in
    128) size=(--ranks 4 --batch-size 32 --lr 0.2) steps=1560 ;;
    512) size=(--ranks 4 --batch-size 128 --lr 0.4) steps=388 ;;
    2048) size=(--ranks 16 --batch-size 128 --lr 0.8) steps=96 ;;
  esac
  cycle=$((steps / 16))
  train_row dense "$batch" "${size[@]}" --comm-dtype bf16
  train_row ab "$batch" "${size[@]}" --method ab
  train_row ab_groups "$batch" "${size[@]}" --method ab --ab.train groups --ab.warmup-steps $((steps / 4)) \
    --ab.cycle-steps "$cycle" --ab.full-rank-steps $((cycle / 5 + 1)) --ab.ratio 0.25 --comm-dtype bf16
done
