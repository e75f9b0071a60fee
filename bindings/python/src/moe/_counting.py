# SPDX-License-Identifier: MIT
"""Counts of a session: the experts of each layer, and memory."""

from __future__ import annotations

import ctypes as c

from . import _structs as s
from ._arrays import int32
from ._library import call, lib
from ._session_calls import SessionCalls
from .info import ActivationStats, MemoryStats, RoutingStats, memory_stats, plain, routing_stats


class Counting(SessionCalls):
    """Part of Session."""

    def count_routing(self, on: bool = True) -> None:
        """Starts counting from zero, or stops."""
        with self._pointer() as session:
            call(lib.moe_session_count_routing, session, on)

    def routing(self, layer: int) -> RoutingStats:
        """The counts of a layer. UnsupportedError for a dense one, StateError when nothing
        is being counted."""
        stats = s.RoutingStats()
        with self._pointer() as session:
            call(lib.moe_session_get_routing, session, int32(layer, "layer"), c.byref(stats))
            return routing_stats(stats)

    def activations(self, layer: int) -> ActivationStats:
        """The activations that count_routing() counted in a layer, which may be dense. StateError when nothing
        is being counted."""
        stats = s.ActivationStats()
        with self._pointer() as session:
            call(lib.moe_session_get_activations, session, int32(layer, "layer"), c.byref(stats))
        return plain(ActivationStats, stats)

    @property
    def memory_stats(self) -> MemoryStats:
        """Experts found in memory and read, and memory use."""
        stats = s.MemoryStats()
        with self._pointer() as session:
            call(lib.moe_session_get_memory_stats, session, c.byref(stats))
        return memory_stats(stats)
