"""The same Gemma 2 in Hugging Face transformers: weights, masks and loss for reference logs.

Shared by make_reference.py and make_golden.py. Needs torch and transformers
(scripts/requirements-reference.txt).
"""
import numpy as np
import torch
import transformers

from reference_init import fill_normal

IGNORED = -100
# Keys of our model section that transformers' Gemma2Config takes under the same name.
CONFIG_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "query_pre_attn_scalar", "rms_norm_eps", "sliding_window",
    "attn_logit_softcapping", "final_logit_softcapping", "tie_word_embeddings", "initializer_range",
    "pad_token_id", "eos_token_id", "bos_token_id", "max_position_embeddings", "layer_types")


def parameter_names(config):
    """Tensor names in the order of our parameter table: an index is a tensor's random stream."""
    names = ["model.embed_tokens.weight"]
    if not config.tie_word_embeddings:
        names.append("lm_head.weight")
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        names += [prefix + f"self_attn.{p}_proj.weight" for p in "qkvo"]
        names += [prefix + f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")]
        names += [prefix + f"{p}.weight" for p in ("input_layernorm", "post_attention_layernorm",
                                                   "pre_feedforward_layernorm", "post_feedforward_layernorm")]
    return names + ["model.norm.weight"]


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
    """Model::initialise(seed) of the C++ program, bit for bit. Norm weights start at zero; golden
    tests give them norm_std so that a wrong gain shows (streams behind those of the parameters)."""
    config = model.config
    tensors = dict(model.named_parameters())
    names = parameter_names(config)
    for stream, name in enumerate(names):
        tensor = tensors[name]
        is_norm = tensor.dim() == 1
        std = norm_std if is_norm else config.initializer_range
        values = np.zeros(tensor.numel(), np.float32)
        if std > 0:
            values = fill_normal(seed, stream + (len(names) if is_norm else 0), tensor.numel(), std)
        values = torch.from_numpy(np.asarray(values, np.float32)).reshape(tensor.shape)
        if name == "model.embed_tokens.weight" and config.pad_token_id is not None:
            values[config.pad_token_id] = 0
        with torch.no_grad():
            tensor.copy_(values)


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
