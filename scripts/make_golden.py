#!/usr/bin/env python3
"""Makes tests/golden/golden.json: one training step of small random Gemma 2 models, computed by
Hugging Face transformers (eager attention, fp32), for tests/golden/golden_test.cpp.

    python3 scripts/make_golden.py            # needs scripts/requirements-reference.txt

Each case stores its configuration, batch and seeds; of the logits and of each gradient the L2 norm,
the sum and a few sampled elements.
"""
import json
import pathlib

import numpy as np
import torch

import reference_model

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "tests" / "golden" / "golden.json"
SAMPLES = 6

BASE = dict(vocab_size=97, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, rms_norm_eps=1e-6, rope_theta=10000.0,
            sliding_window=5, attn_logit_softcapping=3.0, final_logit_softcapping=4.0, tie_word_embeddings=True,
            initializer_range=0.25, pad_token_id=0, bos_token_id=2, eos_token_id=1, max_position_embeddings=64)

CASES = {  # name: what differs from BASE
    "like_2b": dict(hidden_size=36, head_dim=8),
    "like_9b": dict(hidden_size=56, num_attention_heads=8, num_key_value_heads=4),
    "like_27b_scale": dict(hidden_size=72, num_attention_heads=8, num_key_value_heads=4, query_pre_attn_scalar=9,
                           head_dim=4),
    "no_softcaps": dict(attn_logit_softcapping=None, final_logit_softcapping=None),
    "window_1": dict(sliding_window=1),
    "window_2": dict(sliding_window=2),
    "window_beyond_row": dict(sliding_window=64),
    "one_kv_head": dict(num_key_value_heads=1),
    "kv_heads_as_heads": dict(num_key_value_heads=4),
    "odd_vocabulary": dict(vocab_size=131, intermediate_size=33),
    "untied": dict(tie_word_embeddings=False),
    "layer_types": dict(num_hidden_layers=3,
                        layer_types=["full_attention", "full_attention", "sliding_attention"]),
}


def make_batch(rng, vocab_size, rows=2, seq_len=13):
    """Packed documents, one padding id, some ignored targets, never a target across a document's end."""
    ids = rng.integers(3, vocab_size, (rows, seq_len))
    lo = np.zeros((rows, seq_len), np.int64)
    for r in range(rows):
        start = 0
        for t in range(seq_len):
            if t == 0 or (t > start + 2 and rng.random() < 0.2):
                start = t
                ids[r, t] = 2
            lo[r, t] = start
    ids[0, seq_len // 2] = 0
    targets = np.full((rows, seq_len), reference_model.IGNORED)
    inside = (lo[:, 1:] == lo[:, :-1]) & (rng.random((rows, seq_len - 1)) > 0.15)
    targets[:, :-1][inside] = ids[:, 1:][inside]
    return dict(ids=ids, targets=targets, lo=lo, positions=np.arange(seq_len)[None] - lo)


def summary(rng, tensor):
    values = tensor.detach().double().flatten().numpy()
    where = sorted(rng.choice(values.size, min(SAMPLES, values.size), replace=False).tolist())
    return dict(l2=float(np.linalg.norm(values)), sum=float(values.sum()),
                samples=[[i, float(values[i])] for i in where])


def make_case(index, name, changes):
    rng = np.random.default_rng(100 + index)
    settings = dict(BASE, **changes)
    seed = 40 + index
    model = reference_model.build(settings)
    reference_model.initialise(model, seed, norm_std=0.3)
    batch = make_batch(rng, settings["vocab_size"])
    tensors = {k: torch.from_numpy(v) for k, v in batch.items()}
    logits = reference_model.forward_logits(model, tensors)
    losses = reference_model.token_losses(logits, tensors["targets"])
    count = int((tensors["targets"] != reference_model.IGNORED).sum())
    loss = losses.sum() / count
    loss.backward()
    gradients = {n: summary(rng, p.grad) for n, p in model.named_parameters()}
    print(f"{name}: loss {loss.detach().item():.6f} over {count} targets")
    return dict(name=name, model=dict(settings, model_type="gemma2"), seed=seed, norm_std=0.3, rows=2, seq_len=13,
                loss=losses.detach().double().sum().item() / count, logits=summary(rng, logits), gradients=gradients,
                **{k: v.flatten().tolist() for k, v in batch.items()})


def main():
    torch.manual_seed(0)
    cases = [make_case(i, name, changes) for i, (name, changes) in enumerate(CASES.items())]
    header = dict(made_by="scripts/make_golden.py", torch=torch.__version__,
                  transformers=reference_model.transformers.__version__, attention="eager", dtype="float32")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    OUTPUT.write_text('{"header":' + json.dumps(header) + ',\n"cases":[\n' + lines + "\n]}\n", encoding="utf-8")
    print(f"{OUTPUT.relative_to(ROOT)}: {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
