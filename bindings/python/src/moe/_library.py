# SPDX-License-Identifier: MIT
"""Finds libmoe and libmoe_convert and declares their functions."""

from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib
from typing import Any

from . import _structs as s
from .errors import error_of

ABI_VERSION = (0, 1)  # while the major version is 0, a minor one may change the ABI

_error = c.POINTER(s.Error)
_handle = c.c_void_p
_out = c.POINTER(c.c_void_p)
_size = c.POINTER(c.c_size_t)
_text = c.c_char_p
_status = c.c_int
_session_params = c.POINTER(s.SessionParams)
_model_params = c.POINTER(s.ModelParams)
_sampling = c.POINTER(s.Sampling)
_logprob = c.POINTER(s.TokenLogprob)
_array = c.c_void_p  # the address of an array whose type has been checked

Prototypes = dict[str, tuple[Any, list[Any]]]

MOE: Prototypes = {
    "moe_version": (c.c_uint32, []),
    "moe_version_string": (_text, []),
    "moe_env_create": (_status, [c.POINTER(s.EnvParams), _out, _error]),
    "moe_env_free": (None, [_handle]),
    "moe_env_get_info": (_status, [_handle, c.POINTER(s.EnvInfo), _error]),
    "moe_env_isas": (_text, []),
    "moe_session_routers": (_text, []),
    "moe_weight_formats": (_text, []),
    "moe_model_open": (_status, [_handle, _text, _model_params, _out, _error]),
    "moe_model_open_memory": (_status,
                              [_handle, _array, c.c_size_t, _model_params, _out, _error]),
    "moe_model_open_reader": (_status,
                              [_handle, c.POINTER(s.Reader), _model_params, _out, _error]),
    "moe_model_free": (None, [_handle]),
    "moe_model_get_info": (_status, [_handle, c.POINTER(s.ModelInfo), _error]),
    "moe_model_get_prompt": (_status, [_handle, c.c_int32, c.POINTER(_text), c.POINTER(_text), _error]),
    "moe_model_get_layer_info": (_status,
                                 [_handle, c.c_int32, c.POINTER(s.ModelLayerInfo), _error]),
    "moe_model_tensor_count": (c.c_size_t, [_handle]),
    "moe_model_get_tensor_info": (_status,
                                  [_handle, c.c_size_t, c.POINTER(s.TensorInfo), _error]),
    "moe_model_get_memory": (_status, [_handle, _session_params, c.POINTER(s.MemoryLine),
                                       c.c_size_t, _size, _error]),
    "moe_model_get_memory_plan": (_status, [_handle, _session_params, c.POINTER(s.MemoryPlan),
                                            _error]),
    "moe_get_memory_info": (_status, [c.POINTER(s.MemoryInfo), _error]),
    "moe_model_suggest_memory": (_status, [_handle, _session_params, c.POINTER(c.c_uint64),
                                           _error]),
    "moe_model_verify": (_status, [_handle, _error]),
    "moe_model_tokenizer": (_handle, [_handle]),
    "moe_tokenizer_encode": (_status, [_handle, _text, c.c_size_t, c.c_uint32, _array,
                                       c.c_size_t, _size, _error]),
    "moe_tokenizer_decode": (_status, [_handle, _array, c.c_size_t, c.c_uint32, _array,
                                       c.c_size_t, _size, _error]),
    "moe_tokenizer_piece": (_text, [_handle, c.c_int32]),
    "moe_session_create": (_status, [_handle, _session_params, _out, _error]),
    "moe_session_free": (None, [_handle]),
    "moe_session_eval": (_status, [_handle, _array, c.c_size_t, _array, c.c_size_t, _error]),
    "moe_session_score": (_status, [_handle, _array, c.c_size_t, _array, c.c_size_t, _error]),
    "moe_session_encode": (_status, [_handle, _array, c.c_size_t, c.POINTER(s.EncodeParams),
                                     _error]),
    "moe_session_translate": (_status, [_handle, _array, c.c_size_t, c.POINTER(s.TranslateParams),
                                        c.POINTER(s.TranslateResult), _error]),
    "moe_session_read_source": (_status, [_handle, _array, c.c_size_t, _array, _error]),
    "moe_sessions_step": (_status, [_out, _array, c.c_size_t, _array, _error]),
    "moe_sessions_eval": (_status, [_out, _array, _size, c.c_size_t, _array, _error]),
    "moe_session_position": (c.c_int32, [_handle]),
    "moe_session_context": (c.c_int32, [_handle]),
    "moe_session_rewind": (_status, [_handle, c.c_int32, _error]),
    "moe_session_save": (_status, [_handle, c.POINTER(s.Writer), _error]),
    "moe_session_load": (_status, [_handle, c.POINTER(s.Reader), _error]),
    "moe_session_fork": (_status, [_handle, _out, _error]),
    "moe_session_cancel": (None, [_handle]),
    "moe_session_perplexity": (_status, [_handle, _array, c.c_size_t, s.ProgressFn, _handle,
                                         c.POINTER(s.Perplexity), _error]),
    "moe_session_set_router": (_status, [_handle, _text, _error]),
    "moe_session_count_routing": (_status, [_handle, c.c_bool, _error]),
    "moe_session_get_routing": (_status,
                                [_handle, c.c_int32, c.POINTER(s.RoutingStats), _error]),
    "moe_session_get_activations": (_status,
                                    [_handle, c.c_int32, c.POINTER(s.ActivationStats), _error]),
    "moe_session_watch_routing": (_status, [_handle, s.RoutingFn, c.c_void_p, _error]),
    "moe_session_get_memory_stats": (_status, [_handle, c.POINTER(s.MemoryStats), _error]),
    "moe_model_get_sampling": (_status, [_handle, _sampling, c.POINTER(c.c_bool), _error]),
    "moe_session_sample": (_status, [_handle, _sampling, _logprob, _logprob, c.c_size_t, _error]),
    "moe_session_generate": (_status, [_handle, _array, c.c_size_t, c.POINTER(s.GenerateParams),
                                       c.POINTER(s.GenerateResult), _error]),
    "moe_model_chat_template": (_text, [_handle]),
    "moe_chat_template_names": (_text, []),
    "moe_chat_create": (_status, [_handle, c.POINTER(s.ChatParams), _out, _error]),
    "moe_chat_free": (None, [_handle]),
    "moe_chat_add": (_status, [_handle, _text, _text, c.c_size_t, _error]),
    "moe_chat_truncate": (_status, [_handle, c.c_size_t, _error]),
    "moe_chat_remove_oldest": (_status, [_handle, c.c_size_t, _size, _error]),
    "moe_chat_set_session": (_status, [_handle, _handle, _error]),
    "moe_chat_set_system": (_status, [_handle, _text, _error]),
    "moe_chat_message_count": (c.c_size_t, [_handle]),
    "moe_chat_get_message": (_status, [_handle, c.c_size_t, c.POINTER(s.ChatMessage), _error]),
    "moe_chat_render": (_status, [_handle, c.c_bool, _array, c.c_size_t, _size, _error]),
    "moe_chat_tokens": (_status, [_handle, c.c_bool, _array, c.c_size_t, _size, _error]),
    "moe_chat_reply": (_status, [_handle, c.POINTER(s.GenerateParams), c.POINTER(s.ChatResult),
                                 _error]),
    "moe_layer_create": (_status, [_handle, c.POINTER(s.LayerParams), _out, _error]),
    "moe_layer_free": (None, [_handle]),
    "moe_layer_forward": (_status, [_handle, _array, c.c_size_t, _array, _error]),
    "moe_replacement_open": (_status, [_text, _out, _error]),
    "moe_replacement_begin": (_status, [_handle, c.POINTER(c.c_int), _error]),
    "moe_replacement_commit": (_status, [_handle, _error]),
    "moe_replacement_free": (None, [_handle]),
}

