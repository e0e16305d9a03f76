# SPDX-License-Identifier: MIT
#
# A table of checks, for bash scripts to source:
#
#   check NAME SECONDS COMMAND...       skip NAME WHY...        print_table  (returns 1 when a check failed)
#
# Every check runs in a shell of its own under a time limit; its output goes to $check_logs/NAME.log. A line "note: ..."
# that it prints appears in the table; exit code 77 says that it could not be made here. Checks that are functions must
# be exported (set -a before they are defined). To set before: check_logs, an existing folder; check_budget, seconds
# that all checks may take together; and if need be check_only, a pattern of names, and check_dry_run=1, to run nothing.

check_rows=()
check_failed=0
check_start=$SECONDS

add_row() {  # NAME RESULT SECONDS NOTE
  [[ $2 == FAILED ]] && ((++check_failed))
  check_rows+=("$(printf '%-28s %-8s %7s  %s' "$@")")
  [[ -n ${check_dry_run:-} ]] || printf '%s: %s\n' "$1" "$2" >&2
}

chosen() { [[ $1 == ${check_only:-*} ]]; }  # a pattern, so unquoted

check() {
  local name=$1 limit=$2 log=$check_logs/$1.log start=$SECONDS status=0 left note
  shift 2
  chosen "$name" || return 0
  if [[ -n ${check_dry_run:-} ]]; then
    add_row "$name" 'not run' "<= $limit" "$*"
    return
  fi
  left=$((check_budget - (SECONDS - check_start)))
  if ((left <= 0)); then
    add_row "$name" FAILED 0 "the checks before it used up the $check_budget s of all"
    return
  fi
  ((limit <= left)) || limit=$left
  timeout --kill-after=5 "$limit" bash -euo pipefail -c '"$@"' check "$@" > "$log" 2>&1 < /dev/null || status=$?
  note=$(sed -n 's/^note: //p' "$log" | tail -n 1)
  if ((status == 0)); then
    add_row "$name" passed $((SECONDS - start)) "$note"
  elif ((status == 77)); then
    add_row "$name" skipped $((SECONDS - start)) "$note"
  elif ((status == 124 || status == 137)); then
    add_row "$name" FAILED $((SECONDS - start)) "longer than $limit s, see $log"
  else
    add_row "$name" FAILED $((SECONDS - start)) "exit code $status, see $log"
  fi
}

skip() {
  local name=$1
  shift
  chosen "$name" || return 0
  add_row "$name" skipped - "$*"
}

print_table() {
  printf '%-28s %-8s %7s  %s\n' check result seconds note
  printf '%s\n' "${check_rows[@]}"
  ((check_failed == 0))
}
