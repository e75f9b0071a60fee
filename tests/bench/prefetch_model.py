#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Estimates the gain of prefetching predicted experts of the next layer: replays a trace on a model of cache, disk and CPU.

    python3 tests/bench/prefetch_model.py TRACE.csv                       # a routing trace: docs/traces.md
    python3 tests/bench/prefetch_model.py TRACE.csv --expert-mb 1.13 --disk 1.13 --layer-ms 0.09 --expert-ms 0.026

This is a simulation, so the load of the machine does not matter. The disk serves one read at a time at full speed, in the
order of the requests. A layer takes --layer-ms (attention, router), then each of its experts --expert-ms. The experts that
the router chose are read first, while those in memory are computed, as the library does. With prefetching, the experts
predicted for the next layer are read behind them. When the next layer is routed, predicted reads that have not begun are
dropped; those that have begun are finished, needed or not, and evict the least recently used experts. The column heading is
the probability that a prediction is right. A wrong prediction is drawn from the experts of that layer by their frequency in
the trace: popular experts, which are more often in memory than others.
"""

import argparse
import collections
import random


def read_trace(path):
    """The numbers of layers and experts, the prompt's (layer, expert) pairs in order, and each decode step's experts by layer."""
    prompt, steps = [], {}
    with open(path) as f:
        sizes = dict(p.split("=") for p in f.readline()[1:].split())
        f.readline()
        for line in f:
            phase, step, layer, _, expert, _ = line.split(",")
            if phase == "0":
                prompt.append((int(layer), int(expert)))
            else:
                steps.setdefault(int(step), {}).setdefault(int(layer), []).append(int(expert))
    return int(sizes["n_layer"]), int(sizes["n_expert"]), prompt, [steps[s] for s in sorted(steps)]


class Cache:
    def __init__(self, room):
        self.room, self.held = room, collections.OrderedDict()

    def use(self, expert):
        self.held[expert] = True
        self.held.move_to_end(expert)
        if len(self.held) > self.room:
            self.held.popitem(last=False)


def decode(trace, room, a, right):
    """Milliseconds per token, and MB read per token. right is the probability of a right prediction; None: no prefetching."""
    n_layers, _, prompt, steps = trace
    rng = random.Random(1)
    used = collections.defaultdict(list)
    for layer, e in prompt + [(layer, e) for step in steps for layer, chosen in step.items() for e in chosen]:
        used[layer].append(e)
    cache = Cache(room)
    for expert in prompt:
        cache.use(expert)
    read_ms = a.expert_mb / a.disk
    now = free = 0.0  # the CPU's time, and the time at which the disk becomes idle
    coming = {}  # expert: (begin, end) of its prefetch
    n_reads = 0
    for step in steps:
        for layer in range(n_layers):
            now += a.layer_ms
            # Drop the prefetches that have not begun.
            late = [e for e, (begin, _) in coming.items() if begin >= now]
            for e in late:
                del coming[e]
            n_reads -= len(late)
            free = max([end for _, end in coming.values()] + [min(free, now)])
            chosen = [(layer, e) for e in step.get(layer, [])]
            ready = []
            for e in chosen:
                there = now
                if e in coming:
                    there = coming.pop(e)[1]
                elif e not in cache.held:
                    begin = max(now, free)
                    there = free = begin + read_ms
                    n_reads += 1
                ready.append(there)
            for e in chosen:
                cache.use(e)
            for e, (begin, end) in list(coming.items()):  # wrong predictions that were read
                if end <= now:
                    cache.use(e)
                    del coming[e]
            if right is not None and layer + 1 < n_layers:
                wanted = [(layer + 1, e) for e in step.get(layer + 1, [])]
                for e in wanted:
                    guess = e if rng.random() < right else (layer + 1, rng.choice(used[layer + 1]))
                    if guess in cache.held or guess in coming:
                        continue
                    begin = max(now, free)
                    coming[guess] = (begin, begin + read_ms)
                    free = begin + read_ms
                    n_reads += 1
            for there in sorted(ready):
                now = max(now, there) + a.expert_ms
    return now / len(steps), n_reads * a.expert_mb / len(steps)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("trace")
    p.add_argument("--expert-mb", type=float, default=1.13, help="size of one expert")
    p.add_argument("--disk", type=float, default=1.13, help="GB/s")
    p.add_argument("--layer-ms", type=float, default=0.09, help="time of a layer without its experts")
    p.add_argument("--expert-ms", type=float, default=0.026, help="time of one expert")
    a = p.parse_args()
    trace = read_trace(a.trace)
    n = trace[0] * trace[1]
    print("memory for   read ms   none: ms   bound   right 0.7      0.8      0.9      1.0   (ms a token, MB read)")
    for share in (0.125, 0.25, 0.5, 0.75):
        room = int(share * n)
        plain, mb = decode(trace, room, a, None)
        compute = decode(trace, n * 9, argparse.Namespace(**{**vars(a), "disk": 1e9}), None)[0]
        row = [f"{100 * share:8.1f} % {mb / a.disk:9.1f} {plain:10.1f} {max(mb / a.disk, compute):7.1f}  "]
        for right in (0.7, 0.8, 0.9, 1.0):
            ms, more = decode(trace, room, a, right)
            row.append(f"{ms:6.1f} ({more:.0f})")
        print(" ".join(row))


if __name__ == "__main__":
    main()