MOE_CONVERT: Prototypes = {
    "moe_convert": (_status, [_text, _text, c.POINTER(s.ConvertParams), _error]),
    "moe_synthetic_shapes": (_text, []),
    "moe_synthetic_save": (_status, [_text, c.POINTER(s.SyntheticParams), _text, _error]),
}


def _candidates(name: str) -> list[str]:
    """Where the library of that name may be. MOE_LIBRARY is the path of libmoe (or of its folder)
    and the only place looked at when it is set; libmoe_convert lies beside it."""
    given = os.environ.get("MOE_LIBRARY")
    file = f"lib{name}.so"
    if given:
        path = pathlib.Path(given)
        folder = path if path.is_dir() else path.parent
        if name == "moe" and not path.is_dir():
            return [str(path)]
        return [str(folder / file), str(folder / f"{file}.{ABI_VERSION[0]}")]
    versioned = f"{file}.{ABI_VERSION[0]}"
    return [str(pathlib.Path(__file__).parent / versioned), versioned]


def _load(name: str, prototypes: Prototypes) -> c.CDLL:
    tried = []
    for path in _candidates(name):
        try:
            library = c.CDLL(path)
        except OSError as e:
            tried.append(f"{path}: {e}")
            continue
        try:
            for function, (result, arguments) in prototypes.items():
                f = getattr(library, function)
                f.restype, f.argtypes = result, arguments
        except AttributeError as e:
            raise ImportError(f"{path} is not version {ABI_VERSION} of lib{name}: {e}") from None
        return library
    raise ImportError(f"lib{name} was not found; set MOE_LIBRARY to its path. Tried:\n  "
                      + "\n  ".join(tried))


def _load_moe() -> c.CDLL:
    library = _load("moe", MOE)
    version = library.moe_version()
    found = (version // 1000000, version // 1000 % 1000)
    if found != ABI_VERSION:
        raise ImportError(f"libmoe: expected version {ABI_VERSION[0]}.{ABI_VERSION[1]}, "
                          f"found {found[0]}.{found[1]}")
    return library


lib = _load_moe()


@functools.cache
def convert_library() -> c.CDLL:
    """libmoe_convert, loaded on first use."""
    return _load("moe_convert", MOE_CONVERT)


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a status and takes moe_error* last; raises what it reports."""
    error = s.Error()
    status = function(*arguments, c.byref(error))
    if status:
        raise error_of(status, error.text.decode("utf-8", "replace"))


def text_of(value: Any) -> str:
    """A string of the library."""
    return bytes(value or b"").decode("utf-8", "replace")
