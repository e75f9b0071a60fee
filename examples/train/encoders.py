# SPDX-License-Identifier: MIT
"""Rows that are encoders: they are pre-trained to fill masks in the text of texts/ and then fine-tuned for
three tasks (texts/tasks.py), each from the pre-trained weights.

The outputs of every head, the vectors of `moe embed` and the masks filled by `moe fill` must agree with PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

import export
import rows
import runtime
import texts
from data import BOS, EOS, MASK, PAD, FileStream, load_tokenizer, train_tokenizer
from model import Model
from plan import TIE, Plan, output_difference, perplexity_difference
from steps import Curve, fit, token_loss
from stories.engine import Rng
from texts import tasks

BASE = "encoder-dense"  # all encoder rows have its vocabulary and length
SHARE = 5  # fine-tuning takes 1/5 of a plan's steps, with a third of its rate
LEARNT, HELD_OUT = 1000, 200  # characters of a plan's text per example of a task, to learn and held out
MOST = 48  # largest number of windows whose masks are filled in the measurement
MASKED, RANDOM, KEPT = 120, 15, 15  # of 1000 tokens: masked, replaced by random ones, predicted unchanged (BERT)
Ids = list[int]
Example = tuple[str, Ids, Any]  # text, ids, target


def span_loss(z: Tensor, y: Tensor) -> Tensor:
    """z (B, T, 2): scores of each position as start and end; y (B, 2)."""
    return F.cross_entropy(z.transpose(1, 2).flatten(0, 1), y.flatten())


def best_span(z: Tensor) -> list[int]:
    """z (T, 2): the (start, end) of highest sum whose end is not before its start."""
    both = z[:, 0, None] + z[None, :, 1]
    backwards = torch.ones_like(both, dtype=torch.bool).tril(-1)
    return list(divmod(int(both.masked_fill(backwards, -math.inf).argmax()), len(z)))


@dataclass(frozen=True)
class Task:
    head: dict[str, Any]
    make: Callable[[int, int], tuple[str, Any]]  # (seed, index) -> text, and its label
    target: Callable[[Any, list[tuple[int, int]]], Any]  # (label, character range of each token) -> target
    right: Callable[[Tensor, Any], list[bool]]  # (outputs, target) -> whether each prediction is right
    loss: Callable[[Tensor, Tensor], Tensor] = token_loss


def _tag_target(found: list[tuple[tasks.Span, int]], tokens: list[tuple[int, int]]) -> Ids:
    """The tag of the word in which each token ends, -100 for tokens outside of words."""
    return [next((tag for (a, b), tag in found if a < end <= b and end > begin), -100) for begin, end in tokens]


def _span_target(span: tasks.Span, tokens: list[tuple[int, int]]) -> Ids:
    """The first and the last token that end inside the span."""
    inside = [i for i, (begin, end) in enumerate(tokens) if span[0] < end <= span[1] and end > begin]
    return [inside[0], inside[-1]]


def _right_tags(z: Tensor, target: Ids) -> list[bool]:
    return [int(best) == tag for best, tag in zip(z.argmax(-1), target, strict=True) if tag >= 0]


TASKS = {
    "classes": Task({"kind": "classes", "n_labels": len(tasks.FAULTS), "dense": True, "act": "tanh"}, tasks.classes,
                    lambda label, _: label, lambda z, label: [int(z[0].argmax()) == label]),
    "tags": Task({"kind": "tags", "n_labels": len(tasks.TAGS)}, tasks.tags, _tag_target, _right_tags),
    "spans": Task({"kind": "span", "n_labels": 2}, tasks.spans, _span_target,
                  lambda z, span: [best_span(z) == span], span_loss),
}


def prepare(folder: Path, plan: Plan) -> None:
    """Writes the tokenizer, the training text, held-out windows with masks, and examples of the tasks."""
    config = rows.read(BASE).config
    text, held_out = texts.corpus(texts.TRAIN_SEED, plan.text), texts.corpus(texts.HELD_OUT_SEED, plan.held_out)
    tokenizer = train_tokenizer([text[:400_000]], config["vocab_size"], (BOS, EOS, PAD, MASK), f"{BOS} $A {EOS}")
    tokenizer.save(str(folder / "tokenizer.json"))
    ids, rest = (tokenizer.encode(t, add_special_tokens=False).ids for t in (text, held_out))
    room = config["context_length"] - 2
    whole = [rest[i : i + room] for i in range(0, len(rest) - room + 1, room)][:MOST]
    data = {
        "ids": torch.tensor(ids, dtype=torch.int32),
        "held_out": [mask(window, config, Rng(texts.HELD_OUT_SEED, i, 5)) for i, window in enumerate(whole)],
        "learn": {n: _examples(t, tokenizer, tasks.TRAIN_SEED, plan.text // LEARNT) for n, t in TASKS.items()},
        "test": {n: _examples(t, tokenizer, tasks.HELD_OUT_SEED, plan.held_out // HELD_OUT) for n, t in TASKS.items()},
    }
    torch.save(data, folder / "data.pt")


def _examples(task: Task, tokenizer: Any, seed: int, n: int) -> list[Example]:
    made = [task.make(seed, i) for i in range(n)]
    encoded = tokenizer.encode_batch([text for text, _ in made])
    return [(text, e.ids, task.target(found, e.offsets)) for (text, found), e in zip(made, encoded, strict=True)]


def mask(window: Ids, config: dict[str, Any], rng: Rng) -> tuple[Ids, Ids]:
    """A window with BOS and EOS around it and some of its tokens hidden, and the target tokens (-100:
    none). Random replacements are ordinary tokens, because padding would be ignored."""
    seen, asked, ordinary = [config["bos_token_id"]], [-100], config["mask_token_id"] + 1
    for token in window:
        drawn = rng.below(1000)
        asked.append(token if drawn < MASKED + RANDOM + KEPT else -100)
        if drawn < MASKED:
            token = config["mask_token_id"]
        elif drawn < MASKED + RANDOM:
            token = ordinary + rng.below(config["vocab_size"] - ordinary)
        seen.append(token)
    return [*seen, *config["eos_token_ids"]], [*asked, -100]


class Masked:
    """Endless batches of windows with masks, which depend on the seed and the window's number alone."""

    def __init__(self, ids: Ids, config: dict[str, Any], seed: int) -> None:
        self.windows = FileStream(ids, None, config["context_length"] - 3, seed)
        self.config, self.seed = config, seed

    def _one(self) -> tuple[Ids, Ids]:
        rng = Rng(self.seed, self.windows.next, 5)
        return mask(self.windows.window().tolist(), self.config, rng)

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, both (n, context length)."""
        seen, asked = zip(*(self._one() for _ in range(n)), strict=True)
        return torch.tensor(seen), torch.tensor(asked)


class Examples:
    """Endless batches of a task, which depend on the seed and the example's number alone."""

    def __init__(self, examples: list[Example], pad: int, seed: int) -> None:
        self.examples, self.pad, self.seed, self.next = examples, pad, seed, 0

    def _one(self) -> Example:
        self.next += 1
        return self.examples[Rng(self.seed, self.next, 6).below(len(self.examples))]

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """Ids (n, T) and targets; targets per token are padded with -100."""
        _, ids, targets = zip(*(self._one() for _ in range(n)), strict=True)
        targets = [torch.tensor(t) for t in targets]
        y = torch.stack(targets) if targets[0].ndim == 0 else pad_sequence(targets, True, -100)
        return pad_sequence([torch.tensor(i) for i in ids], True, self.pad), y


