"""The same Gemma 2 in Hugging Face transformers: weights, masks and loss for reference logs.

Shared by make_reference.py and make_golden.py. Needs torch and transformers
(scripts/requirements-reference.txt).
"""
import torch
import transformers

import reference_init
from golden_cases import IGNORED

# Keys of our model section that transformers' Gemma2Config takes under the same name.
CONFIG_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "query_pre_attn_scalar", "rms_norm_eps", "sliding_window",
    "attn_logit_softcapping", "final_logit_softcapping", "tie_word_embeddings", "initializer_range",
    "pad_token_id", "eos_token_id", "bos_token_id", "max_position_embeddings", "layer_types")


def parameter_names(config):
    return reference_init.parameter_names(config.num_hidden_layers, config.tie_word_embeddings)


def build(model_settings, dtype=torch.float32, device="cpu"):
    """A Gemma2ForCausalLM with eager attention from a dict of Hugging Face keys; weights undefined."""
    keys = {k: model_settings[k] for k in CONFIG_KEYS if k in model_settings}
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):  # transformers wants floats
        if keys.get(key) is not None:
            keys[key] = float(keys[key])
    keys["rope_parameters"] = {"rope_type": "default", "rope_theta": model_settings.get("rope_theta", 10000.0)}
    keys["hidden_activation"] = "gelu_pytorch_tanh"
    config = transformers.Gemma2Config(**keys)
    config._attn_implementation = "eager"
    model = transformers.Gemma2ForCausalLM(config)
    assert model.config._attn_implementation == "eager"
    return model.to(device=device, dtype=dtype).train()


def initialise(model, seed, norm_std=0.0):
    """Model::initialise(seed) of the C++ program, bit for bit."""
    c = model.config
    tensors = dict(model.named_parameters())
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    with torch.no_grad():
        for name, values in reference_init.initial_weights(parameter_names(c), shapes, seed, c.initializer_range,
                                                           norm_std, c.pad_token_id):
            tensors[name].copy_(torch.from_numpy(values))


def masks(lo, seq_len, window, dtype):
    """Additive masks of the two layer kinds, [B, 1, T, T]: key j of a row is visible to query i iff
    lo[i] <= j <= i, and in sliding layers j > i - window. lo: [B, T], relative to the row."""
    i = torch.arange(seq_len, device=lo.device)[None, :, None]
    j = torch.arange(seq_len, device=lo.device)[None, None, :]
    full = (j <= i) & (j >= lo[:, :, None])
    sliding = full & (j > i - window) if window else full
    lowest = torch.finfo(dtype).min
    additive = [torch.zeros(m.shape, dtype=dtype, device=lo.device).masked_fill(~m, lowest)[:, None]
                for m in (full, sliding)]
    return {"full_attention": additive[0], "sliding_attention": additive[1]}


def forward_logits(model, batch):
    """Capped logits [B, T, V] of a batch dict with ids, positions and lo, each a tensor [B, T]."""
    mask = masks(batch["lo"], batch["ids"].shape[1], model.config.sliding_window, model.dtype)
    return model(input_ids=batch["ids"], position_ids=batch["positions"], attention_mask=mask,
                 use_cache=False).logits


def token_losses(logits, targets):
    """Loss of each token [B, T] in fp32 (0 where ignored), as transformers upcasts."""
    flat = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(),
                                             ignore_index=IGNORED, reduction="none")
    return flat.reshape(targets.shape)
