#!/usr/bin/env bash
# Trains the rows of bench/rivals.list that bench/rivals.tsv lacks, and adds a line there for each run that ends. Can be
# stopped at any time: the run that was on its way goes on from its last checkpoint.
#   bench/rivals.sh --data-dir CIFAR10 [--build FOLDER] [--runs FOLDER] [--only REGEX] [--list FILE] [--table FILE]
#                   [--device cuda] [--views]
# --views: a last column, views_top1, the test images over six views each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build runs=${TMPDIR:-/tmp}/abtrain_rivals only=. list=bench/rivals.list table=bench/rivals.tsv data=${ABTRAIN_DATA_DIR:-}
views='' device=
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    --views) views=--val-views; shift; continue ;;
    --data-dir) data=$2 ;;
    --build) build=$2 ;;
    --runs) runs=$2 ;;
    --only) only=$2 ;;
    --list) list=$2 ;;
    --table) table=$2 ;;
    --device) device="--device $2" ;;
    *) echo "rivals.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$data" ] || { echo "rivals.sh: give --data-dir, the folder of the CIFAR-10 binaries" >&2; exit 2; }

# A program of its own, so that a build meanwhile changes no run.
program=$runs/abtrain
if [ ! -x "$program" ]; then
  [ -x "$build/apps/abtrain" ] || { echo "rivals.sh: no $build/apps/abtrain: build it first, or give --build, the folder of a build" >&2; exit 2; }
  mkdir -p "$runs"
  git rev-parse --short HEAD >"$program.commit"
  cp "$build/apps/abtrain" "$program"
fi
cmp -s "$build/apps/abtrain" "$program" || echo "rivals.sh: runs are made by $program, and not by that of $build" >&2
commit=$(cat "$program.commit")
columns=(row config seed top1 top1_by_epoch sent_bytes inter_node_bytes cpu_seconds low_rank_step steps parameters_full parameters_final commit flags)
[ -z "$views" ] || columns+=(views_top1)
[ -f "$table" ] || (IFS=$'\t'; echo "${columns[*]}" >"$table")

# The line of a finished run: of a folder, its row, config, seed and flags, and the CPU time that it took. low_rank_step: of one
# that cuts once, the median time of the steps after the cut over that of as many before it.
line_of() {
  python3 - "$@" "$commit" <<'PYTHON'
import json, statistics, sys
folder, row, config, seed, flags, cpu, commit = sys.argv[1:]
summary = json.load(open(folder + "/summary.json"))
metrics = [json.loads(line) for line in open(folder + "/metrics.jsonl")]
epochs = [m["val_top1"] for m in metrics if m["kind"] == "epoch"]
percent = lambda share: f"{100 * share:.2f}"

def low_rank_step():
    steps = [(m["phase"], 1 / m["images_per_second"]) for m in metrics if m["kind"] == "step"]
    low = [seconds for phase, seconds in steps if phase == "low-rank"]
    full = [seconds for phase, seconds in steps if phase != "low-rank"]
    once = low and [phase for phase, _ in steps[-len(low):]] == ["low-rank"] * len(low)
    return f"{statistics.median(low) / statistics.median(full[-len(low):]):.3f}" if once else "-"

print(row, config, seed, percent(summary["final_val_top1"]), ",".join(map(percent, epochs)),
      f"{summary['sent_bytes_per_rank_total']:.0f}", f"{summary['inter_node_sent_bytes_per_rank_total']:.0f}", cpu,
      low_rank_step(), summary["steps"], summary["parameters_full"], summary["parameters_final"], commit, flags, sep="\t")
PYTHON
}

while IFS='|' read -r row config seeds flags <&3; do
  row=${row// /} config=${config// /} flags=$(echo "$flags" | xargs)
  case "$flags" in *--device*) ;; *) flags=${flags:+$flags }$device flags=${flags% } ;; esac
  case "$row" in ''|'#'*) continue ;; esac
  for seed in $seeds; do
    echo "$row $config" | grep -qE "$only" || continue
    grep -qP "^\Q$row\E\t\Q$config\E\t$seed\t" "$table" && continue
    folder=$runs/$config/$row/$seed
    echo "== $row, $config, seed $seed"
    mkdir -p "$(dirname "$folder")"
    threads='--threads 1'
    case "$flags" in *--threads*) threads='' ;; esac
    nodes='--ranks-per-node 2'
    case "$flags" in *--ranks-per-node*) nodes='' ;; esac
    # shellcheck disable=SC2086
    command time -a -o "$folder.seconds" -f '%U %S' "$program" train --config "apps/configs/$config.toml" --data-dir "$data" --seed "$seed" \
      $threads $nodes --save-every 100 --keep-checkpoints 1 $views $flags --out "$folder" --resume auto \
      >"$runs/last.log" 2>&1 || { grep -v ^Command "$runs/last.log" | tail -1 >&2; exit 1; }
    cpu=$(awk '/^[0-9]/ { all += $1 + $2 } END { print all }' "$folder.seconds")
    line=$(line_of "$folder" "$row" "$config" "$seed" "$flags" "$cpu")
    [ -z "$views" ] || line+=$'\t'$(grep -oP '"views_val_top1": *\K[0-9.]+' "$folder/summary.json" | awk '{ printf "%.2f", 100 * $1 }')
    echo "$line" >>"$table"
    rm -rf "$folder" "$folder.seconds"
  done
done 3<"$list"
