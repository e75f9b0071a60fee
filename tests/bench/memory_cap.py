#!/usr/bin/env python3
"""Peak resident memory (VmHWM) of commands under memory caps, from the least cap to one that holds the whole model.

    python3 tests/bench/memory_cap.py build/release/bin/moe                              # a synthetic model of 1.2 GB
    python3 tests/bench/memory_cap.py build/release/bin/moe --model FILE.moe --cap 1200M --cap 2G

Writes its model, unless one is given, to TMPDIR and removes it. Exits 1 when a peak is more than 16 MB above its cap.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ALLOWED = 16 << 20
CONTEXT = 256


def peak(command):
    """Runs a command and returns its peak resident memory in bytes."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {child.returncode}")
    # bench measures memory bandwidth in a child process, which ru_maxrss includes; bench reports its own peak.
    return json.loads(out)["peak_rss_bytes"] if "bench" in command else usage.ru_maxrss << 10


def plan(moe, model):
    j = json.loads(subprocess.run([moe, "inspect", model, "--json", "--memory", "100T", "--context", str(CONTEXT)],
                                  check=True, capture_output=True).stdout)
    return j["plan"]["least_cap_bytes"], j["plan"]["needed_bytes"], j["tokenizer"]


def commands(moe, model, has_text, tokens):
    yield "bench", [moe, "bench", model, "-p", "128", "-n", "32", "-r", "1", "--json"]
    if has_text:
        yield "generate", [moe, "generate", model, "-p", "Once upon a time", "-n", "32"]
        yield "perplexity", [moe, "perplexity", model, "-p", "Once upon a time there was a fox. " * 10]
    else:  # the same work without a tokenizer
        yield "eval", [moe, "eval", model, "--tokens", tokens]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("moe")
    p.add_argument("--model")
    p.add_argument("--cap", action="append", help="instead of the least cap plus 0, 25, 50, 75 and 100 %% of the rest")
    p.add_argument("--io", default="direct")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = a.model
        if model is None:
            model = os.path.join(folder, "model.moe")
            subprocess.run([a.moe, "bench", "--synthetic", "mh-moe-768x12-h3", "--weights", "f32", "--save", model],
                           check=True, capture_output=True)
        least, whole, has_text = plan(a.moe, model)
        caps = a.cap or [str(least + (whole - least) * share // 100) for share in (0, 25, 50, 75, 100)]
        tokens = ",".join(str(i * 37 % 251) for i in range(200))
        over = 0
        print(f"{os.path.getsize(model) / 1e6:.0f} MB; the least cap is {least / 1e6:.1f} MB, all takes {whole / 1e6:.1f} MB")
        for cap in caps:
            inspect = [a.moe, "inspect", model, "--json", "--memory", cap, "--context", str(CONTEXT)]
            limit = json.loads(subprocess.run(inspect, check=True, capture_output=True).stdout)["plan"]["cap_bytes"]
            for name, command in commands(a.moe, model, has_text, tokens):
                rss = peak(command + ["--memory", cap, "--io", a.io, "--context", str(CONTEXT)])
                over += rss > limit + ALLOWED
                print(f"{name:10} cap {limit / 1e6:8.1f} MB  peak {rss / 1e6:8.1f} MB  {(rss - limit) / 1e6:+7.1f}", flush=True)
        return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
