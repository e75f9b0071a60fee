# SPDX-License-Identifier: MIT
"""What a session did: the experts of each layer, and memory."""

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
        """What was counted in a layer. UnsupportedError for a dense one, StateError when nothing
        is being counted."""
        stats = s.RoutingStats()
        with self._pointer() as session:
            call(lib.moe_session_get_routing, session, int32(layer, "layer"), c.byref(stats))
            return routing_stats(stats)

    def activations(self, layer: int) -> ActivationStats:
        """What count_routing() counted inside a layer, dense ones included. StateError when nothing
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
