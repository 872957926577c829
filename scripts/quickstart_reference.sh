#!/usr/bin/env bash
# The first 300 steps of the quickstart, on its real text, against transformers: makes the reference log
# here (the text is not ours to commit) and compares. Needs a Python with scripts/requirements-reference.txt:
#
#   PYTHON=/path/to/venv/bin/python scripts/quickstart_reference.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
"$python" -c 'import torch, transformers, xxhash' 2>/dev/null || {
  echo "quickstart_reference.sh: $python lacks torch, transformers or xxhash (scripts/requirements-reference.txt);" \
       "name another with PYTHON=..." >&2
  exit 69
}
program=build/quickstart/gemma2_train
[[ -x $program ]] || { echo "quickstart_reference.sh: no $program; run scripts/quickstart.sh first" >&2; exit 66; }
python3 scripts/prepare_text.py
mkdir -p runs/quickstart_reference
"$program" verify --config configs/quickstart.json --steps 300 --export-batches runs/quickstart_reference/batches.jsonl
"$python" scripts/make_reference.py runs/quickstart_reference/batches.jsonl runs/quickstart_reference/reference.jsonl |
  tail -n 1
"$program" verify --config configs/quickstart.json --reference runs/quickstart_reference/reference.jsonl | tail -n 4
