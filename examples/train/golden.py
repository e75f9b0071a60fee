# SPDX-License-Identifier: MIT
"""Write the tiny models and their logits that the C++ tests compare with.

    python golden.py ../../tests/data/pytorch
Each folder holds a checkpoint in the research layout and
  golden.json         the token sequences, and how the logits were made
  golden.safetensors  logits.S (T, vocab) for sequence S, and logits_kv16.S: the same with K and V
                      rounded to float16, as in a half-precision cache
A seed is used only if no choice of experts and no rounding of an activation is close to a tie, so
that a wrong result is an error and not an effect of the last bit.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

import export
from golden_cases import CASES, Case
from model import Model

LENGTHS = (19, 5)


def randomise(model: Model, dtype: torch.dtype) -> None:
    """Set all parameters to random values that the file's type represents exactly."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(export.TAU):
                continue  # its value is that of the configuration
            if name.endswith("norm.weight"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif name.endswith(("bias", "sinks")):
                p.copy_(0.3 * torch.randn_like(p))
            elif name.endswith(("router.weight", "router.embedding.weight")):
                p.mul_(2.0)
            elif name.endswith("embedding.weight"):
                p.copy_(torch.randn_like(p) * (0.5 if "position" in name else 1.0))
            p.copy_(p.to(dtype).to(p.dtype))


def logits(model: Model, ids: list[int]) -> Tensor:
    """The logits (T, vocab) of one sequence."""
    with torch.no_grad():
        return model(torch.tensor([ids]))[0]


def routing(model: Model) -> list[list[list[int]]]:
    """Per MoE layer and row, the experts of the last call, ascending."""
    return [
        [
            sorted(e for e, kept in zip(i, k, strict=False) if kept)
            for i, k in zip(m.route.indices.tolist(), m.route.kept.tolist(), strict=False)
        ]
        for m in model.moe_layers()
    ]


def is_safe(model: Model, sequences: list[list[int]]) -> bool:
    """Whether experts and activation codes stay the same under small perturbations."""
    table, plain = model.embedding.weight, model.embedding.weight.detach().clone()
    integer = any(p["activations"] != "f32" for p in model.config["precision"])
    noise = 1e-7 if integer else 1e-4
    for ids in sequences:
        want, experts = logits(model, ids), routing(model)
        for trial in range(4):
            torch.manual_seed(trial)
            with torch.no_grad():
                table.copy_(plain * (1 + noise * torch.randn_like(plain)))
            got, same = logits(model, ids), routing(model) == experts
            with torch.no_grad():
                table.copy_(plain)
            if not same or (got - want).abs().max() > 50 * noise * want.abs().max():
                return False
        model.set_kv_dtype(torch.float16)
        logits(model, ids)
        same = routing(model) == experts
        model.set_kv_dtype(torch.float32)
        if not same:
            return False
    return True


def make(case: Case, seed: int, folder: Path) -> tuple[Model, list[list[int]]]:
    """Write one case's checkpoint; return the model read back from it, and the sequences."""
    torch.manual_seed(seed)
    dtype = getattr(torch, case.dtype)
    model = Model(case.config, case.biases)
    randomise(model, dtype)
    sequences = [torch.randint(case.config["vocab_size"], (n,)).tolist() for n in LENGTHS]
    if model.config["add_bos"]:
        sequences = [[model.config["bos_token_id"], *ids[1:]] for ids in sequences]
    export.write(model, folder, dtype=dtype)
    return export.read(folder), sequences


def write(case: Case, model: Model, sequences: list[list[int]], seed: int, folder: Path) -> None:
    """The golden values of a checkpoint, computed with the weights as written."""
    out, experts = {}, []
    for kind, name in ((torch.float32, "logits"), (torch.float16, "logits_kv16")):
        model.set_kv_dtype(kind)
        for s, ids in enumerate(sequences):
            out[f"{name}.{s}"] = logits(model, ids).contiguous()
            if kind == torch.float32:
                experts.append(routing(model))
    save_file(out, folder / "golden.safetensors")
    (folder / "golden.safetensors").chmod(0o644)
    golden = {
        "sequences": sequences,
        "seed": seed,
        "experts": experts,
        "file_dtype": case.dtype,
        "integer_activations": any(p["activations"] != "f32" for p in model.config["precision"]),
    }
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="write golden models and logits")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        if args.only and args.only not in case.name:
            continue
        folder = args.folder / case.name
        shutil.rmtree(folder, ignore_errors=True)
        for seed in range(200):
            model, sequences = make(case, seed, folder)
            if is_safe(model, sequences):
                break
        else:
            raise SystemExit(f"{case.name}: no seed without a near tie")
        write(case, model, sequences, seed, folder)
        print(f"{case.name}: seed {seed}")


if __name__ == "__main__":
    main()
