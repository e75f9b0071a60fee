#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Carries out the steps of the Dockerfile without Docker: each stage in a copy of a minimal Debian 12, RUN
with chroot. Then runs the entry point as its user. Needs root and a network; see bare.sh.
Usage: dockerfile.py BARE_TREE SCRATCH_FOLDER ARGUMENT..."""

import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def steps():
    """[(instruction, rest of the line)] of the Dockerfile."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(None, 1) for line in lines]


class Image:
    def __init__(self, base, scratch):
        self.base, self.scratch = base, pathlib.Path(scratch)
        self.stages, self.tree, self.folder, self.user, self.entry = {}, None, "/", "root", []

    def do_from(self, rest):
        name, _, alias = rest.partition(" AS ")
        if name != "debian:bookworm-slim":
            raise SystemExit(f"unknown image {name}")
        self.tree = self.scratch / f"stage{len(self.stages)}"
        self.stages[alias or str(len(self.stages))] = self.tree
        subprocess.run(["cp", "-a", self.base, self.tree], check=True)
        subprocess.run(["cp", "/etc/resolv.conf", self.tree / "etc"], check=True)
        self.folder, self.user = "/", "root"

    def do_copy(self, rest):
        *options, source, target = shlex.split(rest)
        to = self.tree / target.lstrip("/")
        if options:
            stage = self.stages[options[0].removeprefix("--from=")]
            subprocess.run(["cp", "-a", stage / source.lstrip("/"), to], check=True)
            return
        to.mkdir(parents=True)
        left = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
        ignored = [f"--exclude=./{name}" for name in left]
        packed = subprocess.Popen(["tar", "-c", *ignored, "."], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", to], stdin=packed.stdout, check=True)

    def do_run(self, rest):
        self.inside(rest, "root")

    def do_user(self, rest):
        self.user = rest

    def do_workdir(self, rest):
        self.folder = rest
        (self.tree / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def do_entrypoint(self, rest):
        self.entry = json.loads(rest)

    def inside(self, command, user):
        script = 'mount -t proc proc "$1/proc" && mount -t devtmpfs dev "$1/dev" && exec chroot --userspec "$2" "$1" sh -ec "$3"'
        subprocess.run(["unshare", "--mount", "--fork", "sh", "-c", script, "sh", self.tree, user,
                        f"cd {self.folder}; {command}"], check=True)


def main():
    base, scratch, *arguments = sys.argv[1:]
    image = Image(base, scratch)
    for instruction, rest in steps():
        print(f"{instruction} {rest}", flush=True)
        getattr(image, f"do_{instruction.lower()}")(rest)
    image.inside(shlex.join(image.entry + arguments), image.user)


main()
