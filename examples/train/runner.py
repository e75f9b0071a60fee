"""One row from nothing to its figures: train, export, `moe convert`, `moe perplexity`, compare.

    python runner.py ROW [--seed S] [--steps N] [--out FOLDER] [--moe PROGRAM]

The runtime has to find PyTorch's held-out perplexity within 0.05 %, and within 0.1 % where activations
are int8. The text is that of texts/; every row of a seed sees the same windows in the same order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import export
import parity
import rows
import texts
from data import FileStream, load_tokenizer, train_tokenizer
from evaluate import negative_log_likelihood
from model import Model
from steps import Steps

HERE = Path(__file__).resolve().parent
TOLERANCE = {"f32": 0.0005, "a8": 0.001}


class Disagreement(RuntimeError):
    """The runtime does not compute what PyTorch computes."""


@dataclass(frozen=True)
class Plan:
    """What all rows have in common."""

    steps: int = 3000
    batch: int = 8  # windows
    text: int = 4_000_000  # characters to learn from
    held_out: int = 80_000
    lr: float = 3e-3


def find_moe(given: str | None = None) -> str:
    """The program `moe`: as given, in the repository's build, or on the path."""
    built = HERE.parents[1] / "build/release/bin/moe"
    found = given or (str(built) if built.exists() else shutil.which("moe"))
    if not found or not shutil.which(found):
        raise FileNotFoundError(f"{found or 'moe'} is not there; build it, or name it with --moe")
    return found


def prepare(folder: Path, plan: Plan) -> None:
    """The texts and the tokenizer of a plan, written once; ids.pt comes last and whole."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = f"{plan.text} {plan.held_out}\n"
    if (folder / "ids.pt").exists() and (folder / "sizes").read_text(encoding="utf-8") == sizes:
        return
    if any(folder.glob("*.json")) and (folder / "ids.pt").exists():
        raise RuntimeError(f"{folder} holds rows that were trained on another text; take another --out")
    text = texts.corpus(texts.TRAIN_SEED, plan.text)
    held_out = texts.corpus(texts.HELD_OUT_SEED, plan.held_out)
    (folder / "heldout.txt").write_text(held_out, encoding="utf-8", newline="\n")
    tokenizer = train_tokenizer([text[:400_000]], rows.read("dense").config["vocab_size"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "sizes").write_text(sizes, encoding="utf-8")
    torch.save(torch.tensor(tokenizer.encode(text).ids, dtype=torch.int32), folder / "ids.tmp")
    (folder / "ids.tmp").replace(folder / "ids.pt")


def train(row: rows.Row, seed: int, plan: Plan, folder: Path) -> tuple[Model, float]:
    """The trained model, and the mean loss of the last tenth of its steps."""
    torch.manual_seed(seed)
    model = Model(row.config)
    warmup = max(1, min(100, plan.steps // 10))
    steps = Steps(model, row.settings(plan.steps, lr=plan.lr, warmup=warmup))
    ids = torch.load(folder / "ids.pt", weights_only=True).tolist()
    stream = FileStream(ids, row.config["bos_token_id"], row.config["context_length"], seed)
    losses = []
    for step in range(plan.steps):
        losses.append(steps.one(*stream.batch(plan.batch), step / plan.steps)[0])
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"{row.name}, seed {seed}: the loss of step {step} is not finite")
    last = losses[-max(1, plan.steps // 10) :]
    return model, sum(last) / len(last)


def pytorch_perplexity(checkpoint: Path, text: Path) -> float:
    """Of the exported checkpoint, with K and V rounded as the runtime's cache keeps them."""
    model = export.read(checkpoint)
    model.set_kv_dtype(torch.float16)
    ids = load_tokenizer(checkpoint).encode(text.read_text(encoding="utf-8")).ids
    total, scored = negative_log_likelihood(model, ids)
    return math.exp(total / scored)


