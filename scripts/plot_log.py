#!/usr/bin/env python3
"""Draws runs: loss, validation loss, gradient norm and learning rate over steps.

    python3 scripts/plot_log.py runs/quickstart                      # writes runs/quickstart/plot.png
    python3 scripts/plot_log.py runs/a runs/b --out both.png --bpb   # validation in bits per byte
    python3 scripts/plot_log.py runs/a runs/b --x tokens             # runs of unlike batches

Arguments are run folders or log.jsonl files. Needs matplotlib (python3-matplotlib).
"""
import argparse
import json
import pathlib
import sys


def fail(message):
    print(f"plot_log: {message}", file=sys.stderr)
    sys.exit(65)


def read_log(argument):
    path = pathlib.Path(argument)
    if path.is_dir():
        path = path / "log.jsonl"
    if not path.is_file():
        fail(f"{argument}: no run folder and no log file")
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            print(f"plot_log: {path}:{number}: not a line of a log, left out", file=sys.stderr)
    if not any("step" in line for line in lines):
        fail(f"{path}: no step in the log")
    return path, lines


def column(lines, key, over):
    """Places and values of one key; a step without it (null: not known) leaves a gap in neither."""
    place = {0: 0, **{line["step"]: line[over] for line in lines if over in line and "step" in line}}
    points = [(place[line["step"]], line[key]) for line in lines
              if line.get(key) is not None and line.get("step") in place]
    return [p[0] for p in points], [p[1] for p in points]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", help="run folders or log.jsonl files")
    parser.add_argument("--out", type=pathlib.Path, help="image to write (default: plot.png in the first run folder)")
    parser.add_argument("--x", choices=("step", "tokens"), default="step", help="what the curves run over (%(default)s)")
    parser.add_argument("--bpb", action="store_true", help="validation in bits per byte, where the log has them")
    args = parser.parse_args()
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        fail("matplotlib is not installed; apt-get install python3-matplotlib")

    runs = [read_log(argument) for argument in args.logs]
    figure, ((loss, validation), (norm, rate)) = pyplot.subplots(2, 2, figsize=(11, 7), constrained_layout=True)
    validation_key = "val_bpb" if args.bpb else "val_loss"
    for path, lines in runs:
        name = path.parent.name or path.name
        loss.plot(*column(lines, "loss", args.x), label=name, linewidth=1)
        if any("reference_loss" in line for line in lines):
            loss.plot(*column(lines, "reference_loss", args.x), "--", label="reference", linewidth=1)
        validation.plot(*column(lines, validation_key, args.x), marker="o", markersize=3, label=name)
        norm.plot(*column(lines, "grad_norm", args.x), label=name, linewidth=1)
        rate.plot(*column(lines, "lr", args.x), label=name)
    titles = ((loss, "training loss, nats a token"),
              (validation, "validation, bits a byte" if args.bpb else "validation loss, nats a token"),
              (norm, "gradient norm before clipping"), (rate, "learning rate"))
    for axes, title in titles:
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(args.x)
        axes.grid(alpha=0.3)
    if args.bpb and not validation.lines[0].get_xdata().size:
        print("plot_log: no bits per byte in the log; the validation plot is empty", file=sys.stderr)
    norm.set_yscale("log")
    loss.legend(fontsize=8)
    output = args.out or runs[0][0].parent / "plot.png"
    try:
        figure.savefig(output, dpi=110)
    except (OSError, ValueError) as error:
        fail(f"{output}: {error}")
    print(output)


if __name__ == "__main__":
    main()
