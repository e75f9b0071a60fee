#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cost of formats for a trained model, role by role: perplexity on a text, and how often the most likely
token stays the same, without and with calibration. Prints a table for docs/precision.md.

    MOE_LIBRARY=build/release/lib PYTHONPATH=bindings/python/src \\
        python3 tests/parity/precision_table.py CHECKPOINT TEXT CALIBRATION_TEXT
"""

import pathlib
import sys
import tempfile

import numpy as np

import moe

# Values of --weights, for the whole model and for one role with the others in floats.
FORMATS = ("auto", "int8", "int6_k", "int4", "nl4", "int4_min", "int4_k", "fp4", "int3_k", "tcq3", "int2_k", "tcq2")
FORMATS_OF_ROLES = ("int8", "int8_group", "int4", "int4_k")
ROLES = {"experts": ["layers.*.moe.experts.*"], "attention": ["layers.*.attention.*"],
         "head and merge of MH-MoE": ["layers.*.moe.head", "layers.*.moe.merge"], "embedding and output head": ["embedding"]}


def best_tokens(model, ids):
    """The most likely token after each token, in windows of the model's context."""
    session, out = model.session(), []
    width = model.info.context_length - 1
    for begin in range(0, len(ids), width):
        session.rewind(0)
        window = [model.info.bos_token, *ids[begin:begin + width]]
        out.append(session.eval_all(window).argmax(axis=1))
    return np.concatenate(out)


def measure(path, text):
    with moe.Model(path) as model:
        ids = model.encode(text, special=False)
        return model.session().perplexity(ids).perplexity, best_tokens(model, ids), path.stat().st_size


def main():
    source, text, calibration = (pathlib.Path(a) for a in sys.argv[1:4])
    words, examples = text.read_text(), calibration.read_text()
    with tempfile.TemporaryDirectory() as folder:
        path, statistics = (pathlib.Path(folder) / name for name in ("m.moe", "statistics"))
        moe.convert(source, path, weights="int4", calibration=examples, save_statistics=statistics)

        def row(name, weights, overrides=None):
            found = []
            for given in (None, statistics):
                moe.convert(source, path, weights=weights, overrides=overrides or {}, statistics=given)
                found.append(measure(path, words))
            cells = [f"{p:.4f} ({100 * (p / base[0] - 1):+.2f} %) | {100 * np.mean(b == base[1]):.1f} %" for p, b, _ in found]
            print(f"| {name} | {found[0][2] / 1e6:.1f} MB | " + " | ".join(cells), "|", flush=True)

        moe.convert(source, path, weights="f32")
        base = measure(path, words)
        print("| stored as | file | perplexity | same best token | calibrated | same best token |\n|---|---|---|---|---|---|")
        print(f"| `f32` | {base[2] / 1e6:.1f} MB | {base[0]:.4f} | 100 % | - | - |")
        for weights in FORMATS:
            row("default" if weights == "auto" else f"`--weights {weights}`", weights)
        row("`--weights int4`, attention, head and merge too", "int4",
            {p: "int4" for role in ("attention", "head and merge of MH-MoE") for p in ROLES[role]})
        for weights in FORMATS_OF_ROLES:
            for role, patterns in ROLES.items():
                row(f"{role} alone `{weights}`", "f32", {p: weights for p in patterns})


main()
