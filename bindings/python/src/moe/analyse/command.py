# SPDX-License-Identifier: MIT
"""python -m moe analyse: how a model routes a text, as tables and as a page of charts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
from typing import Any

import numpy as np

from .._replacing import write_text
from ..errors import ArgumentError
from .report import page, sections, tables
from .runs import MAX_TOKENS, Analysis, analyse, thresholds_of


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m moe analyse",
        description="Measures how a model routes a text: experts needed by threshold, perplexity and time by "
                    "operations, positive activations, load, representation collapse; between checkpoints "
                    "the routing fluctuation, between runs their consistency.")
    parser.add_argument("models", nargs="+", metavar="MODEL",
                        help="checkpoints of one run, oldest first; the last one is analysed")
    parser.add_argument("-f", "--file", required=True, metavar="TEXT", help="the text, UTF-8")
    parser.add_argument("-o", "--output", metavar="PAGE.html", help="write a page of charts")
    parser.add_argument("--charts", metavar="FOLDER", help="write each chart as an SVG file")
    parser.add_argument("--other-run", action="append", default=[], metavar="MODEL",
                        help="the same model from another run, any number of times")
    parser.add_argument("--thresholds", default="0.1:1:0.1", metavar="FROM:TO:STEP",
                        help="thresholds to run the last model with (default %(default)s)")
    parser.add_argument("--topk", type=int, nargs="*", default=[], metavar="K",
                        help="numbers of experts to run it with as well")
    parser.add_argument("--tokens", type=int, default=MAX_TOKENS, metavar="N",
                        help="most tokens of the text (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser


def _plain(value: Any) -> Any:
    """JSON-compatible values: arrays as lists, no NaN."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(found: Analysis) -> str:
    plain = _plain(dataclasses.asdict(found))
    for recording in plain["models"] + plain["others"]:
        for layer in recording["layers"]:
            del layer["first"]  # as long as the text
    return json.dumps(plain, indent=1)


def _read(path: str) -> str:
    data = pathlib.Path(path).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ArgumentError(f"{path}: expected UTF-8, found something else at byte {e.start}") from None


def run(arguments: list[str]) -> None:
    """The command; raises MoeError, OSError and ValueError."""
    options = _parser().parse_args(arguments)
    if options.output and not pathlib.Path(options.output).absolute().parent.is_dir():  # before the work
        raise FileNotFoundError(f"{options.output}: there is no such folder")
    found = analyse(options.models, _read(options.file), others=options.other_run,
                    thresholds=thresholds_of(options.thresholds), topk=options.topk, max_tokens=options.tokens)
    if options.output:
        write_text(options.output, page(found))
    if options.charts:
        _write_charts(found, pathlib.Path(options.charts))
    print(_json(found) if options.json else tables(found))


def _write_charts(found: Analysis, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for s in sections(found):
        if s.chart is not None and not s.chart.empty:
            write_text(folder / f"{s.name}.svg", s.chart.svg(alone=True))
