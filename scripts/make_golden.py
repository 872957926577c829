#!/usr/bin/env python3
"""Makes tests/golden/golden.json: one training step of small random Gemma 2 models, computed by
Hugging Face transformers (eager attention, fp32), for tests/golden/golden_test.cpp.

    python3 scripts/make_golden.py            # needs scripts/requirements-reference.txt

Each case stores its configuration, batch and seeds; of the logits and of each gradient the L2 norm,
the sum and a few sampled elements.
"""
import pathlib

import numpy as np
import torch

import golden_cases
import reference_model

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "golden.json"
ROWS, SEQ_LEN, NORM_STD, SAMPLES = 2, 13, 0.3, 6

CASES = {  # name: what differs from golden_cases.BASE
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


def make_case(index, name, changes):
    rng = np.random.default_rng(100 + index)
    settings = dict(golden_cases.BASE, **changes)
    seed = 40 + index
    model = reference_model.build(settings)
    reference_model.initialise(model, seed, NORM_STD)
    batch = golden_cases.make_batch(rng, settings["vocab_size"], ROWS, SEQ_LEN)
    tensors = {k: torch.from_numpy(v) for k, v in batch.items()}
    logits = reference_model.forward_logits(model, tensors)
    losses = reference_model.token_losses(logits, tensors["targets"])
    count = int((tensors["targets"] != golden_cases.IGNORED).sum())
    (losses.sum() / count).backward()

    def summary(tensor):
        return golden_cases.summary(rng, tensor.detach().numpy(), SAMPLES)

    gradients = {n: summary(p.grad) for n, p in model.named_parameters()}
    loss = losses.detach().double().sum().item() / count
    print(f"{name}: loss {loss:.6f} over {count} targets")
    return dict(name=name, model=dict(settings, model_type="gemma2"), seed=seed, norm_std=NORM_STD, rows=ROWS,
                seq_len=SEQ_LEN, loss=loss, logits=summary(logits), gradients=gradients, **batch)


def main():
    torch.manual_seed(0)
    cases = [make_case(i, name, changes) for i, (name, changes) in enumerate(CASES.items())]
    golden_cases.write(OUTPUT, dict(made_by="scripts/make_golden.py", torch=torch.__version__,
                                    transformers=reference_model.transformers.__version__, attention="eager",
                                    dtype="float32"), cases)


if __name__ == "__main__":
    main()
