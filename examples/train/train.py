"""Train the story model that the repository ships (or another, given a config).

    python train.py --out out [--resume]
The learning rate rises over 100 steps and then falls linearly to zero over the given number of
tokens. Writes out/last.pt, out/log.txt and a checkpoint in out/export.
With --workers W on a CPU, W processes of one thread each share a batch and average their gradients.
OMP_WAIT_POLICY=PASSIVE in the environment makes threads sleep instead of spin, which matters where
other programs use the machine too.
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


def calm_outputs(model: Model) -> None:
    """Divide what each block adds by sqrt(2 layers) at the start, as GPT-2 does, so that the
    embedding is still heard in the last layer."""
    factor = (2 * len(model.layers)) ** -0.5
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith((".attention.o.weight", ".moe.merge.weight", ".ffn.down.weight")):
                p.mul_(factor)


def share(model: Model) -> None:
    """Average all gradients over the workers."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))


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
        calm_outputs(self.model)
        self.model.settle_embeddings()
        self.optimizer = torch.optim.AdamW(
            groups(self.model, args.weight_decay), lr=args.lr, betas=tuple(args.betas), fused=True
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
        """Warm-up over 100 steps, then linear in tokens to zero."""
        left = max(0.0, 1.0 - self.tokens / self.args.tokens)
        return self.args.lr * left * min(1.0, (self.step + 1) / 100)

    def one_step(self) -> tuple[float, float]:
        """One optimiser step; the mean loss per token and the balance term."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        x, y = (t.to(self.device) for t in self.stream.batch(self.args.batch // self.args.workers))
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        balance = self.model.balance_loss()
        (loss + self.args.alpha * balance).backward()
        if self.args.workers > 1:
            share(self.model)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.model.settle_embeddings()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += x.numel() * self.args.workers
        return loss.item(), balance.item()

    def train(self) -> None:
        """Steps until the tokens are spent, a line in the log every `--log` steps."""
        path = self.out / "log.txt" if self.rank == 0 else Path(os.devnull)
        log = path.open("a" if self.args.resume else "w", buffering=1)
        parameters = sum(p.numel() for p in self.model.parameters())
        log.write(f"# parameters {parameters} on {self.device}, torch {torch.__version__}\n")
        a = self.args
        log.write(
            f"# batch {a.batch} of {self.model.config['context_length']} tokens, rate {a.lr}, "
            f"{a.tokens} tokens, workers {a.workers}, seed {a.seed}, from step {self.step}\n"
        )
        log.write("# step tokens seconds loss balance learning_rate\n")
        losses, saved, last = [], self.elapsed, time.monotonic()
        while self.tokens < self.args.tokens:
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
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--save-minutes", type=float, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95), help="of AdamW")
    parser.add_argument("--weight-decay", type=float, default=0.05, help="on matrices")
    parser.add_argument("--alpha", type=float, default=0.01, help="weight of the balance loss")
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
