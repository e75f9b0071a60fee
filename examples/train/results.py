# SPDX-License-Identifier: MIT
"""The file of all finished runs, results.jsonl: a line per row and seed, from which RESULTS.md is printed.

A line belongs to the row as it was when it was run. Where the row, its settings, the plan or the training text have
changed since, its key no longer matches and it is not read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rows
import texts
from plan import Plan

FILE = Path(__file__).resolve().parent / "results.jsonl"
Result = dict[str, Any]
Results = dict[str, list[Result]]  # row: results of its seeds, in their order


def key(row: rows.Row, plan: Plan) -> str:
    """A hash of the row, all its settings, the plan and the generated text."""
    settings = [asdict(row.settings(plan.steps)), asdict(row.tuning(plan.steps))]
    said = json.dumps([row.config, settings, asdict(plan), texts.fingerprint()], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def is_current(result: Result, plan: Plan) -> bool:
    """Whether the row still is what was run."""
    try:
        return result["key"] == key(rows.read(result["row"]), plan)
    except rows.BadRow:  # the row is gone
        return False


def grouped(found: Iterable[Result]) -> Results:
    """By row; a later result replaces an earlier one of the same seed."""
    newest = {(r["row"], r["seed"]): r for r in found}
    out: Results = {}
    for name, seed in sorted(newest):
        out.setdefault(name, []).append(newest[name, seed])
    return out


def read(plan: Plan, file: Path = FILE) -> Results:
    """The results of rows that have not changed since; {} if there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return grouped(r for r in map(json.loads, lines) if is_current(r, plan))


def write(results: Results, file: Path = FILE) -> None:
    """A line per run, in a fixed order."""
    lines = [json.dumps(r, sort_keys=True, separators=(",", ":")) for name in sorted(results) for r in results[name]]
    temporary = file.with_suffix(".tmp")
    temporary.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    temporary.replace(file)


def gathered(folder: Path, plan: Plan) -> list[Result]:
    """The finished runs in a folder of the runner, except those of rows that have changed since."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.*.json"))]
    return [r for r in found if is_current(r, plan)]
