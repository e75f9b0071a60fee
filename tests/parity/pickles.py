# SPDX-License-Identifier: MIT
"""Checkpoints pickled as by training scripts, converted to safetensors by the command that `moe convert` prints."""

import os
import re
import shlex
import subprocess
import sys

import torch


def megatron(tensors):
    """Nested dictionaries, as Megatron saves them: the names within embedding and encoder are flat."""
    out = {}
    for name, tensor in tensors.items():
        *groups, last = name.split(".", 3 if ".embedding." in name else 2)
        into = out
        for group in groups:
            into = into.setdefault(group, {})
        into[last] = tensor
    out["language_model"]["moe_state_dict"] = {}
    return {"module": out, "iteration": 7, "optimizer": None}


def fairseq(tensors):
    return {"args": None, "cfg": {"model": {}}, "model": dict(tensors), "extra_state": {"epoch": 1}}


def save(state, folder):
    """Writes `state` as model.safetensors. The environment variable MOE names the command."""
    path = os.path.join(folder, "checkpoint.pt")
    torch.save(state, path)
    refused = subprocess.run([os.environ["MOE"], "convert", folder, folder + ".moe"], capture_output=True, text=True)
    line = re.search(r'python -c ".*" \S+', refused.stderr)
    if not line:
        raise RuntimeError("no line of Python in: " + refused.stderr)
    subprocess.run([sys.executable, *shlex.split(line.group())[1:]], cwd=folder, check=True)
    os.remove(path)
