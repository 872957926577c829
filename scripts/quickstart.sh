#!/usr/bin/env bash
# From a fresh clone to a small Gemma 2 that has learnt from real text: installs what is missing,
# builds, prepares the text, trains for minutes on two CPU cores, plots, and samples a few lines.
# From any folder, twice (a finished run is not trained again, an interrupted one goes on), and
# without a network once the packages are there.
#
#   scripts/quickstart.sh [--set PATH=VALUE ...]    # settings beside those of configs/quickstart.json
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '\n== %s\n' "$*"; }

# The system's Python is the one that apt-get gives packages to.
python=/usr/bin/python3
[[ -x $python ]] || python=python3

say "packages"
scripts/install_deps.sh build text plot
preset=cpu
if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then preset=release; fi

say "build ($preset)"
mkdir -p build
cmake --preset "$preset" -D G2_TESTS=OFF -B build/quickstart >build/quickstart.configure.log 2>&1 ||
  { cat build/quickstart.configure.log; exit 1; }
cmake --build build/quickstart --parallel "$(nproc)" --target gemma2_train
program=build/quickstart/gemma2_train

say "text"
"$python" scripts/prepare_text.py

say "training"
"$program" --config configs/quickstart.json --resume auto --set log.every=20 "$@"

run=runs/quickstart
say "validation, bits per byte"
"$python" - "$run/log.jsonl" <<'EOF'
import json, sys
for line in map(json.loads, open(sys.argv[1], encoding="utf-8")):
    if "val_bpb" in line:
        print(f"  step {line['step']:5d}   {line['val_bpb']:.3f}")
EOF
"$python" scripts/plot_log.py "$run" --bpb

say "samples"
"$program" generate "$run" --prompt "And the " --samples 3 --max-new-tokens 120 --temperature 0.7 --seed 1
