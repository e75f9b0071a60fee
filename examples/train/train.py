"""Train the story model that the repository ships (or another, given a config).

    python train.py --minutes 75 --out out [--resume]
The learning rate falls linearly to zero over the given wall time, so that a run always ends
annealed whatever the machine. Writes out/last.pt, out/log.txt and a checkpoint in out/export.
With --workers W on a CPU, W processes of one thread each share a batch and average their gradients:
where other programs use the machine too, that is far quicker than W threads, which wait for each
other within every operation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F

import export
from data import Stream, train_tokenizer
from model import Model

HERE = Path(__file__).resolve().parent


def groups(model: Model, decay: float) -> list[dict[str, Any]]:
    """Weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


def share(model: Model, elapsed: float) -> float:
    """Average all gradients over the workers, and the elapsed time, so that all stay in step."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads] + [torch.tensor([elapsed])])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([g.numel() for g in grads] + [1]), strict=False):
        grad.copy_(part.view_as(grad))
    return float(flat[-1])


class Run:
    """One training run and its files; `rank` of `args.workers` processes."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.out, self.rank = args, Path(args.out), rank
        self.out.mkdir(parents=True, exist_ok=True)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        config = json.loads(Path(args.config).read_text())
        torch.manual_seed(args.seed)
        self.tokenizer = train_tokenizer(8000, config["vocab_size"])
        if self.tokenizer.get_vocab_size() != config["vocab_size"]:
            raise SystemExit(f"the text gives {self.tokenizer.get_vocab_size()} tokens only")
        if rank == 0:
            self.tokenizer.save(str(self.out / "tokenizer.json"))
        self.model = Model(config).to(self.device)
        self.optimizer = torch.optim.AdamW(
            groups(self.model, 0.05), lr=args.lr, betas=(0.9, 0.95), fused=True
        )
        self.stream = Stream(self.tokenizer, config["context_length"], rank, args.workers)
        self.step, self.tokens, self.elapsed = 0, 0, 0.0
        if args.resume:
            self._load()

    def _load(self) -> None:
        state = torch.load(self.out / "last.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
        self.stream.next_story = state["next_story"] + self.rank

    def save(self) -> None:
        """The state to go on from, and the exported checkpoint; the first worker's business."""
        if self.rank > 0:
            return
        state = {
            "config": self.model.config,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "tokens": self.tokens,
            "elapsed": self.elapsed,
            "next_story": self.stream.next_story,
        }
        torch.save(state, self.out / "last.tmp")
        (self.out / "last.tmp").replace(self.out / "last.pt")
        export.write(self.model, self.out / "export", self.out / "tokenizer.json")

    def learning_rate(self) -> float:
        """Warm-up over 100 steps, then linear in wall time to zero."""
        left = max(0.0, 1.0 - self.elapsed / (self.args.minutes * 60))
        return self.args.lr * left * min(1.0, (self.step + 1) / 100)

    def one_step(self) -> tuple[float, float]:
        """One optimiser step; the mean loss per token and the balance term."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        x, y = (t.to(self.device) for t in self.stream.batch(self.args.batch // self.args.workers))
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        balance = self.model.balance_loss()
        (loss + 0.01 * balance).backward()
        if self.args.workers > 1:
            self.elapsed = share(self.model, self.elapsed)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += x.numel() * self.args.workers
        return loss.item(), balance.item()

    def train(self) -> None:
        """Steps until the time is over, a line in the log every `--log` steps."""
        path = self.out / "log.txt" if self.rank == 0 else Path(os.devnull)
        log = path.open("a" if self.args.resume else "w", buffering=1)
        parameters = sum(p.numel() for p in self.model.parameters())
        log.write(f"# parameters {parameters} on {self.device}, torch {torch.__version__}\n")
        a = self.args
        log.write(
            f"# batch {a.batch} of {self.model.config['context_length']} tokens, rate {a.lr}, "
            f"minutes {a.minutes}, workers {a.workers}, seed {a.seed}, from step {self.step}\n"
        )
        log.write("# step tokens seconds loss balance learning_rate\n")
        losses, saved, last = [], self.elapsed, time.monotonic()
        while self.elapsed < self.args.minutes * 60:
            losses.append(self.one_step())
            now = time.monotonic()
            self.elapsed, last = self.elapsed + now - last, now
            if self.step % self.args.log == 0:
                loss, balance = (sum(v) / len(losses) for v in zip(*losses, strict=True))
                log.write(
                    f"{self.step} {self.tokens} {self.elapsed:.0f} {loss:.4f} {balance:.3f} "
                    f"{self.learning_rate():.2e}\n"
                )
                losses = []
                if not math.isfinite(loss):
                    raise SystemExit("the loss is no longer finite")
            if self.elapsed - saved > self.args.save_minutes * 60:
                self.save()
                saved, last = self.elapsed, time.monotonic()
        self.save()
        log.write("# done\n")


def work(rank: int, args: argparse.Namespace) -> None:
    """One process of the run."""
    torch.set_num_threads(args.threads if args.workers == 1 else 1)
    if args.workers > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(args.port)}
        dist.init_process_group("gloo", rank=rank, world_size=args.workers)
    Run(args, rank).train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=str(HERE / "stories.config.json"))
    parser.add_argument("--out", default=str(HERE / "out"))
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--save-minutes", type=float, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    if args.workers > 1:
        mp.spawn(work, args=(args,), nprocs=args.workers)
    else:
        work(0, args)


if __name__ == "__main__":
    main()
