# SPDX-License-Identifier: MIT
"""Arrays passed to the library: checked, never copied implicitly."""

from __future__ import annotations

import ctypes as c
from typing import Any, Union
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ._sized import integer
from .errors import RangeError, ShapeError

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Tokens = Union[Sequence[int], npt.NDArray[np.integer[Any]]]

_CPU = 1  # kDLCPU of DLPack


def token_array(tokens: Tokens) -> IntArray:
    """Token ids in the library's type."""
    array = np.asarray(tokens)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"tokens: expected integers, found {array.dtype}")
    if array.ndim != 1:
        raise ShapeError(f"tokens: expected one dimension, found {array.shape}")
    limits = np.iinfo(np.int32)
    if array.min() < limits.min or array.max() > limits.max:
        raise RangeError("tokens: a number does not fit in 32 bits")
    return np.ascontiguousarray(array, np.int32)


def int32(value: int, name: str) -> int:
    """An argument that C takes as int32_t."""
    return integer(value, name, c.c_int32)


def float_view(array: Any, name: str) -> FloatArray:
    """A NumPy view of a float32, C-contiguous array in CPU memory: NumPy's, PyTorch's or any other
    that speaks DLPack. Everything else is an error: a conversion would be a hidden copy."""
    view = array
    if not isinstance(array, np.ndarray):
        if not hasattr(array, "__dlpack__"):
            raise TypeError(f"{name}: expected a NumPy array or a CPU tensor, "
                            f"found {type(array).__name__}")
        if array.__dlpack_device__()[0] != _CPU:
            raise TypeError(f"{name}: expected CPU memory; move the tensor there first")
        try:
            view = np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError) as e:
            raise TypeError(f"{name}: cannot be shared without a copy: {e}") from e
    if view.dtype != np.float32:
        raise TypeError(f"{name}: expected float32, found {view.dtype}")
    if not (view.flags.c_contiguous and view.flags.aligned):
        raise TypeError(f"{name}: expected a C-contiguous array; make one with "
                        "numpy.ascontiguousarray or .contiguous()")
    result: FloatArray = view
    return result


def shaped(array: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    """float_view of an array that must have that shape."""
    view = float_view(array, name)
    if view.shape != shape:
        raise ShapeError(f"{name}: expected {shape}, found {view.shape}")
    return view


def address(array: npt.NDArray[Any] | None) -> int | None:
    """The address of the first element; NULL for None."""
    return None if array is None else array.ctypes.data
