#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The results of tests/gpu/run.sh, from the logs of its steps: one JSON file, and a summary on stdout.

Usage: results.py LOGS OUT CUDA_VERSION_OF_THE_DRIVER
"""

import datetime
import glob
import json
import os
import sys


class Logs:
    def __init__(self, folder):
        self.folder = folder

    def text(self, name):
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as f:
                return f.read().strip()
        except OSError:
            return ""

    def data(self, name):
        try:
            return json.loads(self.text(name))
        except ValueError:
            return None

    def names(self, kind):
        """The steps KIND.NAME that have ended."""
        found = glob.glob(os.path.join(glob.escape(self.folder), kind + ".*.result"))
        return sorted(os.path.basename(path)[len(kind) + 1:-len(".result")] for path in found)

    def results(self, kind):
        return {name: self.text(f"{kind}.{name}.result") for name in self.names(kind)}


def suite(logs, name):
    found = {"result": logs.text(f"parity.{name}.result")}
    tests = logs.data(f"parity.{name}.json")
    if not tests:
        return found
    each = [(f'{s["name"]}.{t["name"]}', t) for s in tests["testsuites"] for t in s["testsuite"]]
    found["tests"] = tests["tests"]
    found["failed"] = {name: t["failures"][0]["failure"] for name, t in each if t.get("failures")}
    found["skipped"] = [name for name, t in each if t.get("result") == "SKIPPED"]
    for key in ("relative_error", "tolerance", "share_of_bound"):
        values = [float(t[key]) for _, t in each if key in t]
        if values:
            found[key] = max(values)
    return found


def profile(logs, name):
    table = logs.text(f"profile.{name}.csv").splitlines()
    return {"result": logs.text(f"profile.{name}.result"), "kernels": max(0, len(table) - 2)}  # names and units


def collect(logs, cuda):
    suites = {name: suite(logs, name) for name in logs.names("parity")}
    kernels = {"result": logs.text("kernels.result") or "not run"}
    kernels.update(logs.data("kernels.json") or {})
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": logs.text("gpu.log"),
        "driver_for_cuda": cuda,
        "build": dict(line.split(" ", 1) for line in logs.text("built.log").splitlines() if " " in line),
        "cublas_lt": logs.text("cublas_lt.log"),
        "parity": {"tests": sum(s.get("tests", 0) for s in suites.values()),
                   "failures": sum(len(s.get("failed", {})) for s in suites.values()),
                   "suites_not_ok": sum(s["result"] != "ok" for s in suites.values()), "suites": suites},
        "again": logs.results("again"),
        "repeated": logs.results("repeated"),
        "models": {name: {"result": logs.text(f"model.{name}.result"), "bench": logs.data(f"model.{name}.json")}
                   for name in logs.names("model")},
        "kernels": kernels,
        "profiles": {name: profile(logs, name) for name in logs.names("profile")},
        "sanitizers": logs.results("sanitizer"),
    }


def summary(r):
    parity = r["parity"]
    yield f'parity: {parity["tests"]} tests, {parity["failures"]} failed, {parity["suites_not_ok"]} suites not ok'
    for name, s in parity["suites"].items():
        if "tolerance" in s:
            yield f'  {name}: largest relative error {s["relative_error"]:.3g}, tolerance {s["tolerance"]:.3g}'
        if "share_of_bound" in s:
            yield f'  {name}: at most {s["share_of_bound"]:.3g} of the bound'
    for kind in ("repeated", "models", "profiles"):
        for name, found in r[kind].items():
            yield f'{kind}: {name}: {found["result"] if isinstance(found, dict) else found}'
    yield f'kernels: {r["kernels"]["result"]}, {len(r["kernels"].get("kernels", []))} timed'
    ends = list(r["sanitizers"].values())
    found, late = (sum(end.startswith(start) for end in ends) for start in ("failed", ("timed out", "killed")))
    ran = sum(not end.startswith("not run") for end in ends)
    yield f"sanitizers: {ran} of {len(ends)} ran, {found} found something, {late} timed out"


def main():
    folder, out, cuda = sys.argv[1:]
    result = collect(Logs(folder), cuda)
    with open(out + ".partial", "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    os.replace(out + ".partial", out)
    print("\n".join(summary(result)))


if __name__ == "__main__":
    main()
