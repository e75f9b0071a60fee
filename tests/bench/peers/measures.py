# SPDX-License-Identifier: MIT
"""Names the rates that a race measures: of prompts, and of decode in an empty context, at a depth, and with several sessions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One rate in tokens per second: of a prompt if `prompt` is not 0, otherwise of decoding."""

    prompt: int = 0
    depth: int = 0  # tokens in the context before decoding begins
    sessions: int = 1  # that decode together, one token each per step

    @property
    def name(self):
        if self.prompt:
            return f"prefill {self.prompt}"
        at = f" at {self.depth}" if self.depth else ""
        return f"decode{at}" + (f", {self.sessions} sessions" if self.sessions > 1 else "")


def measures(prompts, depths=(), sessions=1):
    """Decode first, then prompts, depths and sessions."""
    found = [Measure(), *(Measure(prompt=p) for p in prompts), *(Measure(depth=d) for d in depths)]
    return found + ([Measure(sessions=sessions)] if sessions > 1 else [])


def add_options(parser, prompts=(32, 512), repetitions=3):
    """The options that select measures, the same for compare.py and its workers."""
    numbers = lambda s: [int(n) for n in s.split(",") if n]
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-p", "--prompts", type=numbers, default=list(prompts), help="lengths of prompts")
    parser.add_argument("-d", "--depths", type=numbers, default=[], help="decode with so many tokens in the context, too")
    parser.add_argument("-s", "--sessions", type=int, default=1, help="decode with so many sessions together, too")
    parser.add_argument("-n", "--generate", type=int, default=32, help="tokens that decoding evaluates")
    parser.add_argument("-r", "--repetitions", type=int, default=repetitions,
                        help="repetitions of each measurement in a process, of which the median is taken")


def check_options(parser, o):
    if min(o.repetitions, o.generate, o.sessions, o.threads, *o.prompts, *o.depths) < 1:
        parser.error("threads, repetitions, sessions, depths and tokens are positive")
    return measures(o.prompts, o.depths, o.sessions)


def arguments(o):
    """The options of add_options() for a worker."""
    lists = lambda numbers: ",".join(map(str, numbers))
    return ["-t", str(o.threads), "-p", lists(o.prompts), "-d", lists(o.depths), "-s", str(o.sessions),
            "-n", str(o.generate), "-r", str(o.repetitions)]
