#!/usr/bin/env python3
"""Makes a reference log with Hugging Face transformers: eager attention, fp32, TF32 off.

    build/cpu/gemma2_train verify --config configs/tiny.json --export-batches /tmp/tiny.jsonl
    python3 scripts/make_reference.py /tmp/tiny.jsonl data/reference/tiny.jsonl

Needs scripts/requirements-reference.txt. Batches and settings come from the export; weights from our
deterministic initialisation, made again in numpy and compared by hash, or from a Hugging Face folder
(--weights). The optimizer, schedule, clipping and accumulation are written out below, independently of
the C++ code. The format is described in src/train/reference_log.h.
"""
import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch
import xxhash

import golden_cases
import reference_model

LOGPROBS = 32  # of the first valid targets, at the chosen steps
# No looser than the fp32 tolerances of the public Gemma 2 convergence test of the Liger kernels.
TOLERANCES = {"loss": (1e-8, 1e-4), "grad_norm": (1e-6, 5e-3), "lr": (0.0, 1e-12), "logprob": (5e-3, 1e-5),
              "weight": (5e-3, 1e-5)}


def weights_hash(model):
    tensors = dict(model.named_parameters())
    hasher = xxhash.xxh3_128()
    for name in reference_model.parameter_names(model.config):
        hasher.update(np.ascontiguousarray(tensors[name].detach().float().cpu().numpy()).tobytes())
    return hasher.hexdigest()


def learning_rate(s, step, total):
    """Rate of the update that makes `step`, counted from 1."""
    peak, warmup = s["optimizer.learning_rate"], s["schedule.warmup_steps"]
    done = step - 1 if s["schedule.zero_first_step"] else step
    if warmup > 0 and done < warmup:
        return peak * done / warmup
    floor = peak * s["schedule.min_lr_ratio"]
    x = min(max((step - 1 - warmup) / max(total - warmup, 1), 0.0), 1.0)
    kind = s["schedule.kind"]
    if kind == "constant":
        return peak
    if kind == "linear":
        return peak + (floor - peak) * x
    if kind == "cosine":
        return floor + (peak - floor) * (1 + math.cos(math.pi * x)) / 2
    decay = max(s["schedule.decay_steps"], 1)
    return peak + (floor - peak) * min(max((step - 1 - total + decay) / decay, 0.0), 1.0)


class AdamW:
    """Decoupled weight decay on matrices; norms never decay, the embedding only if the settings say so."""

    def __init__(self, parameters, settings):
        self.s = settings
        self.master = {n: p.detach().float().clone() for n, p in parameters.items()}
        self.m = {n: torch.zeros_like(w) for n, w in self.master.items()}
        self.v = {n: torch.zeros_like(w) for n, w in self.master.items()}

    def decay(self, name):
        if name == "model.embed_tokens.weight":
            return self.s["optimizer.weight_decay"] if self.s["optimizer.decay_embedding"] else 0.0
        return self.s["optimizer.weight_decay"] if self.master[name].dim() > 1 else 0.0

    def update(self, gradients, step, rate):
        norm = math.sqrt(sum(g.double().pow(2).sum().item() for g in gradients.values()))
        clip = self.s["optimizer.grad_clip"]
        factor = clip / norm if clip > 0 and norm > clip else 1.0
        beta1, beta2, eps = (self.s[f"optimizer.{k}"] for k in ("beta1", "beta2", "eps"))
        for name, gradient in gradients.items():
            g = gradient.float() * factor
            m, v, w = self.m[name], self.v[name], self.master[name]
            m.mul_(beta1).add_(g, alpha=1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            direction = (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)
            w.sub_(rate * (direction + self.decay(name) * w))
        return norm


def read_batches(path):
    with open(path, encoding="utf-8") as file:
        header = json.loads(file.readline())
        return header, [json.loads(line) for line in file]


def tensors_of(line, header, device):
    shape = (header["rows"], header["seq_len"])
    return {k: torch.tensor(line[k], dtype=torch.long, device=device).reshape(shape)
            for k in ("ids", "targets", "positions", "lo")}


def run_step(model, batch, micro_rows):
    """Sum of token losses over the step, each token's loss, and gradients of the mean over its targets."""
    count = int((batch["targets"] != golden_cases.IGNORED).sum())
    losses = []
    for first in range(0, batch["ids"].shape[0], micro_rows):
        part = {k: v[first:first + micro_rows] for k, v in batch.items()}
        token_losses = reference_model.token_losses(reference_model.forward_logits(model, part), part["targets"])
        (token_losses.sum() / count).backward()
        losses.append(token_losses.detach())
    return torch.cat(losses), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batches", type=pathlib.Path, help="made by gemma2_train verify --export-batches")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                        help="bfloat16 keeps fp32 master weights, moments and gradients sums (%(default)s)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--micro-rows", type=int, default=0, help="rows at a time (default: all)")
    parser.add_argument("--weights", type=pathlib.Path, help="Hugging Face folder to start from")
    args = parser.parse_args()

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    header, lines = read_batches(args.batches)
    s = header["settings"]
    settings = {k.removeprefix("model."): v for k, v in s.items() if k.startswith("model.")}
    settings.setdefault("pad_token_id", header["pad_token_id"])
    model = reference_model.build(settings, torch.float32, args.device)
    if args.weights:
        model.load_state_dict(reference_model.transformers.Gemma2ForCausalLM.from_pretrained(
            args.weights, dtype=torch.float32).state_dict())
    else:
        reference_model.initialise(model, s["run.seed"])
    if weights_hash(model) != header["init_hash"]:
        sys.exit("make_reference: the initial weights differ from the program's: "
                 f"{weights_hash(model)}, exported {header['init_hash']}")
    dtype = getattr(torch, args.dtype)
    optimizer = AdamW(dict(model.named_parameters()), s)
    model.to(dtype)
    chosen = {1, 2, len(lines) // 2, len(lines)}
    total = header["schedule_total_steps"]
    out = [{"type": "reference", "made_by": "scripts/make_reference.py",
            "command": f"make_reference.py {args.batches.name} {args.output.name} --dtype {args.dtype} --device {args.device}",
            "versions": {"torch": torch.__version__, "transformers": reference_model.transformers.__version__,
                         "attention": "eager", "device": args.device},
            "dtype": args.dtype, "settings": s, "data_hash": header["data_hash"], "init_hash": header["init_hash"],
            "tolerances": {k: {"abs": a, "rel": r} for k, (a, r) in TOLERANCES.items()}}]
    for line in lines:
        step = line["step"]
        batch = tensors_of(line, header, args.device)
        losses, count = run_step(model, batch, args.micro_rows or header["rows"])
        rate = learning_rate(s, step, total)
        gradients = {n: p.grad for n, p in model.named_parameters()}
        with torch.no_grad():
            norm = optimizer.update(gradients, step, rate)
            for name, parameter in model.named_parameters():
                parameter.copy_(optimizer.master[name])
                parameter.grad = None
        result = {"step": step, "loss": losses.double().sum().item() / count, "grad_norm": norm, "lr": rate}
        if step in chosen:
            valid = losses[batch["targets"] != golden_cases.IGNORED][:LOGPROBS]
            result["logprobs"] = [-x for x in valid.double().tolist()]
            result["weights"] = {n: w.double().norm().item() for n, w in optimizer.master.items()}
        out.append(result)
        print(f"step {step}: loss {result['loss']:.9g}  norm {norm:.6g}", flush=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text("".join(json.dumps(line) + "\n" for line in out), encoding="utf-8")


if __name__ == "__main__":
    main()
