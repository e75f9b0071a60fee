#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fuzzes targets for a given CPU time each, in slices, and prints a table. An interrupted run continues.

    cmake --preset fuzz && cmake --build --preset fuzz
    python3 tests/bench/fuzz_hours.py --dir FOLDER [--cpu-seconds 3600] [TARGET...]

FOLDER keeps the corpora, the inputs found and the totals (totals.json), for one process at a time. Exits with 1 if anything was found.
"""

import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fuzzers(build):
    """Target -> its program and its corpus in the repository, from the tests of the preset."""
    text = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    found = {}
    for test in json.loads(text)["tests"]:
        program, *arguments = test.get("command", [""])  # none: a test that is not built
        if any(a.startswith("-max_total_time") for a in arguments):
            found[test["name"].removeprefix("fuzz.").removesuffix("_fuzz")] = (program, arguments[-1])
    return found


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_slice(folder, target, program, corpus, seconds):
    """CPU seconds, inputs, and how many inputs were found in one run of at most so many seconds."""
    own, found = folder / "corpus" / target, folder / "found"
    own.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    begin, before = cpu_seconds(), len(list(found.iterdir()))
    # Beside other work an input may wait for a CPU: only a timeout counts, not a slow unit.
    limits = ["-timeout=60", "-report_slow_units=60", "-rss_limit_mb=2048"]
    done = subprocess.run([program, f"-max_total_time={seconds}", *limits, "-print_final_stats=1",
                           f"-artifact_prefix={found}/{target}.", str(own), corpus], capture_output=True, text=True, errors="replace")
    n = re.search(r"number_of_executed_units: +(\d+)", done.stderr)
    if done.returncode != 0:
        (folder / f"{target}.log").write_text(done.stderr[-20000:])
    return cpu_seconds() - begin, int(n[1]) if n else 0, max(len(list(found.iterdir())) - before, done.returncode != 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="folder for corpora, found inputs and totals")
    parser.add_argument("--build", default=str(ROOT / "build/fuzz"))
    parser.add_argument("--cpu-seconds", type=float, default=3600)
    parser.add_argument("--slice", type=int, default=180, help="seconds of one run of a target")
    parser.add_argument("targets", nargs="*")
    o = parser.parse_args()
    known = fuzzers(o.build)
    for name in o.targets:
        if name not in known:
            parser.error(f"{name} is not one of: {', '.join(sorted(known))}")
    o.dir.mkdir(parents=True, exist_ok=True)
    kept = o.dir / "totals.json"
    totals = json.loads(kept.read_text()) if kept.exists() else {}
    for target in o.targets or sorted(known):
        total = totals.setdefault(target, [0.0, 0, 0])
        while total[0] < o.cpu_seconds and total[2] == 0:
            for i, value in enumerate(run_slice(o.dir, target, *known[target], o.slice)):
                total[i] += value
            kept.write_text(json.dumps(totals, indent=1))
    print("| target | CPU seconds | inputs | found |\n|---|---|---|---|")
    for target, (seconds, n, found) in sorted(totals.items()):
        print(f"| `{target}` | {seconds:.0f} | {n} | {found} |")
    sys.exit(any(t[2] for t in totals.values()))


main()
