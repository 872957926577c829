#!/usr/bin/env python3
"""Finds the first op at which two traces of --trace-ops part, and says so in one line.

    gemma2_train verify --config C --reference R --steps 1 --trace-ops a.jsonl   # and b.jsonl likewise
    python3 scripts/diff_traces.py a.jsonl b.jsonl                # bit for bit, as one binary promises
    python3 scripts/diff_traces.py a.jsonl b.jsonl --rtol 1e-4    # other precision or machine

Exit 0: the traces agree; 1: they part; 64, 65: wrong arguments, unreadable file. The calls must match one
to one: same config, micro-batch and recomputation. Types may differ, times are ignored. A tensor's l2 may
differ by rtol of itself, its sum by rtol of l2, its first element by rtol of itself or of a typical one.
"""
import argparse
import itertools
import json
import math
import sys


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(64, f"{message}; see --help")


def fail(code, message):
    print(f"diff_traces: {message}", file=sys.stderr)
    sys.exit(code)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                call = json.loads(line)
                call["call"], call["op"], call["tensors"]  # what a trace must have
                yield call
    except OSError as error:
        fail(65, f"{path}: {error.strerror}")
    except (ValueError, KeyError, TypeError) as error:
        fail(65, f"{path}:{number}: no line of a trace ({error!r})")


def close(a, b, scale, rtol):
    a, b = float(a), float(b)  # "nan" and "inf" are written as texts
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    return abs(a - b) <= rtol * scale


def tensor_difference(a, b, rtol):
    """"l2 1.5 against 1.7", or None."""
    if a["shape"] != b["shape"]:
        return f"shape {a['shape']} against {b['shape']}"
    count = max(math.prod(a["shape"]), 1)
    l2 = max(float(a["l2"]), float(b["l2"]))
    typical = l2 / math.sqrt(count)
    for key in ("l2", "sum", "first"):
        if key not in a:  # an empty tensor has no first element
            continue
        scale = max(abs(float(a[key])), abs(float(b[key])), typical) if key == "first" else l2
        if not close(a[key], b[key], scale, rtol):
            off = abs(float(a[key]) - float(b[key])) / scale if scale > 0 else math.inf
            return f"{key} {a[key]} against {b[key]}, {off:.2g} relative"
    return None


def call_difference(a, b, rtol):
    """What parts in a call, or None."""
    where = f"call {a['call']}, {a['op']}"
    if a["op"] != b["op"]:
        return f"{where}: the other trace calls {b['op']} here; are config, micro-batch and recomputation the same?"
    if a["tensors"].keys() != b["tensors"].keys():
        names = ", ".join(sorted(a["tensors"].keys() ^ b["tensors"].keys()))
        return f"{where}: only one trace has {names}"
    order = {"in": 0, "inout": 1, "out": 1}
    for name, tensor in sorted(a["tensors"].items(), key=lambda item: order[item[1]["role"]]):
        difference = tensor_difference(tensor, b["tensors"][name], rtol)
        if difference and tensor["role"] == "in":
            return f"{where}: input {name} differs, and no op before wrote it so: {difference}"
        if difference:
            return f"{where}: {name} parts, from inputs that agree: {difference}"
    return None


def main():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--rtol", type=float, default=0.0, help="relative tolerance (default 0)")
    arguments = parser.parse_args()
    count = 0
    for a, b in itertools.zip_longest(read(arguments.a), read(arguments.b)):
        if a is None or b is None:
            ended, other = (arguments.a, b) if a is None else (arguments.b, a)
            print(f"{ended} ends after call {count}; the other goes on with call {other['call']}, {other['op']}")
            return 1
        difference = call_difference(a, b, arguments.rtol)
        if difference:
            print(difference)
            return 1
        count += 1
    print(f"the traces agree: {count} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
