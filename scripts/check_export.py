#!/usr/bin/env python3
"""Checks that transformers reads an exported folder as this program does: no warning, no tensor
missing or left over, and the same loss on random tokens.

    gemma2_train export runs/tiny -o exported --dtype f32
    python3 scripts/check_export.py exported --program build/cpu/gemma2_train

Needs torch and transformers (scripts/requirements-reference.txt). Exit 1 and one line a difference.
"""
import argparse
import logging
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers

# Both compute in fp32; the program prints six decimals.
LOSS_TOLERANCE = 1e-5


def write_token_file(path, ids, vocab_size):
    """One document in the layout of src/data/token_file.h, of unknown vocabulary."""
    id_bytes = 2 if vocab_size <= 65536 else 4
    data = struct.pack(f"<{len(ids)}{'H' if id_bytes == 2 else 'I'}", *ids)
    data += bytes(-len(data) % 8)
    header = struct.pack("<8sIIQQQQQQ", b"G2TOKENS", 1, id_bytes, vocab_size, 0, len(ids), 1, 64 + len(data), 0)
    path.write_bytes(header + data + struct.pack("<QQ", 0, len(ids)))


def load(folder):
    """The model in fp32, and what transformers complained about."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    transformers.utils.logging.get_logger("transformers").addHandler(handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    messages += [str(w.message) for w in caught]
    messages += [f"{what}: {sorted(keys)}" for what, keys in info.items() if keys]
    return model.eval(), messages


def transformers_loss(model, ids, seq_len):
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(ids) - seq_len, seq_len):
            row = torch.tensor(ids[begin:begin + seq_len + 1])
            logits = model(input_ids=row[None, :-1], use_cache=False).logits[0]
            total += torch.nn.functional.cross_entropy(logits.double(), row[1:], reduction="sum").item()
            count += seq_len
    return total / count


def program_loss(program, folder, token_file, seq_len):
    command = [program, "eval", str(folder), "--data", str(token_file), "--seq-len", str(seq_len)]
    result = subprocess.run(command, capture_output=True, text=True)
    match = re.search(r"loss ([0-9.]+)", result.stdout)
    if result.returncode != 0 or not match:
        sys.exit(f"{' '.join(command)}: exit {result.returncode}: {result.stderr.strip()}")
    return float(match.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", default="build/cpu/gemma2_train")
    parser.add_argument("--seq-len", type=int, default=48, help="above the window, so that it bites")
    parser.add_argument("--rows", type=int, default=4)
    args = parser.parse_args()

    model, messages = load(args.folder)
    for message in messages:
        print(f"transformers: {message}")
    generator = torch.Generator().manual_seed(1)
    count = args.seq_len * args.rows + 1
    ids = torch.randint(3, model.config.vocab_size, (count,), generator=generator).tolist()
    with tempfile.TemporaryDirectory() as temporary:
        token_file = pathlib.Path(temporary) / "random.tokens"
        write_token_file(token_file, ids, model.config.vocab_size)
        ours = program_loss(args.program, args.folder, token_file, args.seq_len)
    theirs = transformers_loss(model, ids, args.seq_len)
    difference = abs(ours - theirs)
    print(f"loss: here {ours:.6f}, transformers {theirs:.6f}, difference {difference:.1e}")
    if difference > LOSS_TOLERANCE:
        print(f"the losses differ by more than {LOSS_TOLERANCE}")
    sys.exit(1 if messages or difference > LOSS_TOLERANCE else 0)


if __name__ == "__main__":
    main()
