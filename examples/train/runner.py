# SPDX-License-Identifier: MIT
"""All steps of one row: train, export, `moe convert`, run, compare with PyTorch.

    python runner.py ROW [--seed S] [--steps N] [--out FOLDER] [--moe PROGRAM]

The configuration of a row determines its task: decoders are language models (language.py), encoders fill
masks and are fine-tuned (encoders.py), encoder-decoders translate (translation.py).
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import encoders
import export
import language
import parity
import results
import rows
import runtime
import steps
import texts
import translation
from plan import Disagreement, Plan

HERE = Path(__file__).resolve().parent
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc and others (malloc.h)
TASKS = {"language": language, "encoder": encoders, "translation": translation}


def prepare(folder: Path, plan: Plan) -> None:
    """Writes the texts and tokenizers of a plan once, in a folder per task; the file `prepared` is written last."""
    folder.mkdir(parents=True, exist_ok=True)
    said, wanted = folder / "prepared", f"{plan.text} {plan.held_out} {texts.fingerprint()}\n"
    if said.exists() and said.read_text(encoding="utf-8") == wanted:
        return
    if said.exists() and any(folder.glob("*.json")):
        raise RuntimeError(f"{folder} holds rows that were trained on another text; take another --out")
    for name, task in TASKS.items():
        (folder / name).mkdir(exist_ok=True)
        task.prepare(folder / name, plan)
    said.write_text(wanted, encoding="utf-8")


def result_path(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}.{seed}.json"


def finished(folder: Path, name: str, seed: int, plan: Plan) -> dict[str, Any] | None:
    """The result of an earlier run of this row and plan, if there is one."""
    path = result_path(folder, name, seed)
    if not path.exists():
        return None
    result = json.loads(path.read_text(encoding="utf-8"))
    return result if result["key"] == results.key(rows.read(name), plan) else None


def prepare_process() -> None:
    """Settings of a process that trains: one thread; numbers below 1e-38, at which the moments of an expert that gets no
    tokens arrive, count as 0, because they slow the CPU down; and memory that is freed is kept, where the C library can,
    because a step needs the same amount again."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for setting in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(setting, 2**30)


def _export(models: dict[str, torch.nn.Module], checkpoint: Path, tokenizer: Path, moe: str) -> None:
    """Writes each model of a row into a folder and converts it to model.moe there."""
    for name, model in models.items():
        export.write(model, checkpoint / name, tokenizer)
        runtime.ask(moe, "convert", checkpoint / name, checkpoint / name / "model.moe")


def run(name: str, seed: int, plan: Plan, folder: Path, moe: str) -> dict[str, Any]:
    """Train and measure a row, unless it is finished; return its figures."""
    if (known := finished(folder, name, seed, plan)) is not None:
        return known
    prepare_process()
    torch.manual_seed(seed)
    row, start, checkpoint = rows.read(name), time.monotonic(), folder / f"{name}.{seed}"
    task, own = TASKS[row.task], folder / row.task
    models, curve = task.train(row, seed, plan, own)
    seconds = time.monotonic() - start
    _export(models, checkpoint, own / "tokenizer.json", moe)
    result = {"row": name, "seed": seed, "key": results.key(row, plan), "steps": plan.steps,
              "seconds": round(seconds, 1), "device": steps.device(), "curve": [round(v, 4) for v in curve.losses],
              "experts_curve": [round(v, 3) for v in curve.experts],
              "fluctuation": [round(v, 4) for v in curve.fluctuation]}
    result |= task.figures(row, checkpoint, own, moe)
    cost = parity.cost(row, result["experts"])
    result |= {"params": cost.params, "ffn_flops": cost.ffn_flops, "flops": cost.flops}
    temporary = result_path(folder, name, seed).with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(result_path(folder, name, seed))
    return result


def seconds_per_step(name: str, plan: Plan, folder: Path) -> float:
    """The CPU seconds of training a row, fine-tuning included, for each of its steps; one thread. A run of two steps before
    it takes what only a process's first steps do; what each run does once is counted, a tenth too much or less."""
    prepare_process()
    row = rows.read(name)
    for n in (2, plan.steps):
        torch.manual_seed(1)
        begin = time.process_time()
        TASKS[row.task].train(row, 1, dataclasses.replace(plan, steps=n), folder / row.task)
    return (time.process_time() - begin) / plan.steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--out", type=Path, default=HERE / "out/row")
    parser.add_argument("--moe", help="the program (default: that of build/release, else the one in PATH)")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps: expected 1 or more, found {args.steps}")
    plan = Plan(steps=args.steps)
    try:
        moe = runtime.find_moe(args.moe)
        prepare(args.out, plan)
        result = run(args.row, args.seed, plan, args.out, moe)
    except (rows.BadRow, Disagreement, FileNotFoundError, RuntimeError, FloatingPointError) as e:
        print(e, file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
