#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the commands that a document shows and compares their output.

Usage: documents.py [--update] [--only WORD] BUILD_DIR DOCUMENT...

The word after the fence gives the kind of a block:
  console   `$ command`, then its output; the command must succeed and print exactly that
  sh        commands that must succeed, one after the other; their output is not compared
  python    a program; a `text` block that follows it is its output
  text      shown, not run (except as the output of a python block)
A comment in the line above the fence changes this:
  <!-- not run: REASON -->    for commands that need a GPU, a download, hours, or a person
  <!-- exits with N -->       for a command that must fail

In expected output, `...` matches anything within a line, and a line of `...` matches any lines.
Times and speeds (12.3 s, 4567 tokens/s, 8.9 GB/s) match any others. Everything runs in one scratch
folder with its own HOME and with links to the repository's folders and to BUILD_DIR as build/release.
The command moe is in PATH, except for README.md, which says how to put it there. --update replaces
the expected output in the documents by the actual output, unless it contains `...`.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\s*$")
DIRECTIVE = re.compile(r"^<!--\s*(not run: .+|exits with (\d+))\s*-->\s*$")
SPEED = re.compile(r"\d[\d.,]*(?= ?(?:(?:tokens)?/s|s|ms|GB/s|MB/s)\b)")


class Block:
    """The lines [begin, end) of a code block, without the fences."""

    def __init__(self, kind, begin, directive):
        self.kind, self.begin, self.end = kind, begin, begin
        self.skipped = directive is not None and directive[1].startswith("not run")
        self.status = int(directive[2]) if directive is not None and directive[2] else 0


def blocks(lines):
    found, block = [], None
    for i, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence and block is None:
            block = Block(fence[1], i + 1, DIRECTIVE.match(lines[i - 1]) if i else None)
        elif fence:
            block.end = i
            found.append(block)
            block = None
    if block is not None:
        raise SystemExit(f"a block that begins in line {block.begin} has no end")
    return found


def commands(lines):
    """[(command, expected lines, first line, last line)] of a console block."""
    found = []
    i = 0
    while i < len(lines):
        if not lines[i].startswith("$ "):
            raise SystemExit(f"expected a line '$ command', found: {lines[i]}")
        command = lines[i][2:]
        while command.endswith("\\"):
            i += 1
            command += "\n" + lines[i]
        begin = i = i + 1
        while i < len(lines) and not lines[i].startswith("$ "):
            i += 1
        found.append((command, begin, i))
    return found


def normal(line):
    return SPEED.sub("#", line.rstrip())


def agree(expected, seen):
    """Whether the lines agree; `...` in the expected lines matches anything."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in normal(line).split("...")) + r"\n"
    return re.fullmatch(pattern, "".join(normal(line) + "\n" for line in seen)) is not None


def python_with_numpy():
    """A python3 with NumPy: Debian's may not be the first one in PATH."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode == 0:
            return python
    raise SystemExit("no python3 with NumPy was found")


class Shell:
    """A folder and an environment in which commands run one after the other."""

    def __init__(self, build, command_in_path=True):
        self.scratch = tempfile.TemporaryDirectory(prefix="moe-documents-")
        self.folder = pathlib.Path(self.scratch.name) / "moe"
        for path in ROOT.iterdir():
            if path.name not in ("build", ".git"):
                self.link(path.name, path)
        self.link("build/release", build)
        self.state = self.folder.parent / "state"
        home = self.folder.parent / "home"
        home.mkdir()
        path = f"{pathlib.Path(python_with_numpy()).parent}:{os.environ['PATH']}"
        path += f":{build}/bin" if command_in_path else ""
        self.environment = {
            "HOME": str(home), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT / "bindings/python/src"),
            "PYTHONDONTWRITEBYTECODE": "1", "MOE_LIBRARY": str(build / "lib/libmoe.so")}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.scratch.cleanup()

    def link(self, name, target):
        link = self.folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def run(self, command):
        """(exit status, lines of stdout and stderr). Exported variables are kept for the next command."""
        script = (f"[ -f {self.state} ] && . {self.state}\n{command}\n"
                  f"status=$?; export -p > {self.state}; exit $status")
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=600)
        return done.returncode, done.stdout.decode(errors="replace").splitlines()


class Document:
    def __init__(self, path, shell, only):
        self.path, self.shell, self.only = path, shell, only
        self.lines = path.read_text().splitlines()
        self.updates = []  # (begin, end, lines)
        self.checked = 0
        self.failed = 0

    def fail(self, line, text, seen):
        self.failed += 1
        print(f"{self.path}:{line}: {text}\n" + "".join(f"   | {s}\n" for s in seen))

    def check(self, command, begin, end, status, compare=True):
        """Runs a command and compares its output with the lines [begin, end)."""
        if self.only not in command:
            return
        self.checked += 1
        code, seen = self.shell.run(command)
        expected = self.lines[begin:end]
        if code != status:
            self.fail(begin, f"exit status {code}, expected {status}: {command}", seen)
        elif compare and not agree(expected, seen):
            self.fail(begin, f"prints something else: {command}", seen)
            if not any("..." in line for line in expected):
                self.updates.append((begin, end, seen))

    def run(self):
        found = blocks(self.lines)
        for block, following in zip(found, found[1:] + [None]):
            if block.skipped:
                continue
            lines = self.lines[block.begin:block.end]
            if block.kind == "console":
                for command, begin, end in commands(lines):
                    self.check(command, block.begin + begin, block.begin + end, block.status)
            elif block.kind == "sh":
                self.check("set -e\n" + "\n".join(lines), block.begin, block.end, block.status,
                           compare=False)
            elif block.kind == "python":
                program = python_with_numpy() + " - <<'END_OF_PROGRAM'\n" + "\n".join(lines) + "\nEND_OF_PROGRAM"
                if following is not None and following.kind == "text":
                    self.check(program, following.begin, following.end, block.status)
                else:
                    self.check(program, block.begin, block.end, block.status, compare=False)

    def update(self):
        for begin, end, seen in reversed(self.updates):
            self.lines[begin:end] = seen
        if self.updates:
            self.path.write_text("\n".join(self.lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write the actual output into the documents")
    parser.add_argument("--only", default="", help="only commands that contain this text")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("documents", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    failed = 0
    for path in arguments.documents:
        with Shell(arguments.build.resolve(), path.name != "README.md") as shell:
            document = Document(path, shell, arguments.only)
            document.run()
        if arguments.update:
            document.update()
        failed += document.failed
        if document.checked == 0:
            document.fail(1, "no command was run", [])
            failed += 1
        print(f"{path}: {document.checked} commands, {document.failed} of them failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
