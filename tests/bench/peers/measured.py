# SPDX-License-Identifier: MIT
"""Shared by the workers of both engines: the tokens, the memory limit, and the bytes read from disk."""

import os
import resource


def random_tokens(n, vocab):
    tokens, state = [], 1
    for _ in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        tokens.append((state >> 8) % vocab)
    return tokens


def join(cgroup):
    """Moves this process into the cgroup, which counts the memory allocated from now on; the interpreter's is not counted."""
    with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="utf-8") as f:
        f.write(str(os.getpid()))


def read_bytes():
    """Bytes that all threads of this process read from disk; reads from the page cache do not count."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def peak_bytes(cgroup):
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        path = os.path.join(cgroup, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                return int(f.read())
    return 0
