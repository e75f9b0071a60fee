# SPDX-License-Identifier: MIT
"""Builds and times ik_llama.cpp, a fork of llama.cpp with faster CPU kernels, from a checkout of its sources."""

import json
import os
import statistics
import subprocess

from measures import Measure


def build(checkout):
    """The path of its llama-bench, compiled for this CPU. Takes minutes the first time."""
    folder = os.path.join(checkout, "build-peers")
    for command in (["cmake", "-S", checkout, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                     "-DLLAMA_CURL=OFF"],
                    ["cmake", "--build", folder, "--target", "llama-bench", "-j", str(os.cpu_count())]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return os.path.join(folder, "bin", "llama-bench")


def measure(bench, path, o):
    """tokens/s of one process, median of its repetitions, and what ran. It has no measure of several sessions.

    -rtr 1 rearranges the weights for its kernels when they are loaded, as its users do on a CPU.
    """
    command = [bench, "-m", path, "-t", str(o.threads), "-p", ",".join(map(str, o.prompts or [0])), "-n", str(o.generate),
               "-r", str(o.repetitions), "-b", "512", "-ub", "512", "-ngl", "0", "-fa", "1", "-rtr", "1", "-o", "json"]
    for depth in o.depths:
        command += ["-gp", f"{depth},{o.generate}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    # It prints a line of its own before the JSON.
    runs = json.loads(done.stdout[done.stdout.index("[\n"):])
    rates = {}
    for run in runs:
        generates = run["n_gen"] > 0  # then a prompt is the depth
        what = Measure(depth=run["n_prompt"]) if generates else Measure(prompt=run["n_prompt"])
        rates[what.name] = statistics.median(run["samples_ts"])
    return rates, {"version": f"ik_llama.cpp {runs[0]['build_commit']}", "type": runs[0]["model_type"]}
