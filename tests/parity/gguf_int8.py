# SPDX-License-Identifier: MIT
"""The errors that int8 and int8_group add to that of llama.cpp's quantiser, as a table for docs/checkpoints.md.

    pip install -r tests/parity/requirements.txt
    python3 tests/parity/gguf_int8.py build/release/bin/moe LIBGGML

LIBGGML: libggml-base.so of a build of llama.cpp.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np

ROWS, COLS, KEY = 512, 4096, 16
TYPES = ("Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0")


def weights():
    g = np.random.default_rng(1)
    normal = g.standard_normal((ROWS, COLS)).astype(np.float32) * np.float32(0.02)
    yield f"normal, {COLS} inputs", normal
    some = normal.copy()
    some[g.random((ROWS, COLS)) < 0.001] *= 10
    yield "of these one in a thousand ten times as large", some
    one = normal.copy()
    one[np.arange(ROWS), g.integers(0, COLS, ROWS)] = 1
    yield "of these one in each row of 50 standard deviations", one


def quantise(ggml, w, kind):
    size, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.zeros((ROWS, COLS // size * n_bytes), np.uint8)
    call = ggml.ggml_quantize_chunk
    call.restype = ctypes.c_size_t
    call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    assert call(int(kind), w.ctypes.data, blocks.ctypes.data, 0, ROWS, COLS, None) == blocks.nbytes
    return blocks


def write_model(path, blocks, kind):
    """A Llama of one layer, of which only ffn.up is compared."""
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(64)
    out.add_embedding_length(COLS)
    out.add_block_count(1)
    out.add_feed_forward_length(ROWS)
    out.add_head_count(1)
    out.add_key_length(KEY)
    out.add_value_length(KEY)
    out.add_rope_dimension_count(KEY)
    out.add_layer_norm_rms_eps(1e-5)
    shapes = {"token_embd": (16, COLS), "output_norm": (COLS,), "blk.0.attn_norm": (COLS,), "blk.0.ffn_norm": (COLS,),
              "blk.0.attn_q": (KEY, COLS), "blk.0.attn_k": (KEY, COLS), "blk.0.attn_v": (KEY, COLS), "blk.0.attn_output": (COLS, KEY),
              "blk.0.ffn_gate": (ROWS, COLS), "blk.0.ffn_down": (COLS, ROWS)}
    for name, shape in shapes.items():
        out.add_tensor(name + ".weight", np.ones(shape, np.float32))
    out.add_tensor("blk.0.ffn_up.weight", blocks, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def added(moe, folder, how):
    command = [moe, "convert", folder + "/m.gguf", folder + "/m.moe", "--weights", how, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return next(m for m in json.loads(done.stdout)["matrices"] if m["matrix"] == "layers.0.ffn.up")


def main():
    moe, ggml = sys.argv[1], ctypes.CDLL(sys.argv[2])
    print("| weights | type | its own error | `int8` adds | `int8_group` adds | taken |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, w in weights():
            for type_name in TYPES:
                kind = gguf.GGMLQuantizationType[type_name]
                blocks = quantise(ggml, w, kind)
                values = gguf.quants.dequantize(blocks, kind)
                own = np.linalg.norm((values - w).astype(np.float64)) / np.linalg.norm(w.astype(np.float64))
                write_model(os.path.join(folder, "m.gguf"), blocks, kind)
                row, group, auto = (added(moe, folder, how) for how in ("int8", "int8_group", "auto"))
                errors = [f"{r['relative_error']:.4f}" if not r["lossless"] else "none" for r in (row, group)]
                print(f"| {name} | {type_name} | {own:.4f} | {errors[0]} | {errors[1]} | `{auto['format']}` |", flush=True)


if __name__ == "__main__":
    main()
