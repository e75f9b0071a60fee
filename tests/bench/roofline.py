#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs kernels_bench and prints each kernel's speed as a share of the machine's rooflines.

Usage: roofline.py [--bench build/release/bin/kernels_bench] [--isa NAME,...] [--filter REGEX]
                   [--threads 1,2] [--repetitions 15] [--min-time 0.05] [--json FILE]

The rooflines are measured between the kernels, in random order, and every figure is a median over the
repetitions. "of reading" is the bytes of weights (or keys and values) per second as a share of what
the same number of threads reads from the same level of memory. "of peak" is the multiplications per
second as a share of those of a loop of independent products in the same instruction set.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The kernels that matter most: one token from every level of memory, a few tokens and many from the cache.
DEFAULT = r"linear/[^/]*/(ternary[23]/a8|int8/a8_block)/.*|attention/.*|rows/.*"


def run(o):
    """name -> {counter: rates of all repetitions}, and google benchmark's context."""
    isa = "(" + "|".join(o.isa) + ")" if o.isa else "[^/]*"
    threads = "|".join(map(str, o.threads))
    wanted = (rf"(read/.*|peak/({isa}|avx512vnni)|(?=(linear|attention|rows)/{isa}/)({o.filter}))"
              rf"/real_time/threads:({threads})")
    # google benchmark may use POSIX expressions, which have no lookahead, so the names are matched here.
    listed = subprocess.run([o.bench, "--benchmark_list_tests"], capture_output=True, text=True,
                            check=True).stdout.split()
    names = [n for n in listed if re.fullmatch(wanted, n)]
    if not any(n.startswith(("linear", "attention", "rows")) for n in names):
        sys.exit("no kernel fits the filter")
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([
            o.bench, "--benchmark_filter=^(" + "|".join(names) + ")$",
            f"--benchmark_repetitions={o.repetitions}", f"--benchmark_min_time={o.min_time}",
            "--benchmark_enable_random_interleaving=true", "--benchmark_out_format=json",
            f"--benchmark_out={out.name}"], stdout=subprocess.DEVNULL, check=True)
        report = json.load(out)
    rates = {n: {} for n in names}
    for b in report["benchmarks"]:
        if b["run_type"] != "iteration":
            continue
        if b.get("error_occurred"):
            sys.exit(f"{b['name']}: {b['error_message']}")
        own = rates[b["run_name"]]
        for unit in ("bytes/s", "weights/s", "MAC/s", "values/s"):
            if unit in b:
                own.setdefault(unit, []).append(b[unit])
    return rates, report["context"]


class Table:
    """Medians of one run, by the name without the number of threads."""

    def __init__(self, rates, o):
        self.rates, self.threads = rates, o.threads
        self.names = list(dict.fromkeys(n.split("/real_time/")[0] for n in rates))

    def repetitions(self, name, threads, unit):
        return self.rates.get(f"{name}/real_time/threads:{threads}", {}).get(unit, [])

    def rate(self, name, threads, unit):
        found = self.repetitions(name, threads, unit)
        return statistics.median(found) if found else None

    def giga(self, name, threads, unit):
        rate = self.rate(name, threads, unit)
        return "" if rate is None else f"{rate / 1e9:.0f}" if rate >= 1e11 else f"{rate / 1e9:.3g}"

    def share(self, name, bounds, threads, unit):
        """The rate as a share of the largest of the bounds."""
        rate = self.rate(name, threads, unit)
        most = max((self.rate(b, threads, unit) or 0 for b in bounds), default=0)
        return f"{100 * rate / most:.0f} %" if rate and most else ""

    def spread(self, name, threads, unit):
        found = self.repetitions(name, threads, unit)
        if len(found) < 2:
            return ""
        low, middle, high = statistics.quantiles(found, n=4)
        return f"{100 * (high - low) / middle:.0f} %"

    def show(self, title, names, columns):
        """columns: heading -> function of (name, threads); each column appears once per number of threads."""
        if not names:
            return
        heads = [f"{head}, {t} thread{'s' if t > 1 else ''}" for t in self.threads
                 for head in columns]
        print(f"\n| {title} | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
        for name in names:
            cells = [what(name, t) for t in self.threads for what in columns.values()]
            print(f"| {name} | {' | '.join(cells)} |")


def print_tables(rates, o):
    t = Table(rates, o)
    isa = lambda name: name.split("/")[1]
    level = lambda name: name.split("/")[-1]
    kind = lambda *kinds: [n for n in t.names if n.split("/")[0] in kinds]
    giga = lambda unit: lambda name, n: t.giga(name, n, unit)
    spread = lambda unit: lambda name, n: t.spread(name, n, unit)
    t.show("this machine", kind("read"), {"GB/s": giga("bytes/s"), "spread": spread("bytes/s")})
    t.show("this machine", kind("peak"), {"GMAC/s": giga("MAC/s"), "spread": spread("MAC/s")})
    reading = {at: [n for n in kind("read") if level(n) == at] for at in ("cache", "l3", "memory")}
    one = [n for n in kind("linear", "attention") if "/n:" not in n or "/n:1/" in n]
    t.show("one token", one, {
        "G weights/s": giga("weights/s"), "GB/s": giga("bytes/s"),
        "of reading": lambda name, n: t.share(name, reading[level(name)], n, "bytes/s"),
        "spread": spread("bytes/s")})
    many = [n for n in kind("linear") if n not in one]
    beyond = {"of VNNI": lambda name, n: t.share(name, ["peak/avx512vnni"], n, "MAC/s")}
    t.show("many tokens", many, {
        "GMAC/s": giga("MAC/s"),
        "of peak": lambda name, n: t.share(name, [f"peak/{isa(name)}"], n, "MAC/s"),
        **(beyond if "peak/amx" in t.names else {}), "spread": spread("MAC/s")})
    t.show("many queries", [n for n in kind("attention") if n not in one],
           {"GMAC/s": giga("MAC/s"), "spread": spread("MAC/s")})
    t.show("activations", kind("rows"), {"G values/s": giga("values/s"),
                                         "spread": spread("values/s")})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = lambda s: s.split(",")
    parser.add_argument("--bench", default=os.path.join(ROOT, "build/release/bin/kernels_bench"))
    parser.add_argument("--isa", type=names, help="instruction sets (default: all)")
    parser.add_argument("--filter", default=DEFAULT,
                        help="kernels, from the start of the name (default: %(default)s)")
    parser.add_argument("--threads", type=lambda s: [int(n) for n in s.split(",")], default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--min-time", type=float, default=0.05, help="seconds of a repetition")
    parser.add_argument("--json", help="keeps every repetition's rates in this file")
    o = parser.parse_args()
    rates, context = run(o)
    print(f"{context['date']}, {context['num_cpus']} CPUs, load {context['load_avg']}; median of "
          f"{o.repetitions}; spread: from the lower to the upper quartile")
    print_tables(rates, o)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump({"context": context, "rates": rates}, f, indent=1)


if __name__ == "__main__":
    main()
