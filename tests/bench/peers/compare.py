#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures moe, llama.cpp and ik_llama.cpp alternately on the same shapes and prints tokens per second.

Usage: compare.py --dir FOLDER [--ik CHECKOUT] [--moe build/release/bin/moe] [--shapes NAME,...]
                  [--weights ternary2,int8,int4] [--types NAME,...] [--threads 2] [--rounds 5] [-p 32,512] [-n 32]
                  [-d DEPTH,...] [-s SESSIONS] [--isa NAME] [--plain-buffers] [--drift 0.1] [--json FILE]

FOLDER keeps the files for the next run (40 GB for all of them). See README.md.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys

import ik_llama
import measures
from measures import Measure
from shapes import IK_TYPES, PAIRS, SHAPES, TYPES

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
METER_REPETITIONS = 5
ATTEMPTS = 3  # at a round


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        sys.exit(f"{' '.join(command)}\nended by {name}; for a crash of llama.cpp see \"AMX\" in "
                 "README.md")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr.strip()}")
    return done.stdout


def gguf_file(o, shape, file_type, for_ik=False):
    """The path of the GGUF file, which is written if it does not exist."""
    differs = for_ik and (file_type in IK_TYPES or SHAPES[shape].ik_arch)
    path = os.path.join(o.dir, f"{shape}.{file_type}{'.ik' if differs else ''}.gguf")
    if not os.path.exists(path):
        run([sys.executable, os.path.join(HERE, "write_gguf.py"), shape, file_type, path] + (["--ik"] if differs else []))
    return path


def model_options(o, shape, weights, file_type):
    """The model that bench opens: a synthetic one, or for four bits the conversion of llama.cpp's file, whose codes it keeps."""
    if weights != "int4":
        path = os.path.join(o.dir, f"{shape}.{weights}.moe")
        if not os.path.exists(path):
            run([o.moe, "bench", "--synthetic", shape, "--weights", weights, "--save", path])
        return [path]
    path = os.path.join(o.dir, f"{shape}.{file_type}.moe")
    # auto: otherwise the importer makes the matrices of bitnet ternary.
    run([o.moe, "convert", gguf_file(o, shape, file_type), path, "--set", "*=auto"])
    return [path]


def bench(o, model, what, repetitions):
    """The JSON object of a `moe bench` process, which measures one prompt or one way of decoding."""
    command = [o.moe, "bench", *model, "-p", str(what.prompt), "-n", "0" if what.prompt else str(o.generate),
               "-d", str(what.depth), "--sessions", str(what.sessions), "-r", str(repetitions),
               "--threads", str(o.threads), "--json"]
    return json.loads(run(command + (["--isa", o.isa] if o.isa else [])))


def measure_ours(o, model):
    rates, about = {}, {}
    for what in o.measures:
        got = bench(o, model, what, o.repetitions)
        rates[what.name] = got["prefill_tokens_per_s" if what.prompt else "decode_tokens_per_s"]
        if what == Measure():
            about = {k: got[k] for k in ("isa", "threads", "share_of_bandwidth",
                                         "read_bandwidth_bytes_per_s",
                                         "used_bytes_per_token")}
    return rates, about


def measure_theirs(o, path):
    command = [sys.executable, os.path.join(HERE, "llama_worker.py"), path, *measures.arguments(o)]
    got = json.loads(run(command + (["--plain-buffers"] if o.plain_buffers else [])))
    return {k: statistics.median(v) for k, v in got.pop("rates").items()}, got


def speed_of_machine(o):
    """Time a small model: its prompt shows the processors' speed, its decoding that of the memory."""
    model = ["--synthetic", "edge-moe-768x12", "--weights", "ternary2"]
    return [bench(o, model, what, METER_REPETITIONS)[f"{kind}_tokens_per_s"]
            for what, kind in ((Measure(prompt=256), "prefill"), (Measure(), "decode"))]


def drift_between(before, after):
    """The larger change of the two, as a share: 0.1 if the machine was a tenth faster at one end than at the other."""
    return max(max(a, b) / min(a, b) - 1 for a, b in zip(before, after, strict=True))


def compare(o, shape, weights, file_type):
    """One row: the rates of every engine in every round. The engine that goes first alternates.

    A round in which the machine itself changed by more than --drift is measured again, a few times at most.
    """
    model = model_options(o, shape, weights, file_type)
    engines = {"moe": lambda: measure_ours(o, model),
               "llama.cpp": lambda: measure_theirs(o, gguf_file(o, shape, file_type))}
    if o.ik:
        path = gguf_file(o, shape, file_type, for_ik=True)
        engines["ik_llama.cpp"] = lambda: ik_llama.measure(o.ik_bench, path, o)
    row = {"shape": shape, "weights": weights, "type": file_type, "rates": {name: [] for name in engines},
           "drift": [], "repeated": 0, "about": {}}
    order = list(engines)
    for r in range(o.rounds):
        found, drift = {}, 0.0
        for attempt in range(ATTEMPTS):
            before = speed_of_machine(o)
            again, about = {}, {}
            for name in order if r % 2 == 0 else reversed(order):
                again[name], about[name] = engines[name]()
            drift_now = drift_between(before, speed_of_machine(o))
            row["repeated"] += attempt > 0
            if not found or drift_now < drift:
                found, row["about"], drift = again, about, drift_now
            print(f"{shape} {weights} {file_type}: round {r + 1} of {o.rounds}, drift {100 * drift_now:.0f} %", file=sys.stderr)
            if drift <= o.drift:
                break
        for name, rates in found.items():
            row["rates"][name].append(rates)
        row["drift"].append(drift)
    return row


