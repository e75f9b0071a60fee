# SPDX-License-Identifier: MIT
"""Maple's published layout at any width and depth: 9 shards, 18,651 tensors at full depth, bfloat16.

    python tests/parity/maple_size.py /tmp/maple --divide 8            # 1/8 of the width, all layers
    python tests/parity/maple_size.py /tmp/maple --divide 1 --layers 4  # full width, as many layers as fit on the disk

Writes random ternary weights with one scale per row (some zeros are negative, as in the original), converts
them, checks that the conversion was lossless, and prints seconds, bytes per second and peak memory.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

import numpy as np

FULL = dict(hidden_size=2048, moe_intermediate_size=512, vocab_size=151936, num_hidden_layers=24, head_dim=128)
N_SHARDS, N_EXPERTS = 9, 256


def config(divide, layers):
    c = {k: v // divide if k in ("hidden_size", "moe_intermediate_size", "head_dim") else v for k, v in FULL.items()}
    types = ["full_attention" if i % 4 == 3 else "sliding_attention" for i in range(layers)]
    return dict(architectures=["MapleForCausalLM"], **{**c, "num_hidden_layers": layers}, num_attention_heads=16,
                num_key_value_heads=4, num_experts=N_EXPERTS, num_experts_per_tok=8, hidden_act="silu",
                max_position_embeddings=131072, rms_norm_eps=1e-6, rope_theta=10000, partial_rotary_factor=0.5,
                sliding_window=512, layer_types=types, norm_topk_prob=True, tie_word_embeddings=False,
                bos_token_id=151643, eos_token_id=151645)


def tensors(c):
    """(name, shape, ternary) in file order."""
    d, f, hd = c["hidden_size"], c["moe_intermediate_size"], c["head_dim"]
    yield "model.word_embeddings.weight", (c["vocab_size"], d), False
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield p + name + ".weight", (d,), False
        for name in ("q_norm", "k_norm"):
            yield p + f"self_attn.{name}.weight", (hd,), False
        for name, rows, cols in (("q", 16 * hd, d), ("k", 4 * hd, d), ("v", 4 * hd, d), ("o", d, 16 * hd)):
            yield p + f"self_attn.{name}_proj.weight", (rows, cols), True
        yield p + "mlp.gate.weight", (N_EXPERTS, d), False
        for e in range(N_EXPERTS):
            for name, rows, cols in (("gate", f, d), ("up", f, d), ("down", d, f)):
                yield p + f"mlp.experts.{e}.{name}_proj.weight", (rows, cols), True
    yield "model.norm.weight", (d,), False
    yield "lm_head.weight", (c["vocab_size"], d), False


class Numbers:
    """Random bfloat16 values, taken as slices of one random pool."""

    def __init__(self):
        self.g = np.random.default_rng(1)
        self.pool = self.g.integers(0, 65536, 1 << 24, np.uint16)
        self.sign = self.pool & 0x8000
        self.nonzero = np.where(self.pool % 3 == 0, 0, 0x7FFF).astype(np.uint16)
        self.normal = (self.g.standard_normal(1 << 22).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)

    def take(self, pool, n):
        at = int(self.g.integers(0, len(pool)))
        return np.take(pool, range(at, at + n), mode="wrap") if at + n > len(pool) else pool[at:at + n]

    def ternary(self, rows, cols):
        scales = (self.g.random((rows, 1), np.float32) + 0.5).view(np.uint32) >> 16
        n = rows * cols
        at = int(self.g.integers(0, max(len(self.pool) - n, 1)))
        nonzero, sign = (np.resize(p[at:at + n], (rows, cols)) for p in (self.nonzero, self.sign))
        return scales.astype(np.uint16) & nonzero | sign

    def plain(self, shape):
        return np.resize(self.normal, shape)


def write(folder, c):
    os.makedirs(folder, exist_ok=True)
    items = list(tensors(c))
    size = lambda shape: 2 * int(np.prod(shape))
    per_shard = sum(size(s) for _, s, _ in items) // N_SHARDS + 1
    shards, filled = [[]], 0
    for item in items:
        if filled >= per_shard:
            shards.append([])
            filled = 0
        shards[-1].append(item)
        filled += size(item[1])
    numbers, weight_map = Numbers(), {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        header, at = {}, 0
        for tensor, shape, _ in shard:
            header[tensor] = dict(dtype="BF16", shape=shape, data_offsets=[at, at + size(shape)])
            weight_map[tensor] = name
            at += size(shape)
        text = json.dumps(header).encode()
        with open(os.path.join(folder, name), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for tensor, shape, ternary in shard:
                f.write((numbers.ternary(*shape) if ternary else numbers.plain(shape)).tobytes())
    json.dump({"weight_map": weight_map}, open(os.path.join(folder, "model.safetensors.index.json"), "w"))
    json.dump(c, open(os.path.join(folder, "config.json"), "w"))
    return len(items), len(shards), sum(size(s) for _, s, _ in items)


# Run in a small process, because the peak that Linux reports for a child includes its parent's at the fork.
MEASURE = """import json, resource, subprocess, sys, time
start = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps(dict(wall=time.monotonic() - start, cpu=usage.ru_utime + usage.ru_stime,
                      peak=usage.ru_maxrss * 1024, report=json.loads(done.stdout or "null"))))"""


def run(command):
    """Runs a command; returns its output as JSON, its wall-clock and CPU seconds, and its peak memory."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *command], stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    if found["report"] is None:
        sys.exit(f"{command} failed")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="created, and removed at the end")
    parser.add_argument("--divide", type=int, default=8)
    parser.add_argument("--layers", type=int, default=FULL["num_hidden_layers"])
    parser.add_argument("--verify", action="store_true", help="also read the result again and compare it")
    parser.add_argument("--moe", default="build/release/bin/moe")
    args = parser.parse_args()
    out = args.folder.rstrip("/") + ".moe"
    try:
        n_tensors, n_shards, n_bytes = write(args.folder, config(args.divide, args.layers))
        command = [args.moe, "convert", args.folder, out, "--json"] + ["--verify"] * args.verify
        found = run(command)
        report = found["report"]
        lossy = [m["matrix"] for m in report["matrices"] if m["format"].startswith("ternary") and not m["lossless"]]
        kinds = {}
        for m in report["matrices"]:
            kind = f"{m['format']} {m['scale']}"
            kinds[kind] = kinds.get(kind, 0) + 1
        print(f"{n_tensors} tensors in {n_shards} shards, {n_bytes / 1e9:.2f} GB -> "
              f"{os.path.getsize(out) / 1e9:.2f} GB in {found['wall']:.1f} s ({found['cpu']:.1f} s of CPU, "
              f"{n_bytes / found['cpu'] / 1e6:.0f} MB/s), peak memory {found['peak'] / 1e6:.0f} MB; {kinds}; "
              f"ternary with loss: {len(lossy)}")
        sys.exit(1 if lossy else 0)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)
        if os.path.exists(out):
            os.remove(out)


if __name__ == "__main__":
    main()
