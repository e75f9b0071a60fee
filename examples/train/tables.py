# SPDX-License-Identifier: MIT
"""The papers' tables in miniature: every row is trained on the same text, exported, run and compared.

    python tables.py [--quick | --smoke] [--rows PATTERN ... --results FILE] [--hours H] [--jobs J] [--out FOLDER] [--moe PROGRAM]

A finished row is not trained again, so an interrupted run continues where it stopped. First the rows of
claims.CORE are trained with two seeds, then the others with one, then all with the remaining seeds; no
row is started after the time limit. Writes RESULTS.md, or FILE: --rows needs its own file, in which all
other rows are "not trained". --quick takes 15 minutes on two free cores. --smoke makes two steps
of every row, writes nothing and fails if the runtime and PyTorch disagree.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import language
import report
import rows
import runner
import runtime
from claims import CORE, SWEPT
from plan import Plan
from report import Result, Results

HERE = Path(__file__).resolve().parent
FULL = Plan()
QUICK = Plan(steps=200, batch=4, text=1_500_000, held_out=20_000)
SMOKE = Plan(steps=2, batch=2, text=150_000, held_out=4_000)


def jobs(seeds: int) -> list[tuple[str, int]]:
    """Rows and seeds, in order of priority."""
    rest = [name for name in rows.names() if name not in CORE]
    out = [(name, seed) for seed in range(1, min(2, seeds) + 1) for name in CORE]
    out += [(name, 1) for name in rest]
    out += [(name, seed) for seed in range(3, seeds + 1) for name in CORE]
    return out + [(name, seed) for seed in range(2, seeds + 1) for name in rest]


def chosen(patterns: Sequence[str]) -> set[str]:
    """The rows that match patterns such as "translate-*"; each pattern must match at least one."""
    found = {p: fnmatch.filter(rows.names(), p) for p in patterns}
    if missing := [p for p, names in found.items() if not names]:
        raise rows.BadRow(f"no row {', '.join(missing)}; expected some of {', '.join(rows.names())}")
    return {name for names in found.values() for name in names}


def work(
    queue: Sequence[tuple[str, int]], plan: Plan, folder: Path, moe: str, workers: int, hours: float
) -> list[str]:
    """Do the jobs, of which none is started after the time limit; returns the errors, one line each."""
    end, failed, waiting = time.monotonic() + hours * 3600, [], list(queue)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        running: dict[concurrent.futures.Future[Result], tuple[str, int]] = {}
        while running or (waiting and time.monotonic() < end):
            while waiting and len(running) < workers and time.monotonic() < end:
                job = waiting.pop(0)
                running[pool.submit(runner.run, *job, plan, folder, moe)] = job
            done = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done
            for future in done:
                failed += _report(running.pop(future), future)
            if any(isinstance(f.exception(), BrokenProcessPool) for f in done):
                return failed + [f"{name}, seed {seed}: not begun" for name, seed in waiting]
    return failed


def _report(job: tuple[str, int], future: concurrent.futures.Future[Result]) -> list[str]:
    """Print a line about a finished job; returns its error, if there was one."""
    name, seed = job
    if error := future.exception():
        print(f"{name}, seed {seed}: {error}", file=sys.stderr, flush=True)
        return [f"{name}, seed {seed}: {error}"]
    r = future.result()
    print(f"{name}, seed {seed}: {r['moe']:.4f}, {r['difference']:.1e} from PyTorch, {r['seconds']:.0f} s", flush=True)
    return []


def collect(folder: Path, plan: Plan, seeds: int) -> Results:
    """The results of all finished rows."""
    found = {
        name: [runner.finished(folder, name, seed, plan) for seed in range(1, seeds + 1)]
        for name in rows.names()
    }
    return {name: [r for r in results if r] for name, results in found.items() if any(results)}


def smoke(moe: str, workers: int, names: set[str]) -> int:
    """Make two steps of each of these rows, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        runner.prepare(Path(folder), SMOKE)
        every = [(name, 1) for name in sorted(names)]
        failed = work(every, SMOKE, Path(folder), moe, workers, hours=math.inf)
    print(f"{len(every) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="15 minutes on two free cores")
    size.add_argument("--smoke", action="store_true", help="two steps of every row, nothing is written")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", help="train these rows alone; needs --results or --smoke")
    parser.add_argument("--hours", type=float, help="no row is started later (default 10; --quick 0.25)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="rows trained at once")
    parser.add_argument("--out", type=Path, default=HERE / "out/tables")
    parser.add_argument("--results", type=Path, help="file for the tables (default: RESULTS.md beside this file)")
    parser.add_argument("--note", default="", help="a sentence about the machine for RESULTS.md")
    parser.add_argument("--moe", help="the program (default: that of build/release, else the one in PATH)")
    args = parser.parse_args()
    if args.jobs < 1 or args.seeds < 1 or not (args.hours is None or args.hours >= 0):
        parser.error("--jobs and --seeds: expected 1 or more; --hours: 0 or more")
    if args.rows and not (args.smoke or args.results):
        parser.error("--rows: expected --results FILE too: RESULTS.md is of all rows, the others would be \"not trained\"")
    try:
        names, moe = chosen(args.rows or ["*"]), runtime.find_moe(args.moe)
    except (FileNotFoundError, rows.BadRow) as e:
        print(e, file=sys.stderr)
        return 1
    if args.smoke:
        return smoke(moe, args.jobs, names)
    kind, plan = ("quick", QUICK) if args.quick else ("full", FULL)
    folder = args.out / kind
    try:
        runner.prepare(folder, plan)
    except RuntimeError as e:  # the folder's rows were trained on another text
        print(e, file=sys.stderr)
        return 1
    hours = args.hours if args.hours is not None else (0.25 if args.quick else 10)
    wanted = [job for job in jobs(args.seeds) if job[0] in names]
    queue = [job for job in wanted if runner.finished(folder, *job, plan) is None]
    failed = work(queue, plan, folder, moe, args.jobs, hours)
    results = collect(folder, plan, args.seeds)
    sweeps = {}
    for name in (n for n in SWEPT if n in results):
        try:
            sweeps[name] = language.sweep(name, results[name][0]["seed"], folder, moe)
        except RuntimeError as e:  # the tables are written even so
            failed.append(f"{name}: {e}")
            print(failed[-1], file=sys.stderr)
    if results:
        text = report.document(kind, args.note, plan.steps * plan.batch, results, sweeps)
        (args.results or HERE / "RESULTS.md").write_text(text, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
