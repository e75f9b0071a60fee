# SPDX-License-Identifier: MIT
"""Embeddings in the shape of OpenAI's API, as dictionaries."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from collections.abc import Sequence

import numpy as np

from .completion import Completion
from .errors import ArgumentError, TooLongError

if TYPE_CHECKING:
    from .model import Model


def _texts(given: Any) -> list[str | list[int]]:
    """One text or one list of token ids, or several of them."""
    if isinstance(given, str):
        return [given]
    items = list(given) if isinstance(given, Sequence) and not isinstance(given, bytes) else []
    if items and all(isinstance(item, int) for item in items):
        return [items]
    if not items or not all(isinstance(item, (str, list, tuple)) and len(item) > 0 for item in items):
        raise ArgumentError("input: expected a str, a list of token ids, or a list of such, none of them empty")
    return [item if isinstance(item, str) else list(item) for item in items]


def _ids(model: Model, before: str, text: str | list[int], where: str) -> list[int]:
    """The tokens of a text behind the model's prompt, or those that are given."""
    if text == "":
        raise ArgumentError(f"{where}: expected a text, found an empty one")
    ids, most = model.encode(before + text) if isinstance(text, str) else text, model.info.vector_tokens
    if 0 < most < len(ids):
        raise TooLongError(f"{where}: {len(ids)} tokens, the model's vectors are of texts of at most {most}")
    return ids


def create_embedding(model: Model, given: Any, name: str | None, encoding_format: str,
                     dimensions: int | None, pooling: str) -> Completion:
    """The work of Model.create_embedding()."""
    texts = _texts(given)
    if encoding_format not in ("float", "base64"):
        raise ArgumentError(f"encoding_format: expected 'float' or 'base64', found {encoding_format!r}")
    if dimensions not in (None, model.info.d_model):
        raise ArgumentError(f"dimensions: expected {model.info.d_model}, the model's, found {dimensions}")
    data, n_tokens = [], 0
    with model.session() as session:
        before = session._prompt(None)
        for i, text in enumerate(texts):
            ids = _ids(model, before, text, f"input[{i}]")
            n_tokens += len(ids)
            vector = session.encode(ids, hidden=False, pooling=pooling).pooled
            assert vector is not None
            length = float(np.linalg.norm(vector.astype(np.float64)))
            vector = (vector / length if length > 0 else vector).astype("<f4")
            found: Any = vector.tolist()
            if encoding_format == "base64":
                found = base64.b64encode(vector.tobytes()).decode("ascii")
            data.append({"object": "embedding", "index": i, "embedding": found})
    return {"object": "list", "data": data, "model": name or model.info.name,
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens}}
