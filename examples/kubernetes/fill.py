#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fills in job.yaml, deployment.yaml, serve.yaml, kserve.yaml and pool.yaml: the memory from `moe inspect`, the rest
from the options.

    python3 fill.py MODEL [--sessions N] [--context N] [--memory SIZE] ... | kubectl apply -f -

The cluster is not queried. The memory request is what `moe inspect --memory` counts for N sessions plus
32 MiB for the program; the limit is a sixteenth more. Cached pages of the model file count too, but the
kernel reclaims them when memory is needed."""

import argparse
import json
import pathlib
import re
import string
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = 32 << 20
DISK = 100e6  # bytes/s of a slow disk
SERVERS = ("serve", "kserve", "pool")
# The lines of the memory account that every session adds; the others belong to the model.
SESSION = {"KV cache", "position tables", "activations", "scratch", "sampling", "session"}


def inspect(arguments):
    command = [arguments.moe, "inspect", arguments.model, "--json", "--device", "cpu", "--threads", str(arguments.cpus)]
    for name in ("context", "memory"):
        value = getattr(arguments, name)
        command += [f"--{name}", str(value)] if value else []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def needed(info, sessions):
    """Bytes of the model and its sessions; with a cap, the cap."""
    more = (sessions - 1) * sum(size for line, size in info["memory"].items() if line in SESSION)
    if "plan" not in info:
        return sum(info["memory"].values()) + more
    plan = info["plan"]
    if plan["least_cap_bytes"] + more > plan["cap_bytes"]:
        raise SystemExit(f"--memory: {plan['cap_bytes']} bytes; {sessions} sessions need "
                         f"{plan['least_cap_bytes'] + more}")
    return plan["cap_bytes"]


def mebibytes(n):
    return f"{-(-int(n) // (1 << 20))}Mi"


def values(arguments):
    name = pathlib.Path(arguments.model).name
    if not re.fullmatch(r"[\w.+-]+", name):
        raise SystemExit(f"MODEL: expected a file name of letters, digits and any of . + - _, found {name!r}")
    info = inspect(arguments)
    request = needed(info, arguments.sessions) + PROGRAM
    if arguments.kind in SERVERS:
        if arguments.max_seconds < 1:
            raise SystemExit("--max-seconds: expected 1 or more: a pod that ends waits for the requests that it has taken")
        options = ["--host=0.0.0.0", "--port=8080", "--api-key-file=/keys/keys", "--open-metrics", f"--slots={arguments.sessions}",
                   f"--max-seconds={arguments.max_seconds}"]
    else:
        options = [f"--sessions={arguments.sessions}", f"-n{arguments.n}"]
    options += [f"--threads={arguments.cpus}", "--device=cpu"]
    options += [f"--{name}={getattr(arguments, name)}" for name in ("context", "memory") if getattr(arguments, name)]
    reading = int(info["file_bytes"] / DISK)
    return {
        "image": arguments.image, "model": name, "cpus": arguments.cpus,
        "replicas": arguments.replicas, "parts": arguments.parts, "line_minutes": arguments.line_minutes,
        "request": mebibytes(request), "limit": mebibytes(request * 17 / 16),
        "verify_seconds": 10 + reading, "options": options, "start_failures": 15 + reading,
        "max_seconds": arguments.max_seconds, "grace_seconds": arguments.max_seconds + 15, "gateway": arguments.gateway,
    }


def filled(name, found):
    """Options are shell words in the job and a YAML list in the others."""
    joined = (" " if name == "job" else ", ").join(found["options"])
    return string.Template((HERE / f"{name}.yaml").read_text()).substitute(found, options=joined)


def worker_script():
    text = "".join(f"    {line}" for line in (HERE / "worker.sh").read_text().splitlines(keepends=True))
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: moe-worker\ndata:\n  worker.sh: |\n{text}"


def documents(arguments):
    found = values(arguments)
    script = [worker_script()] if arguments.kind == "deployment" else []
    return "---\n".join([*script, filled(arguments.kind, found)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--kind", choices=("job", "deployment", *SERVERS), default="job",
                        help="job, deployment: moe batch on files; serve: moe serve behind a service; kserve: as a runtime of "
                             "KServe; pool: the replicas of serve as a pool of an inference gateway")
    parser.add_argument("--sessions", type=int, default=8, help="texts evaluated together")
    parser.add_argument("--max-seconds", type=int, default=600, help="of a request to moe serve")
    parser.add_argument("--gateway", default="inference-gateway", help="name of the Gateway of a pool")
    parser.add_argument("--context", type=int, default=0, help="maximum tokens per text; 0: the model's context")
    parser.add_argument("--memory", default="", help="memory cap, such as 2G: larger models read experts from disk")
    parser.add_argument("--replicas", type=int, default=2, help="number of pods that run at once")
    parser.add_argument("--parts", type=int, default=16, help="number of files of a job")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("-n", type=int, default=256, help="largest number of tokens generated per line")
    parser.add_argument("--line-minutes", type=int, default=10, help="upper bound of the time for a line")
    parser.add_argument("--image", default="moe:latest", help="image built from this repository's Dockerfile")
    parser.add_argument("--moe", default="moe", help="the command")
    print(documents(parser.parse_args()), end="")


if __name__ == "__main__":
    main()
