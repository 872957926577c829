#!/usr/bin/env python3
"""Training steps of this program and of PyTorch + transformers (eager, fp32) side by side on this CPU.

    python3 scripts/bench_cpu.py --program build/cpu/gemma2_train

The model has hidden size 256 (6 layers, 4 heads of 64, 2 kv heads, intermediate 1024, vocabulary 260),
a step 8 rows of 256 tokens; forward, backward, clipping and AdamW on both sides, the same threads.
Needs scripts/requirements-reference.txt, scripts/make_reference_data.py run before.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch

import reference_model

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS, SEQ_LEN = 8, 256
MODEL = dict(vocab_size=260, hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=4,
             num_key_value_heads=2, head_dim=64, query_pre_attn_scalar=64, sliding_window=128,
             max_position_embeddings=SEQ_LEN)


def time_program(program, threads, steps):
    with tempfile.TemporaryDirectory() as folder:
        config = {"run": {"dir": f"{folder}/run"}, "model": MODEL,
                  "data": {"train": str(ROOT / "data/text/reference.jsonl"), "seq_len": SEQ_LEN},
                  "train": {"max_steps": steps, "global_batch": ROWS, "eval_every": 0, "eval_sequences": 1},
                  "checkpoint": {"every": 0, "keep_best": False}, "device": {"kind": "cpu", "threads": threads}}
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        subprocess.run([program, "--config", path], check=True, stderr=subprocess.DEVNULL)
        lines = (pathlib.Path(folder) / "run/log.jsonl").read_text(encoding="utf-8").splitlines()
        return [line["ms"] for line in map(json.loads, lines) if "ms" in line]


def time_torch(threads, steps):
    torch.set_num_threads(threads)
    model = reference_model.build(dict(MODEL, rms_norm_eps=1e-6, attn_logit_softcapping=50.0,
                                       final_logit_softcapping=30.0, tie_word_embeddings=True, pad_token_id=0,
                                       eos_token_id=1, bos_token_id=2, initializer_range=0.02))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ids = torch.randint(4, MODEL["vocab_size"], (ROWS, SEQ_LEN))
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/cpu/gemma2_train"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    ours = statistics.median(time_program(args.program, args.threads, args.steps)[2:])
    torch_ms = statistics.median(time_torch(args.threads, args.steps)[2:])
    tokens = ROWS * SEQ_LEN
    print(f"{args.threads} threads, {tokens} tokens a step, median of {args.steps - 2}")
    print(f"  this program                     {ours:8.1f} ms  {tokens / ours * 1e3:8.0f} tokens/s")
    print(f"  PyTorch {torch.__version__}, transformers  {torch_ms:8.1f} ms  {tokens / torch_ms * 1e3:8.0f} tokens/s")
    print(f"  ratio {torch_ms / ours:.2f}")


if __name__ == "__main__":
    main()
