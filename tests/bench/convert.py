#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speed of `moe convert` on one core: bytes of the checkpoint per second of processor time, by format.

    python3 tests/bench/convert.py build/release/bin/moe FOLDER     # which needs 1.3 GB

Writes a checkpoint with the shape of an OLMoE of --layers layers in bfloat16, once with normal and once with ternary weights,
and converts the first to several formats, the second to `auto`. Prints the slower of two runs.
"""

import argparse
import json
import os
import pathlib
import shutil

import numpy as np

D, FF, EXPERTS, VOCABULARY = 1024, 512, 32, 32000
FORMATS = ("auto", "bf16", "int8", "int8_group", "int4", "ternary2", "ternary3")


def shapes(layers):
    yield "model.embed_tokens.weight", (VOCABULARY, D)
    yield "lm_head.weight", (VOCABULARY, D)
    yield "model.norm.weight", (D,)
    for i in range(layers):
        layer = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
            yield f"{layer}{name}.weight", (D,)
        for name in "qkvo":
            yield f"{layer}self_attn.{name}_proj.weight", (D, D)
        yield f"{layer}mlp.gate.weight", (EXPERTS, D)
        for e in range(EXPERTS):
            for name, shape in (("gate", (FF, D)), ("up", (FF, D)), ("down", (D, FF))):
                yield f"{layer}mlp.experts.{e}.{name}_proj.weight", shape


def config(layers):
    return {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "hidden_size": D, "intermediate_size": FF, "num_hidden_layers": layers,
            "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": EXPERTS, "num_experts_per_tok": 8, "vocab_size": VOCABULARY,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "norm_topk_prob": False,
            "tie_word_embeddings": False, "attention_bias": False, "clip_qkv": None}


def weights(generator, shape, ternary):
    if len(shape) == 1 or not ternary:
        values = generator.standard_normal(shape, np.float32) * np.float32(0.02)
    else:
        values = generator.integers(-1, 2, shape).astype(np.float32) * np.float32(0.03125)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write(folder, layers, ternary):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(layers)))
    header, end = {}, 0
    for name, shape in shapes(layers):
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    generator = np.random.default_rng(1)
    with (folder / "model.safetensors").open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes(layers):
            f.write(weights(generator, shape, ternary and "proj" in name).tobytes())
    return end


def run(*command):
    """Runs it and returns its seconds of processor time."""
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("moe")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--layers", type=int, default=5)
    o = p.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for ternary in (False, True):
        source = o.folder / ("ternary" if ternary else "normal")
        size = write(source, o.layers, ternary)
        for weights_as in ("auto",) if ternary else FORMATS:
            command = (os.path.abspath(o.moe), "convert", str(source), str(o.folder / "m.moe"), "--weights", weights_as)
            seconds = max(run(*command) for _ in range(2))
            print(f"{source.name:8} {size / 1e6:.0f} MB to {weights_as:10}: {size / 1e6 / seconds:4.0f} MB/s", flush=True)
        shutil.rmtree(source)
    (o.folder / "m.moe").unlink()


if __name__ == "__main__":
    main()
