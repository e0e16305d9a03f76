#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a command as several processes on this machine, numbered as torchrun numbers them, without torchrun or MPI:
#   bench/run_ranks.sh RANKS COMMAND [ARGUMENT]...
# AB_RENDEZVOUS tells them where they can meet (abtrain --rendezvous). Exits with the worst of their exit codes.
set -euo pipefail

[[ $# -ge 2 && $1 =~ ^[1-9][0-9]*$ ]] || { sed -n '3,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
ranks=$1
shift

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export AB_RENDEZVOUS=file://$folder/rendezvous WORLD_SIZE=$ranks

processes=()
for ((rank = 0; rank < ranks; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank TMPDIR=$folder "$@" &
  processes+=($!)
done
worst=0
for process in "${processes[@]}"; do
  status=0
  wait "$process" || status=$?
  ((status <= worst)) || worst=$status
done
exit "$worst"
