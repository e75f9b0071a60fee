# SPDX-License-Identifier: MIT
"""python -m moe MODEL: describes a model, or continues a text; python -m moe analyse ...: analyses its
routing; python -m moe trace ...: draws a trace of it."""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import sys

from . import ArgumentError, Model, MoeError, __version__
from .analyse.command import run as run_analyse
from .analyse.trace import run as run_trace


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m moe", description="Shows what a model is, or continues a text.",
        epilog="python -m moe analyse --help: how a model routes a text; python -m moe trace --help: draws a trace")
    parser.add_argument("model", metavar="MODEL", help="a model file (.moe)")
    parser.add_argument("-p", "--prompt", metavar="TEXT", help="the text to continue")
    parser.add_argument("-n", "--max-tokens", type=int, default=128, metavar="N",
                        help="at most N new tokens (default %(default)s)")
    parser.add_argument("--temp", "--temperature", type=float, default=0.0, metavar="X", dest="temperature",
                        help="temperature; 0, the default, takes the most probable token")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same text")
    parser.add_argument("--device", metavar="NAME", help="auto (the CPU), cpu, cuda or cuda:N")
    parser.add_argument("--memory", metavar="SIZE", help="cap on the memory used, such as 2G")
    parser.add_argument("--version", action="version", version=f"moe {__version__}")
    return parser


def _run(options: argparse.Namespace) -> None:
    with Model(options.model, device=options.device, memory=options.memory) as model:
        if options.prompt is None:
            print(model)
            for field, value in dataclasses.asdict(model.info).items():
                print(f"  {field} {value}")
            return
        if not options.prompt:
            raise ArgumentError("the text is empty; give one with -p TEXT")
        pieces = model.session().generate(options.prompt, max_tokens=options.max_tokens,
                                          temperature=options.temperature, seed=options.seed)
        first = next(pieces, None)  # errors come before any text
        print(options.prompt + ("" if first is None else first.text), end="", flush=True)
        for piece in pieces:
            print(piece.text, end="", flush=True)
        print()


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given[:1] == ["analyse"]:
            run_analyse(given[1:])
        elif given[:1] == ["trace"]:
            run_trace(given[1:])
        else:
            _run(_parser().parse_args(given))
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MoeError, OSError, ValueError) as e:
        print(f"moe: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    sys.exit(main())
