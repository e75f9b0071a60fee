# SPDX-License-Identifier: MIT
"""The papers' tables in miniature: every row is trained on the same text, exported, run and compared.

    python tables.py [--quick | --smoke | --budget | --print] [--rows PATTERN ...] [--hours H] [--jobs J] [--out FOLDER] [--moe PROGRAM]

The runs are those of claims.planned(), in that order. A finished run is not made again, so an interrupted plan
continues where it stopped: finished runs are small JSON files in --out. No run is started after the time limit. At the
end all finished runs are written to results.jsonl, and RESULTS.md from it; --print does that alone. --quick takes 15 minutes on two
free cores and writes its own files to --out. --smoke makes two steps of every row, writes nothing and fails if the
runtime and PyTorch disagree. --budget makes a few steps of every row and prints the CPU time that the plan takes.
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

import figures
import report
import results
import rows
import runner
import runtime
from claims import planned
from plan import Plan
from results import Result, Results

HERE = Path(__file__).resolve().parent
FULL = Plan()
QUICK = Plan(steps=200, batch=4, text=1_500_000, held_out=20_000)
SMOKE = Plan(steps=2, batch=2, text=150_000, held_out=4_000)
BUDGET = Plan(steps=15, text=150_000, held_out=4_000)  # a batch as in FULL; as many steps of fine-tuning to a step of training


def chosen(patterns: Sequence[str]) -> set[str]:
    """The planned rows that match patterns such as "translate-*"; each pattern must match at least one."""
    known = {name for name, _ in planned()}
    found = {p: fnmatch.filter(known, p) for p in patterns}
    if missing := [p for p, names in found.items() if not names]:
        raise rows.BadRow(f"no row {', '.join(missing)}; expected some of {', '.join(sorted(known))}")
    return {name for names in found.values() for name in names}


def work(
    queue: Sequence[tuple[str, int]], plan: Plan, folder: Path, moe: str, workers: int, hours: float
) -> list[str]:
    """Do the jobs, of which none is started after the time limit; returns the errors, one line each."""
    end, failed, waiting = time.monotonic() + hours * 3600, [], list(queue)
    os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # of the workers: large pages, where there are any
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


def budget(names: set[str], folder: Path) -> int:
    """Print the CPU seconds that the plan's runs of these rows take to train, from a few steps of each."""
    runner.prepare(folder, BUDGET)
    total = 0.0
    for name in sorted(names):
        one, n = runner.seconds_per_step(name, BUDGET, folder) * FULL.steps, sum(row == name for row, _ in planned())
        total += one * n
        print(f"{name:28} {one:6.0f} s a run, {n} seeds", flush=True)
    print(f"{total:.0f} CPU seconds, {total / 3600 / 2:.1f} hours of two cores")
    return 0


def smoke(moe: str, workers: int, names: set[str]) -> int:
    """Make two steps of each of these rows, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        runner.prepare(Path(folder), SMOKE)
        every = [(name, 1) for name in sorted(names)]
        failed = work(every, SMOKE, Path(folder), moe, workers, hours=math.inf)
    print(f"{len(every) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def finish(folder: Path, plan: Plan, file: Path, document: Path, note: str) -> None:
    """Add the finished runs to the file of results, and print the document from it."""
    known = results.read(plan, file)
    found = results.grouped([*(r for rs in known.values() for r in rs), *results.gathered(folder, plan)])
    results.write(found, file)
    print_document(plan, file, document, note)


def print_document(plan: Plan, file: Path, document: Path, note: str) -> None:
    """RESULTS.md and its figures, from the file of results."""
    found: Results = results.read(plan, file)
    if not found:
        raise RuntimeError(f"{file}: expected finished runs of the present rows, found none")
    drawn = figures.write(found, document.parent)
    document.write_text(report.document(report.plan_words(plan.steps, plan.batch), note, found, drawn), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="15 minutes on two free cores")
    size.add_argument("--smoke", action="store_true", help="two steps of every row, nothing is written")
    size.add_argument("--budget", action="store_true", help="print the CPU time of the plan, from a few steps of every row")
    size.add_argument("--print", action="store_true", help="train nothing: RESULTS.md from results.jsonl and --out")
    parser.add_argument("--rows", nargs="+", metavar="PATTERN", default=["*"], help="these rows alone")
    parser.add_argument("--hours", type=float, help="no run is started later (default 10; --quick 0.25)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="rows trained at once")
    parser.add_argument("--out", type=Path, default=HERE / "out/tables")
    parser.add_argument("--note", default="", help="a sentence about the machine for RESULTS.md")
    parser.add_argument("--moe", help="the program (default: that of build/release, else the one in PATH)")
    args = parser.parse_args()
    if args.jobs < 1 or not (args.hours is None or args.hours >= 0):
        parser.error("--jobs: expected 1 or more; --hours: 0 or more")
    return args


def _train(args: argparse.Namespace, names: set[str], plan: Plan, folder: Path) -> list[str]:
    """The planned runs of these rows that are not finished; returns the errors."""
    moe = runtime.find_moe(args.moe)
    runner.prepare(folder, plan)
    hours = args.hours if args.hours is not None else (0.25 if args.quick else 10)
    done = {(r["row"], r["seed"]) for r in results.gathered(folder, plan)}
    if not args.quick:
        done |= {(r["row"], r["seed"]) for rs in results.read(plan).values() for r in rs}
    queue = [job for job in planned() if job[0] in names and job not in done]
    return work(queue, plan, folder, moe, args.jobs, hours)


def main() -> int:
    args = _arguments()
    kind, plan = ("quick", QUICK) if args.quick else ("full", FULL)
    folder = args.out / kind
    try:
        names = chosen(args.rows)
        if args.smoke:
            return smoke(runtime.find_moe(args.moe), args.jobs, names)
        if args.budget:
            return budget(names, args.out / "budget")
        failed = [] if args.print else _train(args, names, plan, folder)
        where = folder if args.quick else HERE
        finish(folder, plan, where / results.FILE.name, where / "RESULTS.md", args.note)
    except (FileNotFoundError, rows.BadRow, RuntimeError) as e:  # for example rows that were trained on another text
        print(e, file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
