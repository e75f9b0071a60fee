# SPDX-License-Identifier: MIT
"""Converts random checkpoints of every family with `moe convert` and compares them with PyTorch.

    pip install -r tests/parity/requirements.txt
    python tests/parity/run.py                        # all cases; build/release must be built
    python tests/parity/run.py 'qwen*' --seeds 5      # some cases, with five random models each
    python tests/parity/run.py --golden tests/data/families   # writes the data of the C++ tests
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # or transformers compiles BitNet's arithmetic

import numpy as np
import torch
from safetensors.numpy import save_file

import families
import gguf_files
import libmoe

N_TOKENS = 40
N_GREEDY = 64
N_GOLDEN = 24
N_GUESSES = 3
DOWN = "model.layers.0.mlp.down_proj.weight"  # golden cases contain its dequantised values


def convert(moe, case, folder, out):
    command = [moe, "convert", folder, out, "--verify", "--json", *case.convert]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    for matrix in json.loads(done.stdout)["matrices"]:
        ternary = matrix["format"].startswith("ternary") or not matrix["matrix"].startswith("layers.") \
            or matrix["matrix"].endswith("router")
        if case.lossless and not (ternary and matrix["lossless"]):
            raise RuntimeError(f"{matrix['matrix']} was not stored without loss")


def check_codes(moe, case, folder, out):
    """Checks how a checkpoint's own codes are stored without --weights."""
    command = [moe, "convert", source(case, folder), out, "--verify", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    format, error, *attention = case.keeps
    worst = 0.0
    for m in json.loads(done.stdout)["matrices"]:
        if not m["matrix"].startswith("layers.") or m["matrix"].endswith("router"):
            continue
        worst = max(worst, m["relative_error"])
        wanted = attention[0] if attention and ".attention." in m["matrix"] else format
        if m["format"] != wanted or m["relative_error"] > error or (error == 0 and not m["lossless"]):
            raise RuntimeError(f"{m['matrix']} became {m['format']} with an error of {m['relative_error']:.2g}")
    return f"{format} {worst:.2g}  "


def relative(found, expected):
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def prompts(vocab_size, seed):
    g = np.random.default_rng(seed)
    return [g.integers(3, vocab_size, n).tolist() for n in (N_TOKENS, 7)]


def greedy(reference, prompt, n):
    ids = list(prompt)
    for _ in range(n):
        ids.append(int(reference(ids, True)[-1].argmax()))
    return ids[len(prompt):]


def check_greedy(reference, model, prompt, tolerance):
    """Whether the tokens are identical, or the first different one is within the tolerance in the reference's logits."""
    expected, found = greedy(reference, prompt, N_GREEDY), model.greedy(prompt, N_GREEDY)
    for i, (a, b) in enumerate(zip(expected, found)):
        if a == b:
            continue
        row = reference(prompt + expected[:i], True)[-1]
        gap = (row[a] - row[b]) / np.abs(row).max()
        return i, f"token {i}: {b} for {a}, logits apart by {gap:.1e}", bool(gap <= tolerance)
    return N_GREEDY, "", True


def check_guesses(program, reference, path, sequences, case):
    """Compares the logits of the layer that guesses tokens; nothing without one."""
    if not hasattr(reference, "guesses"):
        return True, ""
    worst = []
    for kv, half in (("f32", False), ("f16", True)):
        errors = []
        for ids in sequences:
            done = subprocess.run([program, path, kv, str(N_GUESSES), *map(str, ids)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"guess_logits: {done.stderr.strip()}")
            found = np.array([row.split() for row in done.stdout.splitlines()], np.float32)
            errors.append(relative(found, reference.guesses(ids, N_GUESSES, half).numpy()))
        worst.append(max(errors))
    near = worst[0] <= case.tolerance and worst[1] <= case.tolerance_kv16
    return near, f"guesses {worst[0]:.1e} {worst[1]:.1e}  "


def source(case, folder):
    return os.path.join(folder, "model.gguf") if case.gguf else folder


def vocabulary(case, folder):
    if case.gguf:
        return case.vocab_size
    return json.load(open(os.path.join(folder, "config.json"))).get("vocab_size", case.vocab_size)


def check_tokenizer(case, model):
    """Compares the ids of the texts in the tokenizer's test data."""
    for text in json.load(open(os.path.join(gguf_files.TEXT, case.tokenizer + ".json")))["cases"]:
        found = model.encode(text["line"])
        if found != text["ids"]:
            raise RuntimeError(f"tokenizer: {text['line']!r}: {found} for {text['ids']}")


def run_case(case, first_seed, args, scratch):
    folder, out = os.path.join(scratch, case.name), os.path.join(scratch, case.name + ".moe")
    shutil.rmtree(folder, ignore_errors=True)
    reference = families.write(case, folder)
    codes = check_codes(args.moe, case, folder, out) if case.keeps else ""
    convert(args.moe, case, source(case, folder), out)
    vocab_size = vocabulary(case, folder)
    model = libmoe.Model(args.library, out, vocab_size, case.context)
    try:
        if case.tokenizer:
            check_tokenizer(case, model)
        sequences = prompts(vocab_size, case.seed)
        kv32, kv16 = (max(relative(model.eval(ids, kv), reference(ids, half)) for ids in sequences)
                      for kv, half in ((libmoe.KV_F32, False), (libmoe.KV_DEFAULT, True)))
        latent = max(relative(model.eval(ids, libmoe.KV_LATENT), reference(ids, False))
                     for ids in sequences) if case.latent else 0
        n, note, same = check_greedy(reference, model, sequences[1], case.tolerance_kv16)
        guessed, guesses = check_guesses(args.guess_logits, reference, out, sequences, case)
    finally:
        model.close()
    # Rounding K and V can change a choice between experts of nearly equal score; the cases' own seeds avoid that.
    near = max(kv32, latent) <= case.tolerance or first_seed != case.seed
    ok = near and kv16 <= case.tolerance_kv16 and same and (guessed or first_seed != case.seed)
    print(f"{'ok  ' if ok else 'FAIL'} {case.name:26s} seed {case.seed}  logits {kv32:.1e} {kv16:.1e}  "
          f"{f'latent {latent:.1e}  ' if case.latent else ''}{codes}{guesses}greedy {n}/{N_GREEDY} {note}", flush=True)
    return ok


def measure_precision(case, args, scratch):
    """The effect of int8 and bfloat16: mean KL divergence from float32, and how often the best token stays the same."""
    folder, out = os.path.join(scratch, case.name), os.path.join(scratch, case.name + ".moe")
    families.write(case, folder)
    vocab_size = vocabulary(case, folder)
    ids, logs = prompts(vocab_size, case.seed)[0], {}
    for weights in ("f32", "bf16", "int8"):
        convert(args.moe, dataclasses.replace(case, convert=("--weights", weights)), source(case, folder), out)
        model = libmoe.Model(args.library, out, vocab_size)
        logits = model.eval(ids).astype(np.float64)
        model.close()
        logs[weights] = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
    line = f"{case.name:26s}"
    for weights in ("bf16", "int8"):
        kl = (np.exp(logs["f32"]) * (logs["f32"] - logs[weights])).sum(-1).mean()
        same = (logs["f32"].argmax(-1) == logs[weights].argmax(-1)).mean()
        line += f"  {weights} KL {kl:.1e} best token kept {100 * same:5.1f} %"
    print(line, flush=True)


def write_golden(case, root):
    folder = os.path.join(root, case.name)
    shutil.rmtree(folder, ignore_errors=True)
    reference = families.write(case, folder)
    vocab_size = vocabulary(case, folder)
    sequences = [ids[:N_GOLDEN] for ids in prompts(vocab_size, case.seed)]
    tensors = {f"logits_kv16.{i}": reference(ids, True) for i, ids in enumerate(sequences)}
    tensors["logits.1"] = reference(sequences[1], False)
    if hasattr(reference, "guesses"):
        tensors.update({f"guesses_kv16.{i}": reference.guesses(ids, N_GUESSES, True).numpy()
                        for i, ids in enumerate(sequences)})
    if case.keeps:
        tensors[DOWN] = reference.model.get_parameter(DOWN).detach().numpy()
    save_file(tensors, os.path.join(folder, "golden.safetensors"))
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"sequences": sequences, "convert": case.convert, "tolerance": case.tolerance,
                   "tolerance_kv16": case.tolerance_kv16, **({"context": case.context} if case.context else {})}, f)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of cases")
    parser.add_argument("--moe", default="build/release/bin/moe")
    parser.add_argument("--library", default="build/release/lib/libmoe.so")
    parser.add_argument("--guess_logits", default="build/release/tests/guess_logits",
                        help="program for models that guess tokens; build it with cmake --build --preset release -t guess_logits")
    parser.add_argument("--seeds", type=int, default=1, help="random models per case")
    parser.add_argument("--llama-cpp", metavar="FOLDER",
                        help="source of llama.cpp, whose converter writes the GGUF cases (tried: 0.3.36's)")
    parser.add_argument("--precision", action="store_true", help="measure what bf16 and int8 weights change")
    parser.add_argument("--golden", metavar="FOLDER", help="write the golden cases there instead")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["MOE"] = os.path.abspath(args.moe)
    cases = [c for c in families.CASES if any(fnmatch.fnmatch(c.name, p) for p in args.patterns)]
    gguf_files.LLAMA_CPP = args.llama_cpp
    if args.llama_cpp is None:
        cases = [c for c in cases if not c.gguf]
    if not cases:
        sys.exit("no case of that name (the GGUF cases need --llama-cpp)")
    if args.precision:
        with tempfile.TemporaryDirectory() as scratch:
            for case in cases:
                if not case.lossless:
                    measure_precision(case, args, scratch)
        return
    if args.golden:
        for case in cases:
            if case.golden:
                write_golden(case, args.golden)
        return
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            for seed in range(case.seed, case.seed + args.seeds):
                try:
                    ok = run_case(dataclasses.replace(case, seed=seed), case.seed, args, scratch)
                except (RuntimeError, libmoe.MoeError) as error:
                    print(f"FAIL {case.name:26s} seed {seed}  {error}", flush=True)
                    ok = False
                if not ok:
                    failed.append(f"{case.name}:{seed}")
    print(f"{len(failed)} failed: {' '.join(failed)}" if failed else "all agree")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