def tuned(model: Model, head: dict[str, Any], biases: tuple[str, ...]) -> Model:
    """The encoder `model` with another head, which has random weights."""
    new = Model(model.config | {"head": head, "tie_embeddings": False}, biases)
    trunk = {name: value for name, value in model.state_dict().items() if not name.startswith("head.")}
    missing, unknown = new.load_state_dict(trunk, strict=False)
    if wrong := [*unknown, *(name for name in missing if not name.startswith("head."))]:
        raise ValueError(f"expected the weights of the same encoder; other or missing: {', '.join(wrong)}")
    return new


def train(row: rows.Row, seed: int, plan: Plan, folder: Path) -> tuple[dict[str, Model], Curve]:
    """The pre-trained encoder, one fine-tuned encoder per task, and the learning curve of the pre-training."""
    data = torch.load(folder / "data.pt", weights_only=True)
    model = Model(row.config, row.biases)
    windows = Masked(data["ids"].tolist(), row.config, seed)
    settings = row.settings(plan.steps, lr=plan.lr, warmup=plan.warmup())
    curve = fit(model, settings, plan.steps, lambda: windows.batch(plan.batch))
    n = max(2, plan.steps // SHARE)
    settings = row.tuning(n, lr=plan.lr / 3, warmup=max(1, n // 10))
    models = {".": model}
    for name, task in TASKS.items():
        examples = Examples(data["learn"][name], row.config["pad_token_id"], seed)
        models[name] = tuned(model, task.head, row.biases)
        fit(models[name], settings, n, lambda e=examples: e.batch(4 * plan.batch), False, task.loss)
    return models, curve


def _output(model: Model, ids: Ids) -> Tensor:
    """(T, outputs), or (1, labels) of classes."""
    with torch.no_grad():
        z = model(torch.tensor([ids]))
    return z if z.ndim == 2 else z[0]


def tied(model: Model) -> bool:
    """Whether the last pass had a token whose k-th best expert is as good as the next one, except for rounding."""
    for layer in model.moe_layers():
        scores, k = layer.route.scores, layer.router.r.get("k")
        if scores is None or k is None or k >= scores.shape[-1]:
            continue
        best = scores.topk(k + 1, dim=-1).values
        if ((best[:, k - 1] - best[:, k]) < TIE * scores.abs().amax()).any():
            return True
    return False


def _outputs(name: str, model: Model, ids: Sequence[Ids], found: Sequence[np.ndarray]) -> tuple[list[Tensor], float]:
    """PyTorch's outputs for each text, and their largest difference from `found`, except where a router is tied."""
    wanted, worst = [], 0.0
    for text, other in zip(ids, found, strict=True):
        wanted.append(_output(model, text))
        if not tied(model):
            worst = max(worst, output_difference(name, wanted[-1].numpy(), other))
    return wanted, worst


def _worst(name: str, wanted: list[Tensor], found: list[Any]) -> float:
    return max(output_difference(name, a.numpy(), b) for a, b in zip(wanted, found, strict=True))


def _perplexity(outputs: list[Tensor], asked: list[Ids]) -> float:
    """The perplexity of the target tokens."""
    return math.exp(token_loss(torch.cat(outputs).double(), torch.tensor(sum(asked, []))))


def _measure(name: str, checkpoint: Path, examples: list[Example], moe: str) -> tuple[list[float], float]:
    """The runtime's share of right predictions for each example, and its largest difference from PyTorch."""
    task, model = TASKS[name], export.read(checkpoint / name)
    found, _ = runtime.outputs(moe, checkpoint / name / "model.moe", [text for text, _, _ in examples])
    _, worst = _outputs(name, model, [ids for _, ids, _ in examples], found)
    right = [task.right(torch.tensor(z), target) for z, (_, _, target) in zip(found, examples, strict=True)]
    return [sum(r) / len(r) for r in right], worst


def _vectors(model: Model, checkpoint: Path, moe: str, lines: list[tuple[str, Ids]]) -> float:
    """The largest difference of the vectors of `moe embed` from PyTorch's."""
    found = runtime.ask(moe, "embed", checkpoint / "model.moe", "-p", "\n".join(text for text, _ in lines),
                        *runtime.ONE_THREAD)["embeddings"]
    with torch.no_grad():
        wanted = [model.hidden(torch.tensor([ids]))[0].mean(dim=0) for _, ids in lines]
    return _worst("moe embed", wanted, [torch.tensor(v).numpy() for v in found])


def _filled(model: Model, checkpoint: Path, moe: str, text: str) -> float:
    """The largest difference between the log-probabilities of `moe fill` and PyTorch; the last word is masked."""
    asked = text.rpartition(" ")[0] + MASK
    top = runtime.ask(moe, "fill", checkpoint / "model.moe", "-p", asked, *runtime.ONE_THREAD)["masks"][0]
    ids = load_tokenizer(checkpoint).encode(asked).ids
    logprobs = _output(model, ids)[top["position"]].log_softmax(-1)
    wanted = torch.stack([logprobs[best["id"]] for best in top["top"]])
    return _worst("moe fill", [wanted], [torch.tensor([best["logprob"] for best in top["top"]]).numpy()])


def figures(row: rows.Row, checkpoint: Path, folder: Path, moe: str) -> dict[str, Any]:
    """The measurements of an exported row; fails if the runtime disagrees with PyTorch."""
    data = torch.load(folder / "data.pt", weights_only=True)
    seen, asked = zip(*data["held_out"], strict=True)
    model = export.read(checkpoint)
    found, experts = runtime.outputs(moe, checkpoint / "model.moe", seen)
    wanted, difference = _outputs(row.name, model, seen, found)
    lines = [(text, ids) for text, ids, _ in data["test"]["classes"][:8]]
    worst = [difference, _vectors(model, checkpoint, moe, lines),
             _filled(model, checkpoint, moe, lines[0][0])]
    measured = {name: _measure(name, checkpoint, data["test"][name], moe) for name in TASKS}
    pytorch, runtimes = _perplexity(wanted, asked), _perplexity([torch.tensor(z) for z in found], asked)
    return {
        "pytorch": pytorch,
        "moe": runtimes,
        "difference": perplexity_difference(row.name, pytorch, runtimes),
        "outputs": max([*worst, *(w for _, w in measured.values())]),
        "tasks": {name: sum(shares) / len(shares) for name, (shares, _) in measured.items()},
        "windows": [round(1 - sum(one) / len(one), 5) for one in zip(*(s for s, _ in measured.values()), strict=True)],
        "experts": experts,
    }
