"""What the golden files in tests/golden hold: small models, their batches, and summaries of tensors.

Shared by make_golden.py (transformers) and make_oracle_golden.py. Needs numpy only.
"""
import json

import numpy as np

IGNORED = -100  # a target that counts nothing

BASE = dict(vocab_size=97, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, rms_norm_eps=1e-6, rope_theta=10000.0,
            sliding_window=5, attn_logit_softcapping=3.0, final_logit_softcapping=4.0, tie_word_embeddings=True,
            initializer_range=0.25, pad_token_id=0, bos_token_id=2, eos_token_id=1, max_position_embeddings=64)


def make_batch(rng, vocab_size, rows, seq_len, packed=True):
    """Packed documents, one padding id, some ignored targets, never a target across a document's end."""
    ids = rng.integers(3, vocab_size, (rows, seq_len))
    lo = np.zeros((rows, seq_len), np.int64)
    for r in range(rows):
        start = 0
        for t in range(seq_len):
            if t == 0 or (packed and t > start + 2 and rng.random() < 0.2):
                start = t
                ids[r, t] = 2
            lo[r, t] = start
    ids[0, seq_len // 2] = 0
    targets = np.full((rows, seq_len), IGNORED)
    inside = (lo[:, 1:] == lo[:, :-1]) & (rng.random((rows, seq_len - 1)) > 0.15)
    targets[:, :-1][inside] = ids[:, 1:][inside]
    return dict(ids=ids, targets=targets, lo=lo, positions=np.arange(seq_len)[None] - lo)


def summary(rng, values, samples):
    """L2 norm, sum and a few elements of an array."""
    values = np.asarray(values, np.float64).flatten()
    where = sorted(rng.choice(values.size, min(samples, values.size), replace=False).tolist())
    return dict(l2=float(np.linalg.norm(values)), sum=float(values.sum()),
                samples=[[i, float(values[i])] for i in where])


def write(path, header, cases):
    """One line a case; arrays of a batch are flattened to lists."""
    def plain(value):
        return value.flatten().tolist() if isinstance(value, np.ndarray) else value
    lines = ",\n".join(json.dumps({k: plain(v) for k, v in c.items()}, separators=(",", ":")) for c in cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"header":' + json.dumps(header) + ',\n"cases":[\n' + lines + "\n]}\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")
