# SPDX-License-Identifier: MIT
"""Train the story model that the repository ships (or another, given a config).

    python train.py --out out [--resume] [--recipe NAME]
The learning rate rises over --warmup steps and then falls over the given number of tokens. A recipe
has the settings of a paper (recipes.py); other options take precedence. Writes out/last.pt, out/log.txt
and a checkpoint in out/export; with --keep-checkpoints N, also N intermediate ones in out/steps.
With --workers W on a CPU, W processes of one thread each divide a batch and average their gradients.
OMP_WAIT_POLICY=PASSIVE in the environment makes threads sleep instead of spin, which matters if other
programs use the machine too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import export
import recipes
from config import Config, complete, need_decoder
from data import FileStream, Stream, story_texts, train_tokenizer
from model import Model
from steps import Steps, with_capacity

HERE = Path(__file__).resolve().parent


def share(model: Model) -> None:
    """Average all gradients over the workers."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def is_due(n: int, before: float, after: float) -> bool:
    """Whether one of n checkpoints, evenly spaced over a run, is due between two shares of it."""
    return int(n * after) > int(n * before)


class Run:
    """One training run and its files, in process `rank` of `args.workers`."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.out, self.rank = args, Path(args.out), rank
        self.out.mkdir(parents=True, exist_ok=True)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        settings = settings_of(args)
        config = config_of(args)
        torch.manual_seed(args.seed)
        text = args.text.read_text(encoding="utf-8") if args.text else None
        learnt = story_texts(8000) if text is None else [text]
        self.tokenizer = train_tokenizer(learnt, config["vocab_size"])
        if self.tokenizer.get_vocab_size() != config["vocab_size"]:
            raise SystemExit(f"the text gives {self.tokenizer.get_vocab_size()} tokens only")
        if rank == 0:
            self.tokenizer.save(str(self.out / "tokenizer.json"))
        self.model = Model(config).to(self.device)
        self.steps = Steps(self.model, settings)
        self.stream = self._stream(text)
        self.tokens, self.elapsed = 0, 0.0
        if args.resume:
            self._load()

    def _stream(self, text: str | None) -> FileStream | Stream:
        """This worker's windows, of `text` or of the stories."""
        c, every = self.model.config, self.args.workers
        if text is None:
            return Stream(self.tokenizer, c["context_length"], self.rank, every)
        ids = self.tokenizer.encode(text).ids
        bos = c["bos_token_id"] if c["add_bos"] else None
        return FileStream(ids, bos, c["context_length"], self.args.seed, self.rank, every)

    def _load(self) -> None:
        state = torch.load(self.out / "last.pt", map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.steps.optimizer.load_state_dict(state["optimizer"])
        self.steps.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
        self.stream.next = state["next"] + self.rank

    def save(self) -> None:
        """Writes the state to resume from and the exported checkpoint; only the first worker does."""
        if self.rank > 0:
            return
        state = {
            "config": self.model.config,
            "model": self.model.state_dict(),
            "optimizer": self.steps.optimizer.state_dict(),
            "step": self.steps.step,
            "tokens": self.tokens,
            "elapsed": self.elapsed,
            "next": self.stream.next,
        }
        torch.save(state, self.out / "last.tmp")
        (self.out / "last.tmp").replace(self.out / "last.pt")
        export.write(self.model, self.out / "export", self.out / "tokenizer.json")

    def done(self) -> float:
        """The completed share of the run."""
        return self.tokens / self.args.tokens

    def one_step(self) -> tuple[float, float]:
        """One optimiser step; the mean loss per token and the balance term."""
        x, y = (t.to(self.device) for t in self.stream.batch(self.args.batch // self.args.workers))
        found = self.steps.one(x, y, self.done(), share if self.args.workers > 1 else None)
        self.tokens += x.numel() * self.args.workers
        return found

    def train(self) -> None:
        """Makes steps until all tokens are used, with a line in the log every `--log` steps."""
        path = self.out / "log.txt" if self.rank == 0 else Path(os.devnull)
        log = path.open("a" if self.args.resume else "w", buffering=1)
        parameters = sum(p.numel() for p in self.model.parameters())
        log.write(f"# parameters {parameters} on {self.device}, torch {torch.__version__}\n")
        a = self.args
        log.write(
            f"# batch {a.batch} of {self.model.config['context_length']} tokens, rate {self.steps.settings.lr}, "
            f"{a.tokens} tokens, workers {a.workers}, seed {a.seed}, from step {self.steps.step}\n"
        )
        log.write("# step tokens seconds loss balance learning_rate\n")
        losses, saved, last = [], self.elapsed, time.monotonic()
        while self.tokens < self.args.tokens:
            before = self.done()
            losses.append(self.one_step())
            self.keep(before)
            now = time.monotonic()
            self.elapsed, last = self.elapsed + now - last, now
            if self.steps.step % self.args.log == 0:
                loss, balance = (sum(v) / len(losses) for v in zip(*losses, strict=True))
                log.write(
                    f"{self.steps.step} {self.tokens} {self.elapsed:.0f} {loss:.4f} {balance:.3f} "
                    f"{self.steps.rate(self.done()):.2e}\n"
                )
                losses = []
                if not math.isfinite(loss):
                    raise SystemExit("the loss is no longer finite")
            if self.elapsed - saved > self.args.save_minutes * 60:
                self.save()
                saved, last = self.elapsed, time.monotonic()
        self.save()
        log.write("# done\n")

    def keep(self, before: float) -> None:
        """Writes one of `--keep-checkpoints`, if it is due; `before`: done() before the last step."""
        if self.rank == 0 and is_due(self.args.keep_checkpoints, before, self.done()):
            export.write(self.model, self.out / f"steps/{self.steps.step}", self.out / "tokenizer.json")


def work(rank: int, args: argparse.Namespace) -> None:
    """One process of the run."""
    torch.set_num_threads(args.threads if args.workers == 1 else 1)
    if args.workers > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(args.port)}
        dist.init_process_group("gloo", rank=rank, world_size=args.workers)
    Run(args, rank).train()


def add_settings(parser: argparse.ArgumentParser) -> None:
    """An option for each setting; its default is the recipe's, or that of recipes.py."""
    own = argparse.SUPPRESS
    parser.add_argument("--recipe", choices=sorted(recipes.RECIPES), help="the settings of a paper")
    parser.add_argument("--lr", type=float, default=own, help="highest learning rate")
    parser.add_argument("--betas", type=float, nargs=2, default=own, help="of AdamW")
    parser.add_argument("--eps", type=float, default=own, help="of AdamW")
    parser.add_argument("--weight-decay", type=float, default=own, help="on matrices")
    parser.add_argument("--clip", type=float, default=own, help="largest norm of the gradient")
    parser.add_argument("--schedule", choices=recipes.SCHEDULES, default=own)
    parser.add_argument("--warmup", type=int, default=own, help="steps until the highest rate")
    parser.add_argument("--floor", type=float, default=own, help="final rate, as a share of the highest")
    parser.add_argument("--dropout", type=float, default=own, help="of what each block adds")
    parser.add_argument("--moe-dropout", type=float, default=own, help="of what MoE layers add (default: as --dropout)")
    parser.add_argument("--alpha", type=float, default=own, help="weight of the balance loss")
    parser.add_argument("--capacity-factor", type=float, default=own, help="of every MoE layer; 0: off")
    parser.add_argument("--freeze-routing", type=int, default=own, help="routers and experts are frozen from this step on")
    parser.add_argument("--even-start", action="store_true", default=own,
                        help="scale the output of every MoE layer to one size before the first step")
    parser.add_argument("--gates", choices=recipes.GATES, default=own, help="weights of softmax routers with k above 1")


def settings_of(args: argparse.Namespace) -> recipes.Settings:
    names = [f.name for f in dataclasses.fields(recipes.Settings)]
    own = {name: getattr(args, name) for name in names if hasattr(args, name)}
    if "betas" in own:
        own["betas"] = tuple(own["betas"])
    return recipes.settings(args.recipe, **own)


def config_of(args: argparse.Namespace) -> Config:
    """The configuration with what the settings change, checked whole: ValueError names the first fault."""
    settings = settings_of(args)
    try:
        config = complete(json.loads(Path(args.config).read_text(encoding="utf-8")))
    except ValueError as e:  # no JSON, or a fault
        raise ValueError(f"{args.config}: {e}") from None
    need_decoder(config)
    return complete(recipes.with_gates(with_capacity(config, settings.capacity_factor), settings.gates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=str(HERE / "stories.config.json"))
    parser.add_argument("--out", default=str(HERE / "out"))
    parser.add_argument("--tokens", type=int, default=4_000_000)
    parser.add_argument("--save-minutes", type=float, default=4)
    parser.add_argument("--keep-checkpoints", type=int, default=0, metavar="N",
                        help="also export N checkpoints, evenly spaced, the last one at the end")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--text", type=Path, help="train on this file instead of the stories")
    add_settings(parser)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    try:
        config_of(args)
    except (ValueError, OSError) as e:
        parser.error(str(e))
    if args.workers > 1:
        mp.spawn(work, args=(args,), nprocs=args.workers)
    else:
        work(0, args)


if __name__ == "__main__":
    main()
