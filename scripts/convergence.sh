#!/usr/bin/env bash
# Does it give what transformers gives? Trains the configs that have a reference log (data/reference)
# and compares every step with it. Exit 0 only if all agree. From any folder; no network once built.
#
#   scripts/convergence.sh                  # tiny in every precision; the first 4 steps of mini
#   scripts/convergence.sh --full           # all 32 steps of mini, in fp32 and bf16 (long on a CPU)
#   scripts/convergence.sh --tiny           # tiny only: seconds
#   scripts/convergence.sh --program FILE   # this gemma2_train instead of building one
#   scripts/convergence.sh --set PATH=VALUE # a setting for every run, such as device.threads=1
#
# fp64 and fp32 must lie within the reference's tolerances. bf16 must lie no further from the fp32
# reference than 1.5 times the distance of transformers in bf16 (docs/numerics.md).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' scripts/convergence.sh; }
fail() { echo "convergence.sh: $*" >&2; exit 64; }

mini_steps=4 program="" settings=()
while (( $# )); do
  case "$1" in
    --full) mini_steps=0 ;;
    --tiny) mini_steps=none ;;
    --program | --set)
      [[ -n ${2:-} ]] || fail "$1 needs a value"
      if [[ $1 == --set ]]; then settings+=(--set "$2"); else program=$2; fi
      shift ;;
    --help) usage; exit 0 ;;
    *) fail "no option '$1'; see scripts/convergence.sh --help" ;;
  esac
  shift
done

if [[ -z $program ]]; then
  preset=cpu
  if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then preset=release; fi
  scripts/install_deps.sh build
  mkdir -p build
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 ||
    { cat "build/$preset.configure.log"; exit 1; }
  cmake --build "build/$preset" --parallel "$(nproc)" --target gemma2_train
  program=build/$preset/gemma2_train
fi
[[ -f data/text/reference.jsonl ]] || python3 scripts/make_reference_data.py

output=$(mktemp)
trap 'rm -f "$output"' EXIT
summary="" failed=0

# The last comparison of verify's output, "step 41, grad_norm, 0.05 of the limit", and of its
# distances the largest ratio, "loss, 0.56 of transformers' distance".
worst() {
  awk '/^worst,/ { getline; sub(/ *FAILS$/, ""); name = $2
                   for (i = 3; i <= NF - 4; ++i) name = name " " $i
                   printf "step %s, %s, %.2g of the limit", $1, name, $(NF - 1) / $NF }
       /^ *distance from/ { distances = 1; next }
       distances && NF == 4 && $4 > ratio { ratio = $4; name = $1 }
       END { if (ratio) printf "%s, %s of the distance of transformers", name, ratio }' "$output"
}

check() {  # CONFIG PRECISION STEPS [OPTION...]; STEPS 0: all
  local config=$1 precision=$2 steps=$3 verdict=ok start=$SECONDS
  shift 3
  printf '\n== %s, %s\n' "$config" "$precision"
  "$program" verify --config "configs/$config.json" --reference "data/reference/$config.jsonl" \
    --set "train.precision=$precision" --steps "$steps" "${settings[@]}" "$@" >"$output" ||
    { verdict=FAILED failed=1; }
  cat "$output"
  summary+=$(printf '%-6s %-5s %6s %5ss  %-7s %s' "$config" "$precision" "${steps/#0/all}" \
    $((SECONDS - start)) "$verdict" "$(worst)")$'\n'
}

check tiny fp64 0 --set device.kind=cpu  # GPUs compute in fp32 and bf16
check tiny fp32 0
check tiny bf16 0 --peer data/reference/tiny.bf16.jsonl
if [[ $mini_steps != none ]]; then check mini fp32 "$mini_steps"; fi
if [[ $mini_steps == 0 ]]; then check mini bf16 0 --peer data/reference/mini.bf16.jsonl; fi

printf '\n== summary\nconfig prec.  steps   time  verdict worst\n%s' "$summary"
if (( failed )); then echo "convergence: FAILED"; exit 1; fi
echo "convergence: all agree"
