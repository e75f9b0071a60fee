# SPDX-License-Identifier: MIT
"""Threads and instruction set that models share."""

from __future__ import annotations

import ctypes as c
import dataclasses
from collections.abc import Callable

from . import _structs as s
from ._constants import LogLevel
from ._handle import Closable, Native, optional_bytes
from ._library import call, lib, names_of, text_of

LogFunction = Callable[[LogLevel, str], None]


@dataclasses.dataclass(frozen=True)
class EnvironmentInfo:
    threads: int
    device: str
    isa: str


class Environment(Closable):
    """Owns the compute threads. Any number of threads may use it at the same time.

    threads: threads that compute, the caller's included; 0: what the machine allows this process.
    isa:     None for the best this CPU has, or a name of isas(). Results are the same bits.
    device:  None, "auto" or "cpu" for the CPU; "cuda", "cuda:N" for a GPU.
    gpu_memory: most bytes that are allocated on the GPU; 0, or above: 15/16 of what is free.
    log:     gets each message, possibly from several threads. The library cannot be stopped by an
             exception in it: that is reported through sys.unraisablehook. It must not use the library,
             which may hold a lock meanwhile.
    """

    _what = "environment"

    def __init__(self, *, threads: int = 0, isa: str | None = None,
                 device: str | None = None, gpu_memory: int = 0,
                 log: LogFunction | None = None) -> None:
        params = s.EnvParams(threads=threads, isa=optional_bytes(isa),
                             device=optional_bytes(device), gpu_memory_bytes=gpu_memory)
        callback = None
        if log is not None:
            function = log
            callback = s.LogFn(lambda _, level, text: function(LogLevel(level), text_of(text)))
            params.log = callback
        pointer = c.c_void_p()
        call(lib.moe_env_create, c.byref(params), c.byref(pointer))
        assert pointer.value is not None
        self._native = Native(pointer.value, lib.moe_env_free, keep=callback)

    def _describe(self) -> str:
        info = self.info
        return f"{info.device}, {info.threads} threads"

    @property
    def info(self) -> EnvironmentInfo:
        info = s.EnvInfo()
        with self._pointer() as env:
            call(lib.moe_env_get_info, env, c.byref(info))
            return EnvironmentInfo(info.threads, text_of(info.device), text_of(info.isa))


def isas() -> tuple[str, ...]:
    """Names of the instruction sets built into the library, best first."""
    return names_of(lib.moe_isa_name)


def weight_formats() -> tuple[str, ...]:
    """Names of the weight formats, for convert() and MoeLayer."""
    return names_of(lib.moe_weight_format_name)


def router_kinds() -> tuple[str, ...]:
    """Names of the kinds of routers; Session.set_router() accepts "topk" and "threshold"."""
    return names_of(lib.moe_router_kind)


def version() -> str:
    """Version of the library at run time."""
    return text_of(lib.moe_version_string())
