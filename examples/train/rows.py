# SPDX-License-Identifier: MIT
"""The rows of the papers' tables: one small file each, read without PyTorch.

rows/NAME.json contains the differences between a system and the row that it names as `base`:
    system      a short description
    paper       the size in the paper, of which the row is a miniature
    recipe      the settings of a paper, by their name in recipes.py
    config      changes to the model's configuration (the research layout)
    layer       changes to the `ffn` object of the layers in which the systems differ
    at          the index of these layers, as in config.json; they come after config's own `layers`
    alone       true: these layers have no attention
    train       changes to the recipe's settings; here freeze_routing is a share of the run
    tune        the same for the fine-tuning of an encoder
    comment     the reason
Objects merge deeply and null removes a key, as in config.json, but a router replaces the base's.

NAME@WIDTH is the row at another width of the model: every width changes in proportion, and numbers (of experts,
heads, layers, tokens) stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import config as cfg
import recipes
from check_config import BadConfig

FOLDER = Path(__file__).resolve().parent / "rows"
KEYS = {"base", "system", "paper", "recipe", "config", "layer", "at", "alone", "train", "tune", "comment"}
WIDTHS = ("d_ff", "head_dim", "dims")  # keys of a configuration that change with the width of a model


class BadRow(ValueError):
    """An invalid row."""


@dataclass(frozen=True)
class Row:
    name: str
    system: str
    paper: str
    config: cfg.Config  # complete
    recipe: str | None
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
        return _settings(self.recipe, self.train, steps, own)

    def tuning(self, steps: int, **own: Any) -> recipes.Settings:
        """The settings of a fine-tuning of `steps` steps; the row's own take precedence."""
        return _settings(self.recipe, self.tune, steps, own)


def _settings(recipe: str | None, row: dict[str, Any], steps: int, own: dict[str, Any]) -> recipes.Settings:
    if "freeze_routing" in row:
        row = row | {"freeze_routing": round(row["freeze_routing"] * steps)}
    return recipes.settings(recipe, **(own | row))


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def _known(where: str, found: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(found) - known):
        raise BadRow(f"{where}: unknown {', '.join(unknown)}; expected some of {', '.join(sorted(known))}")


def _read(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.json"
    if not path.exists():
        raise BadRow(f"no row {name}: {path} is not there")
    row = json.loads(path.read_text(encoding="utf-8"))
    _known(name, row, KEYS)
    for key in ("train", "tune"):
        recipes.settings(row.get("recipe"), **row.get(key, {}))
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


def _at_width(config: Any, factor: Fraction) -> Any:
    """The configuration with every width times the factor; BadRow if one is then no integer."""
    if isinstance(config, list):
        return [_at_width(entry, factor) for entry in config]
    if not isinstance(config, dict):
        return config
    out = {}
    for key, value in config.items():
        scaled = value * factor if key in ("d_model", *WIDTHS) else None
        if scaled is not None and scaled.denominator != 1:
            raise BadRow(f"{key}: {value} times {factor} is no integer")
        out[key] = _at_width(value, factor) if scaled is None else int(scaled)
    return out


def _width(name: str, text: str, own: int) -> Fraction:
    if not text.isdecimal() or int(text) < 1:
        raise BadRow(f"{name}: expected a width behind @, found {text!r}")
    return Fraction(int(text), own)


def read(name: str, folder: Path = FOLDER) -> Row:
    """Reads the row of that name, NAME or NAME@WIDTH."""
    plain, _, width = name.partition("@")
    whole = _whole(plain, folder)
    entry = {"index": whole["at"], "ffn": whole.get("layer", {})}
    if whole.get("alone", False):
        entry["attention"] = None
    layers = [*whole["config"].get("layers", []), entry]
    config, system = whole["config"] | {"name": name, "layers": layers}, whole["system"]
    try:
        if "@" in name:
            config = _at_width(config, _width(name, width, config["d_model"]))
            system = f"{system}, d {width}"
        recipe, train = whole.get("recipe"), whole.get("train", {})
        gates = recipes.settings(recipe, **{k: v for k, v in train.items() if k == "gates"}).gates
        config = cfg.complete(recipes.with_gates(cfg.complete(config), gates))
    except BadConfig as e:
        raise BadRow(f"{name}: {e}") from None
    return Row(name, system, whole.get("paper", ""), config, recipe, train, whole.get("tune", {}))
