# SPDX-License-Identifier: MIT
"""Compares the GGUF cases of gguf_hybrids.py with llama.cpp itself, which reads the same files.

    pip install xllamacpp                             # tried: 2026.10.11549
    python tests/parity/gguf_judge.py --llama-cpp FOLDER [PATTERN ...]

The files are made in F32, for which llama.cpp rounds no activations, and with a tokenizer, without which it reads none.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy as np
import torch

import families
import gguf_files
import gguf_hybrids
import libmoe

VOCABULARY = 400
N_TOKENS = 40
N_COMPARED = 12  # the last positions
# Configurations that llama.cpp refuses: keys and values of other widths, rotations that leave out axes, or blocks.
REFUSED = ("*_small", "*_prediction", "qwen3_5_four_times", "qwen3_next_four_times", "qwen3_5_equal", "*_q4_*", "*_q8_0", "granitemoehybrid_dense")
WORST = 1e-3  # of logarithms of probabilities


def judge(path, ids):
    """Runs in a process of its own, which llama.cpp may end: prints, by position, the logarithms of the tokens' probabilities."""
    import xllamacpp as x
    params = x.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.warmup = 128, 1, False
    params.cpuparams.n_threads = 1
    params.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cache_type_k = params.cache_type_v = x.ggml_type.GGML_TYPE_F32
    server, out = x.Server(params), {}
    for n in range(len(ids) - N_COMPARED + 1, len(ids) + 1):
        reply = server.handle_completions({"prompt": ids[:n], "n_predict": 1, "n_probs": VOCABULARY, "temperature": 1.0,
                                           "cache_prompt": False, "samplers": []})
        found = reply["choices"][0]["logprobs"]  # null if the token is an incomplete character
        if found:
            out[n - 1] = {t["id"]: t["logprob"] for t in found["content"][0]["top_logprobs"]}
    print("\n" + json.dumps(out))


def compare(case, args, scratch):
    names = case.make.__code__.co_freevars
    cells = dict(zip(names, (cell.cell_contents for cell in case.make.__closure__)))
    case = dataclasses.replace(case, config=dict(case.config, vocab_size=VOCABULARY), make=gguf_files.make(
        cells["inner"], "f32", "gpt2", "gpt-2"))
    folder, out = os.path.join(scratch, case.name), os.path.join(scratch, "model.moe")
    families.write(case, folder)
    path = os.path.join(folder, "model.gguf")
    ids = np.random.default_rng(case.seed).integers(3, VOCABULARY - 20, N_TOKENS).tolist()
    done = subprocess.run([sys.executable, __file__, "--judge", path, json.dumps(ids)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("llama.cpp: " + "; ".join(line for line in done.stderr.splitlines() if "ASSERT" in line or "rror" in line)[:300])
    subprocess.run([args.moe, "convert", path, out, "--weights", "f32"], check=True, capture_output=True)
    model = libmoe.Model(args.library, out, VOCABULARY, 128)
    logits = model.eval(ids, libmoe.KV_F32).astype(np.float64)
    model.close()
    logs = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    worst = max(abs(logs[int(n), int(t)] - log) for n, tokens in theirs.items() for t, log in tokens.items())
    ok = worst <= WORST and len(theirs) > 0
    print(f"{'ok  ' if ok else 'FAIL'} {case.name:32s} {len(theirs):2d} positions, logarithms apart by {worst:.1e}, "
          f"their deviation {logs.std():.1f}", flush=True)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of cases")
    parser.add_argument("--moe", default="build/release/bin/moe")
    parser.add_argument("--library", default="build/release/lib/libmoe.so")
    parser.add_argument("--llama-cpp", metavar="FOLDER", help="source of llama.cpp, whose converter writes the files")
    parser.add_argument("--judge", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.judge:
        return judge(args.judge[0], json.loads(args.judge[1]))
    if args.llama_cpp is None:
        parser.error("--llama-cpp is needed")
    torch.set_num_threads(1)
    gguf_files.LLAMA_CPP = args.llama_cpp
    failed = []
    for case in gguf_hybrids.CASES:
        name = case.name.removeprefix("gguf_")
        if any(fnmatch.fnmatch(name, p) for p in REFUSED) or not any(fnmatch.fnmatch(name, p) for p in args.patterns):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            try:
                ok = compare(case, args, scratch)
            except (RuntimeError, libmoe.MoeError) as error:
                print(f"FAIL {case.name:32s} {error}", flush=True)
                ok = False
        if not ok:
            failed.append(name)
    print("failed: " + " ".join(failed) if failed else "all agree")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
