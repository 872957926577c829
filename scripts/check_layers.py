#!/usr/bin/env python3
"""Fails when a folder includes from one it must not depend on (docs/architecture.md), when a heavy
third-party header is included outside its home, or when a source file grows past 500 lines.

    scripts/check_layers.py            # checks the whole tree; exit 1 and one line a breach
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAX_LINES = 500

# folder -> project folders it may include from (itself always)
ALLOWED = {
    "base": set(),
    "tensor": {"base"},
    "cpu": {"tensor", "base"},
    "cuda": {"tensor", "base", "kernels"},
    "config": {"base"},
    "io": {"base"},
    "tokenizer": {"base"},
    "data": {"tokenizer", "io", "base"},
    "model": {"tensor", "config", "base", "io"},
    "dist": {"tensor", "base"},
    "train": {"model", "data", "dist", "config", "io", "tensor", "base"},
    "cli": {"base", "tensor", "cpu", "cuda", "config", "io", "tokenizer", "data", "model", "dist", "train"},
}
# third-party header -> files that may include it (prefixes, relative to the root)
HEAVY = {
    "CLI/": ("src/cli/",),
    "spdlog/": ("src/base/log.cpp",),
    "nlohmann/json.hpp": ("src/",),
    "sentencepiece": ("src/tokenizer/", "tests/"),
    "cblas.h": ("src/cpu/", "tests/bench/"),
    "xxhash.h": ("src/base/hash.cpp",),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^">]+)[">]')


def breaches(path):
    relative = path.relative_to(ROOT).as_posix()
    parts = relative.split("/")
    text = path.read_text(encoding="utf-8")
    count = text.count("\n")
    if count > MAX_LINES:
        yield f"{relative}: {count} lines, at most {MAX_LINES}: find the natural seam"
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, header = match.groups()
        for heavy, homes in HEAVY.items():
            if header.startswith(heavy) and parts[0] in ("src", "kernels") and not relative.startswith(homes):
                yield f"{relative}:{number}: <{header}> may be included only in {', '.join(homes)}"
        if header == "nlohmann/json.hpp" and path.suffix == ".h" and parts[0] == "src":
            yield f"{relative}:{number}: headers include <nlohmann/json_fwd.hpp>, not json.hpp"
        if quote != '"':
            continue
        target = header.split("/")[0]
        if parts[0] == "kernels" and target != "kernels":
            yield f"{relative}:{number}: kernels may include only the CUDA toolkit and kernels, not {header}"
        elif parts[0] == "src" and target != parts[1] and target not in ALLOWED[parts[1]]:
            yield f"{relative}:{number}: {parts[1]} must not depend on {header}"


def main():
    found = []
    for folder in ("src", "kernels", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                found += breaches(path)
    for path in sorted((ROOT / "scripts").rglob("*")):
        if path.suffix in (".py", ".sh") and path.read_text(encoding="utf-8").count("\n") > MAX_LINES:
            found.append(f"{path.relative_to(ROOT)}: over {MAX_LINES} lines")
    for line in found:
        print(line)
    print(f"check_layers: {len(found)} breach(es)" if found else "check_layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
