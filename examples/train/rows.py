# SPDX-License-Identifier: MIT
"""The rows of the papers' tables: one small file each, read without PyTorch.

rows/NAME.json contains the differences between a system and the row that it names as `base`:
    system      a short description
    paper       the size in the paper, of which the row is a miniature
    config      changes to the model's configuration (the research layout)
    layer       changes to the `ffn` object of the layers in which the systems differ
    at          the index of these layers, as in config.json; they come after config's own `layers`
    alone       true: these layers have no attention
    train       changes to the settings of recipes.py; here freeze_routing is a share of the run
    tune        the same for the fine-tuning of an encoder
    comment     the reason
Objects merge deeply and null removes a key, as in config.json, but a router replaces the base's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import config as cfg
import recipes

FOLDER = Path(__file__).resolve().parent / "rows"
KEYS = {"base", "system", "paper", "config", "layer", "at", "alone", "train", "tune", "comment"}
LAYER_KEYS = set(cfg.FFN)
ROUTERS: dict[str, set[str]] = {
    "softmax": {"k", "weights", "scale", "rank"},
    "threshold": {"t", "min_k", "max_k", "weights", "scale"},
    "cosine": {"k", "gate", "tau", "normalise_token", "topk_norm", "d_e", "identity"},
    "sigmoid": {"k", "weights", "scale"},
    "sparsemixer": {"jitter"},
    "hash": set(),
    "base": set(),
}


class BadRow(ValueError):
    """An invalid row."""


@dataclass(frozen=True)
class Row:
    name: str
    system: str
    paper: str
    config: cfg.Config  # complete
    train: dict[str, Any]
    tune: dict[str, Any]

    def ffns(self) -> Iterator[cfg.Config]:
        """The feed-forward network of every layer."""
        for layer in range(self.config["n_layers"]):
            yield cfg.layer_config(self.config, layer)["ffn"]

    def has_int8_activations(self) -> bool:
        return any(rule.get("activations", "f32") != "f32" for rule in self.config["precision"])

    @property
    def task(self) -> str:
        """The task of the model, a key of runner.TASKS."""
        tasks = {"decoder": "language", "encoder": "encoder", "encoder-decoder": "translation"}
        return tasks[cfg.kind(self.config)]

    def has_capacity(self) -> bool:
        return any(f["kind"] == "moe" and f["moe"]["capacity"]["gamma"] > 0 for f in self.ffns())

    @property
    def biases(self) -> tuple[str, ...]:
        """The layers that have a bias (model.Model)."""
        return ("head", "head.dense") if self.task == "encoder" else ()

    def settings(self, steps: int, **own: Any) -> recipes.Settings:
        """The settings of a run of `steps` steps; the row's own take precedence."""
        return _settings(self.train, steps, own)

    def tuning(self, steps: int, **own: Any) -> recipes.Settings:
        """The settings of a fine-tuning of `steps` steps; the row's own take precedence."""
        return _settings(self.tune, steps, own)


def _settings(row: dict[str, Any], steps: int, own: dict[str, Any]) -> recipes.Settings:
    if "freeze_routing" in row:
        row = row | {"freeze_routing": round(row["freeze_routing"] * steps)}
    return recipes.settings(**(own | row))


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def _known(where: str, found: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(found) - known):
        raise BadRow(f"{where}: unknown {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")


def _check_layer(where: str, layer: cfg.Config) -> None:
    _known(where, layer, LAYER_KEYS)
    moe = layer.get("moe") or {}
    _known(f"{where}.moe", moe, set(cfg.MOE))
    if router := moe.get("router"):
        if router.get("kind") not in ROUTERS:
            raise BadRow(f"{where}.moe.router: expected a kind of {', '.join(ROUTERS)}, found {router.get('kind')}")
        _known(f"{where}.moe.router", router, ROUTERS[router["kind"]] | {"kind"})


def _read(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.json"
    if not path.exists():
        raise BadRow(f"no row {name}: {path} is not there")
    row = json.loads(path.read_text(encoding="utf-8"))
    _known(name, row, KEYS)
    _check_layer(f"{name}.layer", row.get("layer", {}))
    for key in ("train", "tune"):
        recipes.settings(**row.get(key, {}))
    return row


def _over(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The base patched with a row."""
    out = cfg.merge({k: v for k, v in base.items() if k not in ("paper", "comment")}, own)
    if router := (own.get("layer", {}).get("moe") or {}).get("router"):
        out["layer"]["moe"]["router"] = dict(router)
    return out


def _whole(name: str, folder: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row merged with all its bases."""
    if name in above:
        raise BadRow(f"{name}: its bases lead back to itself")
    own = _read(name, folder)
    if "system" not in own:
        raise BadRow(f"{name}: expected a system, found none")
    base = own.pop("base", None)
    return own if base is None else _over(_whole(base, folder, (*above, name)), own)


def read(name: str, folder: Path = FOLDER) -> Row:
    """Reads the row of that name."""
    whole = _whole(name, folder)
    entry = {"index": whole["at"], "ffn": whole.get("layer", {})}
    if whole.get("alone", False):
        entry["attention"] = None
    layers = [*whole["config"].get("layers", []), entry]
    config = cfg.complete(whole["config"] | {"name": name, "layers": layers})
    row = Row(name, whole["system"], whole.get("paper", ""), config, whole.get("train", {}), whole.get("tune", {}))
    _check_shapes(row)
    return row


def _check_shapes(row: Row) -> None:
    d = row.config["d_model"]
    for ffn in row.ffns():
        if ffn["kind"] != "moe":
            continue
        m = ffn["moe"]
        if d % m["n_subheads"]:
            raise BadRow(f"{row.name}: expected sub-heads that divide {d}, found {m['n_subheads']}")
        k, n = m["router"].get("k", 1), m["n_experts"]
        if not 1 <= k <= n:
            raise BadRow(f"{row.name}: expected k in 1..{n}, found {k}")
        if not 0 <= m["router"].get("t", 0) <= 1:
            raise BadRow(f"{row.name}: expected t in 0..1, found {m['router']['t']}")
