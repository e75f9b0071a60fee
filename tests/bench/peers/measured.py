"""What the workers of both engines share: the tokens, the memory limit, and what was read from the disk."""

import os
import resource


def random_tokens(n, vocab):
    tokens, state = [], 1
    for _ in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        tokens.append((state >> 8) % vocab)
    return tokens


def join(cgroup):
    """From here on this process's memory counts in that cgroup, its Python does not."""
    with open(os.path.join(cgroup, "cgroup.procs"), "w", encoding="utf-8") as f:
        f.write(str(os.getpid()))


def read_bytes():
    """From the disk, by all threads of this process; what the page cache held does not count."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def peak_bytes(cgroup):
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        path = os.path.join(cgroup, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                return int(f.read())
    return 0
