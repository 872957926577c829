#!/bin/sh
# Runs one CUDA compilation and fails it when ptxas spills registers, serialises wgmma or ignores
# setmaxnreg (C75xx, C76xx), which ptxas itself calls no more than information.
# Needs -Xptxas -v on the command line; hides that report unless the compilation fails.
set -u
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" 2>"$log"
status=$?
faults=$(grep -E 'C7[56][0-9][0-9]|[1-9][0-9]* bytes spill (stores|loads)' "$log")
if [ $status -ne 0 ] || [ -n "$faults" ]; then
  cat "$log" >&2
else
  grep -vE '^ptxas info|bytes stack frame' "$log" >&2
fi
if [ $status -eq 0 ] && [ -n "$faults" ]; then
  echo "ptxas_guard: register spills or ptxas performance warnings above; shrink the tile or the accumulators" >&2
  exit 1
fi
exit $status
