# SPDX-License-Identifier: MIT
"""Write and read the research layout: config.json, model.safetensors, tokenizer.json.

Matrices whose precision is ternary are written as exactly {-s, 0, +s}, where s is the absmean scale of
the whole matrix, so that the converter stores them without loss. Stacked experts become separate tensors.
    python export.py RUN/last.pt FOLDER
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import config as cfg
from model import Model
from routers import LEAST_TAU, TRAINING_KEYS


TAU = ".router.tau"  # written to config.json, not as a tensor


def config_of(model: Model) -> dict[str, Any]:
    """config.json with the learnt temperatures and without keys that only training needs."""
    config = copy.deepcopy(model.config)
    for ffn in cfg.feed_forwards(config):
        router = (ffn.get("moe") or {}).get("router", {})
        if router.get("identity"):
            router["d_e"] = config["d_model"] // ffn["moe"].get("n_subheads", 1)
        for key in TRAINING_KEYS:
            router.pop(key, None)
    for i, block in enumerate(model.layers):
        router = None if block.moe is None else block.moe.router
        if router is None or router.kind != "cosine":
            continue
        tau = router.tau.clamp_min(LEAST_TAU).item()
        if tau == torch.tensor(float(router.r["tau"])).item():
            continue
        learnt = {"moe": {"router": {"tau": tau}}}
        config.setdefault("layers", []).append({"index": i, "ffn": learnt})
    return config


def products(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replaces the two factors of a router by their product."""
    out = dict(state)
    for name in [n for n in state if n.endswith(".router.reduce")]:
        scores = name.removesuffix("reduce") + "weight"
        out[scores] = out[scores] @ out.pop(name)
    return out


def tensors_of(model: Model) -> dict[str, Tensor]:
    """Every tensor of the research layout; expert E of a stack (N, ...) is named experts.E."""
    out: dict[str, Tensor] = {}
    for name, value in products(model.state_dict()).items():
        if name.endswith(TAU):
            continue
        front, found, rest = name.partition(".moe.experts.")
        if not found:
            out[name] = value.contiguous().clone()
            continue
        for e in range(value.shape[0]):
            out[f"{front}.moe.experts.{e}.{rest}"] = value[e].contiguous().clone()
    return out


def _stacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `tensors_of`."""
    out, stacks = {}, {}
    for name, value in tensors.items():
        found = re.fullmatch(r"(.*\.moe\.experts)\.(\d+)\.(.*)", name)
        if found:
            stacks.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = value
        else:
            out[name] = value
    return out | {k: torch.stack([v[e] for e in range(len(v))]) for k, v in stacks.items()}


def write(
    model: Model, folder: Path, tokenizer: Path | None = None, dtype: torch.dtype = torch.float32
) -> None:
    """Write `model` as a checkpoint with floats of `dtype`; the model itself is not changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for layer in model.moe_layers():
        layer.route = None  # part of the last step's graph
    frozen = copy.deepcopy(model)
    frozen.freeze_ternary()
    tensors = {
        k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors_of(frozen).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config_of(model), indent=1) + "\n")
    if tokenizer is not None:
        shutil.copy(tokenizer, folder / "tokenizer.json")


def read(folder: Path) -> Model:
    """Build the model of a checkpoint that `write` made; its ternary matrices are already exact."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    biases = {name.removesuffix(".bias") for name in tensors if name.endswith(".bias")}
    biases |= {name for name in tensors if name.endswith(".selection_bias")}
    model = Model(config, sorted(biases))
    model.freeze_ternary()
    missing, unknown = model.load_state_dict(_stacked(tensors), strict=False)
    missing = [name for name in missing if not name.endswith(TAU)]
    if missing or unknown:
        raise ValueError(f"{folder}: tensors missing {missing}, unknown {unknown}")
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="export a training checkpoint")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    model = Model(state["config"])
    model.load_state_dict(state["model"])
    write(model, args.folder, args.checkpoint.parent / "tokenizer.json")


if __name__ == "__main__":
    main()
