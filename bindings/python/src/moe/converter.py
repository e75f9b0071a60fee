# SPDX-License-Identifier: MIT
"""Checkpoints to model files, and models with random weights."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import Any, Union
from collections.abc import Callable, Mapping, Sequence

from . import _structs as s
from ._handle import c_strings, optional_bytes, path_bytes, text_bytes
from ._library import call, convert_library, names_of
from ._long_call import LongCall, Progress, progress_callback
from .errors import ArgumentError

Path = Union[str, "os.PathLike[str]"]
Report = dict[str, Any]


def convert(source: Path, destination: Path, *, weights: str = "auto",
            overrides: Mapping[str, str] | Sequence[str] = (), compress: bool = False,
            verify: bool = False, progress: Progress | None = None,
            on_matrix: Callable[[Report], Any] | None = None,
            ignored_keys: Sequence[str] = (), calibration: str | bytes | None = None,
            statistics: Path | None = None, save_statistics: Path | None = None,
            split_ffn: int = 0, split_by: str = "clusters", allow_zeros: bool = False,
            i2_s_arm: bool = False, threads: int = 0, size: int = 0, bits: float = 0,
            no_predictions: bool = False) -> Report:
    """Converts a folder with config.json and safetensors, or a GGUF file. The destination never
    holds a partial file. Returns the report on the whole conversion.

    weights:   "auto", "mixed4", "source", "ternary2", "ternary3", "int8", "int8_group", "int6_k", "int2_k", "int3_k", "tcq2", "tcq3", "int4", "int4_min",
               "int4_k", "nl4", "nf4", "fp4", "bf16", "f16" or "f32".
    overrides: {"PATTERN": "FORMAT"} on tensor names; * matches anything, the last one wins.
    compress:  zstd for segments where it saves at least 5 %.
    verify:    read the result back and compare every weight with the checkpoint.
    progress:  progress(done, total) in bytes of the checkpoint; False cancels (CancelledError).
    on_matrix: receives a dict per stored matrix: its name, format, if it is lossless ...
    ignored_keys: keys of config.json or a GGUF file to ignore: those that the importer does not
               know and that do not change what the model computes; "OBJECT.KEY" in an object.
    calibration: a text to run through the source model: later weights then compensate for the
               rounding errors of earlier ones. Progress meanwhile is in tokens.
    statistics: instead of a text, a file that save_statistics named for the same source: the result
               is the same as with its text, in any format.
    save_statistics: a file to write the statistics of the calibration text to; not with split_ffn.
    split_ffn: splits every FFN of a dense model into this many experts, a divisor of its
               width, with a router fitted to the calibration text. The file selects all of them and
               equals the dense model; Session.set_router("threshold:0.9") selects fewer.
    split_by:  the neurons of an expert: "clusters" (of similar weights) or "in-order".
    allow_zeros: accept a file that ends in matrices of zeros. Without it that is an error, because
               a download that stopped after its space was reserved leaves such a file.
    i2_s_arm:  I2_S tensors of a GGUF file are in blocks of 64 weights, as bitnet.cpp writes them on
               ARM since November 2025; it writes blocks of 128 elsewhere. The file does not say.
    size:      the format of every matrix that overrides do not name is chosen so that the file has at
               most this many bytes and the least expected damage; not with weights.
    bits:      the same for a number of bits per weight, the mean over all matrices.
    no_predictions: leave out the layer that guesses further tokens (multi-token prediction), which
               drafts use.
    threads:   0 for all CPUs that this process may use; the file does not depend on it.
    An exception in progress or on_matrix, or Ctrl-C, ends the conversion and is raised here; the
    destination is then unchanged.
    """
    library = convert_library()
    long = LongCall()
    reports: list[Report] = []

    def report(_user: Any, text: bytes) -> None:
        entry = json.loads(text)
        if "matrix" not in entry:
            reports.append(entry)
        elif on_matrix is not None:
            on_matrix(entry)

    patterns = ([f"{k}={v}" for k, v in overrides.items()] if isinstance(overrides, Mapping)
                else list(overrides))
    if split_by not in ("clusters", "in-order"):
        raise ArgumentError(f"split_by: expected clusters or in-order, found {split_by!r}")
    text = text_bytes(calibration) if isinstance(calibration, str) else calibration
    params = s.ConvertParams(
        compress=int(compress), weights=optional_bytes(weights),
        overrides=c_strings(tuple(patterns)), n_overrides=len(patterns), verify=int(verify),
        progress=progress_callback(long, progress), report=s.ReportFn(long.guard(report)),
        ignored_keys=c_strings(tuple(ignored_keys)), n_ignored_keys=len(ignored_keys),
        calibration=text, n_calibration=len(text or b""),
        statistics=None if statistics is None else path_bytes(statistics, "statistics"),
        save_statistics=(None if save_statistics is None
                         else path_bytes(save_statistics, "save_statistics")),
        split_ffn=split_ffn, split_by_clusters=int(split_ffn > 0 and split_by == "clusters"),
        allow_zeros=int(allow_zeros), i2_s_arm=int(i2_s_arm), n_threads=threads,
        most_bytes=size, most_bits=bits, no_predictions=int(no_predictions))
    names = path_bytes(source, "source"), path_bytes(destination, "destination")
    long.run(lambda: call(library.moe_convert, *names, c.byref(params)))
    return reports[-1]


def synthetic_shapes() -> tuple[str, ...]:
    """Names of the shapes for save_synthetic."""
    return names_of(convert_library().moe_synthetic_shape_name)


def save_synthetic(shape: str, path: Path, *, weights: str = "ternary2", context: int = 0,
                   seed: int = 0) -> None:
    """Writes a model of a named shape with random weights. context 0: the shape's default."""
    params = s.SyntheticParams(context=context, weights=optional_bytes(weights), seed=seed)
    call(convert_library().moe_synthetic_save, optional_bytes(shape), c.byref(params),
         path_bytes(path, "path"))
