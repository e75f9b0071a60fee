# SPDX-License-Identifier: MIT
"""The trainer's interface to the runtime: the program `moe`, and the Python package for outputs that the
program does not print.

The package has the same name as a module in this folder, so it is used in a separate process, which runs this file.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
ONE_THREAD = ("--threads", "1", "--device", "cpu")


def find_moe(given: str | None = None) -> str:
    """The program `moe`: as given, in the repository's build, or in PATH."""
    built = REPOSITORY / "build/release/bin/moe"
    found = given or (str(built) if built.exists() else shutil.which("moe"))
    if not found or not shutil.which(found):
        raise FileNotFoundError(f"{found or 'moe'} is not there; build it, or name it with --moe")
    return found


def _run(command: Sequence[str | Path], what: str, **more: Any) -> str:
    run = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)
    if run.returncode:
        raise RuntimeError(f"{what}: {run.stderr.strip() or f'exit status {run.returncode}'}")
    return run.stdout


def ask(program: str, *args: str | Path) -> Any:
    """The result of a command of `moe` with --json, or of one that prints nothing else."""
    more = [] if args[0] == "embed" else ["--json"]
    return json.loads(_run([program, *args, *more], f"moe {args[0]}"))


def ask_lines(program: str, *args: str | Path) -> list[Any]:
    """The results of a command of `moe` that prints one object per line."""
    return [json.loads(line) for line in _run([program, *args, "--json"], f"moe {args[0]}").splitlines()]


def _environment(program: str) -> dict[str, str]:
    """Environment variables with the package's and the library's paths; an installed package needs neither."""
    folders = [str(REPOSITORY / "bindings/python/src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    library = Path(shutil.which(program) or program).resolve().parents[1] / "lib/libmoe.so"
    own = {"MOE_LIBRARY": str(library)} if library.exists() else {}
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)} | own


def outputs(program: str, model: Path, texts: Sequence[Any]) -> tuple[list[np.ndarray], list[float]]:
    """The head's outputs for each text, logits (T, vocab), (T, outputs) or (1, labels), and the experts per (sub-)token of
    each MoE layer. A text is a str or ids; for an encoder-decoder, a pair of ids, source and text."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "outputs.npz"
        question = {"model": str(model), "texts": texts, "answer": str(answer)}
        _run([sys.executable, Path(__file__)], str(model), input=json.dumps(question), env=_environment(program))
        found = np.load(answer)
        return [found[f"text{i}"] for i in range(len(texts))], found["experts"].tolist()


def routing(program: str, model: Path, text: Path) -> list[dict[str, Any]]:
    """The measurements of moe.analyse for each layer of a decoder on a text: the share of positive activations and, of an
    MoE layer, its load by expert and its representation collapse (None where it has no value)."""
    question = {"model": str(model), "text": str(text)}
    answer = _run([sys.executable, Path(__file__)], str(model), input=json.dumps(question), env=_environment(program))
    return json.loads(answer)


def _routing(model: Any, text: str) -> list[dict[str, Any]]:
    from moe import analyse

    found = analyse.record(model, analyse.tokens_of(model, text))
    layers = {layer.layer: {"load": layer.load.tolist(), "collapse": layer.collapse if math.isfinite(layer.collapse) else None}
              for layer in found.layers}
    return [{"layer": i, "positive": share} | layers.get(i, {}) for i, share in found.positive.items()]


def _experts(model: Any, session: Any) -> list[float]:
    counted = [session.routing(i) for i, layer in enumerate(model.layers) if layer.n_experts]
    return [float((c.experts_per_token * np.arange(c.n_experts + 1)).sum() / max(1, c.n_tokens)) for c in counted]


def _output(session: Any, text: Any) -> np.ndarray:
    if session.model.info.is_encoder_decoder:
        session.read_source(text[0])
        return session.eval_all(text[1])
    ids = session.model.encode(text) if isinstance(text, str) else text
    if not session.model.info.is_encoder:
        return session.eval_all(ids)
    return session.encode(ids, hidden=False, outputs=True).outputs


def main() -> None:
    sys.path.pop(0)  # this folder has another module moe
    import moe

    question = json.load(sys.stdin)
    with moe.Environment(threads=1, device="cpu") as environment, moe.Model(question["model"], environment) as model:
        if "text" in question:
            print(json.dumps(_routing(model, Path(question["text"]).read_text(encoding="utf-8"))))
            return
        session = model.session()
        session.count_routing()
        found = {f"text{i}": _output(session, text) for i, text in enumerate(question["texts"])}
        np.savez(question["answer"], experts=np.array(_experts(model, session)), **found)


if __name__ == "__main__":
    main()
