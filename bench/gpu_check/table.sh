# SPDX-License-Identifier: MIT
#
# A table of checks, for bash scripts to source:
#
#   begin_table    check NAME SECONDS COMMAND...    skip NAME WHY...    end_table  (returns 1 when a check failed)
#
# Every check runs in a shell of its own under a time limit; its output goes to $check_logs/NAME.log. Lines "note: ..."
# that it prints appear in the table; exit code 77 says that it could not be made here. Checks that are functions must
# be exported (set -a before they are defined). Each row is written to $check_table and to standard output as soon as it
# is known, so that a table that is cut short tells what came before.
# A check finds a folder of its own in $check_folder.
# To set before: scratch and check_logs, existing folders; check_table, a file; check_budget, seconds that all checks may take
# together; and if need be check_only, a pattern of names, check_dry_run=1, to run nothing, and check_patience, which
# multiplies all limits on slow machines.

check_failed=0
check_start=$SECONDS
((check_budget *= ${check_patience:=1}))

write_row() { printf '%-28s %-8s %7s  %s\n' "$@" | tee -a "$check_table"; }

begin_table() {
  : > "$check_table"
  write_row check result seconds note
}

add_row() {  # NAME RESULT SECONDS NOTES, one a line
  local name=$1 result=$2 seconds=$3 note first=1
  [[ $result == FAILED ]] && ((++check_failed))
  while IFS= read -r note; do
    if ((first)); then write_row "$name" "$result" "$seconds" "$note"; else write_row '' '' '' "$note"; fi
    first=0
  done <<< "$4"
}

chosen() { [[ $1 == ${check_only:-*} ]]; }  # a pattern, so unquoted

check() {
  local name=$1 limit=$(($2 * check_patience)) log=$check_logs/$1.log start=$SECONDS status=0 left notes
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
  # One that is ended may still be saving when the next begins, so each has a folder of its own.
  mkdir -p "$scratch/$name"
  check_folder=$scratch/$name timeout --kill-after=5 "$limit" bash -euo pipefail -c '"$@"' check "$@" > "$log" 2>&1 < /dev/null || status=$?
  notes=$(sed -n 's/^note: //p' "$log")
  if ((status == 0)); then
    add_row "$name" passed $((SECONDS - start)) "$notes"
  elif ((status == 77)); then
    add_row "$name" skipped $((SECONDS - start)) "$notes"
  elif ((status == 124 || status == 137)); then
    add_row "$name" FAILED $((SECONDS - start)) "longer than $limit s, see $name.log${notes:+$'\n'$notes}"
  else
    add_row "$name" FAILED $((SECONDS - start)) "exit code $status, see $name.log: $(tail -n 1 "$log")${notes:+$'\n'$notes}"
  fi
}

skip() {
  local name=$1
  shift
  chosen "$name" || return 0
  add_row "$name" skipped - "$*"
}

end_table() {
  write_row "total" "$([[ $check_failed == 0 ]] && echo passed || echo FAILED)" $((SECONDS - check_start)) \
    "$check_failed checks failed"
  ((check_failed == 0))
}
