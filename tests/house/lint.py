# SPDX-License-Identifier: MIT
"""Shared by the lints: the files of the repository, and their text without comments and strings."""

import os
import re
import subprocess
import sys

SOURCE_ENDINGS = (".h", ".inc", ".c", ".cpp", ".cu", ".cuh")


def files(root):
    """Paths, relative to root, of all files that belong to the repository."""
    git = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True)
    if git.returncode == 0:
        return [p for p in git.stdout.decode().split("\0") if os.path.isfile(os.path.join(root, p))]
    found = []
    for folder, folders, names in os.walk(root):  # not a git repository, but an unpacked archive
        folders[:] = [f for f in folders if f != "build" and not f.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return found


def sources(root):
    return [p for p in files(root) if p.endswith(SOURCE_ENDINGS)]


def code(path):
    """The text of a file with comments and the contents of strings removed; line numbers are kept."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    blank = lambda m: re.sub(r"[^\n]", " ", m[0]) if m[0].startswith("/") else '""'
    return re.sub(pattern, blank, text, flags=re.S)


def report(name, faults, n_checked):
    for fault in faults:
        print(fault)
    print(f"{name}: {n_checked} checked, {len(faults)} faults")
    if n_checked == 0:
        print("nothing was checked")
    sys.exit(1 if faults or n_checked == 0 else 0)