def _moe(program: str, *args: str | Path) -> Any:
    """A command of `moe` with --json."""
    run = subprocess.run([program, *map(str, args), "--json"], capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"moe {args[0]}: {run.stderr.strip() or f'exit status {run.returncode}'}")
    return json.loads(run.stdout)


def compare(row: rows.Row, pytorch: float, runtime: float) -> float:
    """By which part the runtime's perplexity differs; too much is an error."""
    difference = abs(runtime / pytorch - 1)
    allowed = TOLERANCE["a8" if row.has_int8_activations() else "f32"]
    if not difference <= allowed:
        raise Disagreement(
            f"{row.name}: PyTorch finds a perplexity of {pytorch:.6f}, moe {runtime:.6f}: "
            f"they differ by {difference:.4%}, expected at most {allowed:.2%}"
        )
    return difference


def _key(row: rows.Row, plan: Plan) -> str:
    """Changes whenever the row or the plan does."""
    text = json.dumps([row.config, row.train, asdict(plan)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def result_path(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}.{seed}.json"


def finished(folder: Path, name: str, seed: int, plan: Plan) -> dict[str, Any] | None:
    """The result of an earlier run, if it was of this row and plan."""
    path = result_path(folder, name, seed)
    if not path.exists():
        return None
    result = json.loads(path.read_text(encoding="utf-8"))
    return result if result["key"] == _key(rows.read(name), plan) else None


def _figures(row: rows.Row, checkpoint: Path, folder: Path, moe: str) -> dict[str, Any]:
    """The figures of an exported row."""
    file, text = checkpoint / "model.moe", folder / "heldout.txt"
    _moe(moe, "convert", checkpoint, file)
    found = _moe(moe, "perplexity", file, "-f", text, "--stats", "--threads", "1", "--device", "cpu")
    experts = [layer["mean_experts_per_token"] for layer in found.get("routing", [])]
    pytorch = pytorch_perplexity(checkpoint, text)
    cost = parity.cost(row, experts)
    return {
        "pytorch": pytorch,
        "moe": found["perplexity"],
        "difference": compare(row, pytorch, found["perplexity"]),
        "experts": experts,
        "params": cost.params,
        "ffn_flops": cost.ffn_flops,
        "flops": cost.flops,
    }


def sweep(name: str, seed: int, folder: Path, moe: str) -> list[dict[str, Any]]:
    """A finished row under other thresholds: its perplexity, experts and operations under each."""
    return _moe(moe, "perplexity", folder / f"{name}.{seed}/model.moe", "-f", folder / "heldout.txt", "--sweep",
                "threshold=0.1:1:0.1", "--threads", "1", "--device", "cpu")


def run(name: str, seed: int, plan: Plan, folder: Path, moe: str) -> dict[str, Any]:
    """Train and measure a row unless that was done; its figures."""
    if (known := finished(folder, name, seed, plan)) is not None:
        return known
    torch.set_num_threads(1)
    row, start, checkpoint = rows.read(name), time.monotonic(), folder / f"{name}.{seed}"
    model, loss = train(row, seed, plan, folder)
    seconds = time.monotonic() - start
    export.write(model, checkpoint, folder / "tokenizer.json")
    result = {"row": name, "seed": seed, "key": _key(row, plan), "seconds": seconds, "train_loss": loss}
    result |= _figures(row, checkpoint, folder, moe)
    temporary = result_path(folder, name, seed).with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(result_path(folder, name, seed))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--out", type=Path, default=HERE / "out/row")
    parser.add_argument("--moe", help="the program; by default that of build/release, else of the path")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps: expected 1 or more, found {args.steps}")
    plan = Plan(steps=args.steps)
    try:
        moe = find_moe(args.moe)
        prepare(args.out, plan)
        result = run(args.row, args.seed, plan, args.out, moe)
    except (rows.BadRow, Disagreement, FileNotFoundError, RuntimeError, FloatingPointError) as e:
        print(e, file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