def number(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}"


def print_row(row):
    """Medians of every engine, and moe's ratio to the better peer: of medians, and the range over the rounds."""
    rates = row["rates"]
    peers = [name for name in rates if name != "moe"]
    for what in rates["moe"][0]:
        medians = {name: statistics.median(r[what] for r in found) for name, found in rates.items() if what in found[0]}
        best = max((name for name in peers if name in medians), key=medians.get)
        each = sorted(a[what] / b[what] for a, b in zip(rates["moe"], rates[best], strict=True))
        print(f"| `{row['shape']}` | {row['weights']} / {row['type']} | {what} | "
              + " | ".join(number(medians[name]) if name in medians else "" for name in rates)
              + f" | {medians['moe'] / medians[best]:.2f} | {each[0]:.2f} to {each[-1]:.2f} |", flush=True)


def print_about(rows):
    """Prints the builds, and where llama.cpp put the weights (its AMX and repacked buffers)."""
    theirs = rows[0]["about"]["llama.cpp"]
    print(f"\n{theirs['version']}\n{theirs['system_info'].strip()}")
    if "ik_llama.cpp" in rows[0]["about"]:
        print(f"{rows[0]['about']['ik_llama.cpp']['version']}, -rtr 1")
    drifts = sorted(d for row in rows for d in row["drift"])
    print(f"\nthe machine's drift within a round: median {100 * statistics.median(drifts):.0f} %, at most "
          f"{100 * drifts[-1]:.0f} %; {sum(row['repeated'] for row in rows)} rounds repeated")
    for row in rows:
        t, m = row["about"]["llama.cpp"], row["about"]["moe"]
        print(f"\n{row['shape']}\n  llama.cpp {row['type']}, flash attention "
              f"{'on' if t['flash_attention'] else 'off'}: {'; '.join(t['buffers'])}")
        if "ik_llama.cpp" in row["about"]:
            print(f"  ik_llama.cpp: {row['about']['ik_llama.cpp']['type']}")
        print(f"  moe {row['weights']}, {m['isa']}: {m['used_bytes_per_token'] / 1e6:.0f} MB of weights "
              f"a token, {100 * m['share_of_bandwidth']:.0f} % of "
              f"{m['read_bandwidth_bytes_per_s'] / 1e9:.1f} GB/s in the last round")


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = lambda s: s.split(",")
    parser.add_argument("--dir", required=True, help="folder for the GGUF files")
    parser.add_argument("--ik", metavar="CHECKOUT", help="sources of ik_llama.cpp; builds them in CHECKOUT/build-peers")
    parser.add_argument("--moe", default=os.path.join(ROOT, "build/release/bin/moe"))
    parser.add_argument("--shapes", type=names, default=list(SHAPES))
    parser.add_argument("--weights", type=names, default=list(PAIRS))
    parser.add_argument("--types", type=names, default=TYPES, help="types of llama.cpp's files")
    measures.add_options(parser)
    parser.add_argument("--isa", help="instruction set of moe (default: the best one)")
    parser.add_argument("--plain-buffers", action="store_true",
                        help="llama.cpp without weights rearranged for AMX or other instructions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--drift", type=float, default=0.1,
                        help=f"a round in which the machine's speed changes by a larger share is repeated, up to {ATTEMPTS - 1} times")
    parser.add_argument("--json", help="keeps every round's figures in this file")
    o = parser.parse_args()
    for given, known in ((o.shapes, SHAPES), (o.weights, PAIRS), (o.types, TYPES)):
        for name in given:
            if name not in known:
                parser.error(f"{name} is not one of: {', '.join(known)}")
    if o.rounds < 1 or not o.drift > 0:
        parser.error("rounds and drift are positive")
    o.measures = measures.check_options(parser, o)
    return o


def main():
    o = options()
    os.makedirs(o.dir, exist_ok=True)
    engines = ["moe", "llama.cpp"] + (["ik_llama.cpp"] if o.ik else [])
    if o.ik:
        o.ik_bench = ik_llama.build(o.ik)
    print("| shape | weights | | " + " | ".join(f"{name}, tokens/s" for name in engines)
          + " | ratio to the better | of single rounds |\n" + "|---" * (len(engines) + 5) + "|", flush=True)
    rows = []
    for shape in o.shapes:
        for weights in o.weights:
            for file_type in PAIRS[weights]:
                if file_type in o.types:
                    rows.append(compare(o, shape, weights, file_type))
                    print_row(rows[-1])
    print_about(rows)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
