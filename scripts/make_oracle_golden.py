#!/usr/bin/env python3
"""Makes tests/golden/oracle.json: one training step of small random Gemma 2 models in fp64, computed by
an oracle that shares nothing with the C++ program, for tests/golden/golden_test.cpp.

    python3 scripts/make_oracle_golden.py gemma2_oracle.py

The oracle is a Python file that needs torch only (1.13 will do) and defines

    forward(config, weights, ids, labels, pos=..., doc=...) -> logits [B, T, V], mean loss

of Hugging Face keys, tensors by Hugging Face names, labels that it shifts itself, positions and document
numbers. Gradients come from torch's automatic differentiation. --seed N makes other weights and batches
than those of the committed file, --output another file.
"""
import argparse
import importlib.util
import pathlib

import numpy as np
import torch

import golden_cases
from reference_init import initial_weights, parameter_names

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "oracle.json"
NORM_STD, SAMPLES = 0.3, 12

# Each has T > window, grouped heads, caps that bite and ignored targets.
CASES = {  # name: (rows, T, packed, what differs from golden_cases.BASE)
    "packed": (3, 29, True, dict(num_hidden_layers=4, query_pre_attn_scalar=10)),
    "whole_rows": (2, 2 * 7 + 1, False, dict(sliding_window=7, num_key_value_heads=1, vocab_size=131,
                                              intermediate_size=33, pad_token_id=None)),
    "hard_caps": (2, 40, True, dict(num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3, hidden_size=42,
                                    head_dim=12, sliding_window=16, attn_logit_softcapping=0.5,
                                    final_logit_softcapping=1.0, initializer_range=0.5)),
    "untied": (2, 24, True, dict(tie_word_embeddings=False, sliding_window=3, rope_theta=100.0, rms_norm_eps=1e-2)),
}


def load_oracle(path):
    spec = importlib.util.spec_from_file_location("oracle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shapes_of(c):
    d, f, h = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    queries, keys = c["num_attention_heads"] * h, c["num_key_value_heads"] * h
    by_end = {"embed_tokens": (c["vocab_size"], d), "lm_head": (c["vocab_size"], d), "q_proj": (queries, d),
              "k_proj": (keys, d), "v_proj": (keys, d), "o_proj": (d, queries), "gate_proj": (f, d),
              "up_proj": (f, d), "down_proj": (d, f)}
    names = parameter_names(c["num_hidden_layers"], c["tie_word_embeddings"])
    return {name: by_end.get(name.split(".")[-2], (d,)) for name in names}


def make_case(oracle, index, seed, name, rows, seq_len, packed, changes):
    seed = 1000 * seed + index
    rng = np.random.default_rng(seed)
    settings = dict(golden_cases.BASE, **changes)
    shapes = shapes_of(settings)
    weights = {n: torch.from_numpy(w).double().requires_grad_() for n, w in initial_weights(
        list(shapes), shapes, seed, settings["initializer_range"], NORM_STD, settings["pad_token_id"])}
    batch = golden_cases.make_batch(rng, settings["vocab_size"], rows, seq_len, packed)
    labels = np.full((rows, seq_len), golden_cases.IGNORED)
    labels[:, 1:] = batch["targets"][:, :-1]
    ids, labels, positions, documents = (
        torch.from_numpy(a) for a in (batch["ids"], labels, batch["positions"], batch["lo"]))
    logits, loss = oracle.forward(settings, weights, ids, labels, pos=positions, doc=documents)
    loss.backward()

    def summary(tensor):
        return golden_cases.summary(rng, tensor.detach().numpy(), SAMPLES)

    print(f"{name}: loss {loss.item():.12f}")
    return dict(name=name, model=dict(settings, model_type="gemma2"), seed=seed, norm_std=NORM_STD, rows=rows,
                seq_len=seq_len, loss=loss.item(), logits=summary(logits),
                gradients={n: summary(w.grad) for n, w in weights.items()}, **batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("oracle", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    args = parser.parse_args()
    oracle = load_oracle(args.oracle)
    cases = [make_case(oracle, i, args.seed, name, *case) for i, (name, case) in enumerate(CASES.items())]
    golden_cases.write(args.output, dict(made_by="scripts/make_oracle_golden.py", torch=torch.__version__,
                                         dtype="float64"), cases)


if __name__ == "__main__":
    main()
