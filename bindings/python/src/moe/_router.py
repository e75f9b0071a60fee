# SPDX-License-Identifier: MIT
"""Routers as texts, "topk:2,renormalised", and as the struct of moe_c.h."""

from __future__ import annotations

import ctypes as c

from . import _structs as s
from ._handle import optional_bytes
from ._library import call, lib, text_of


def parse_router(text: str) -> s.Router:
    """ArgumentError lists what a text may say."""
    router = s.Router()
    call(lib.moe_router_parse, optional_bytes(text), c.byref(router))
    return router


def router_text(router: s.Router) -> str:
    n = c.c_size_t()
    call(lib.moe_router_format, c.byref(router), None, 0, c.byref(n))
    text = c.create_string_buffer(n.value + 1)
    call(lib.moe_router_format, c.byref(router), text, n.value + 1, c.byref(n))
    return text_of(text.value)
