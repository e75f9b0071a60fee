#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every CUDA kernel waits for those before it (kernels/cuda/launch.h starts it earlier): no test without a GPU can
see that one does not. Usage: lint_kernels.py ROOT"""

import os
import re
import sys

import lint

HEAD = re.compile(r"__global__\s+void\b")


def body(text, at):
    """The text between the braces that open after `at`."""
    begin = text.index("{", at)
    depth = 0
    for end in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin + 1:end]
    return text[begin:]


def main():
    root = sys.argv[1]
    faults, n_kernels = [], 0
    for path in lint.sources(root):
        if not path.startswith("kernels/cuda/"):
            continue
        text = lint.code(os.path.join(root, path))
        for head in HEAD.finditer(text):
            n_kernels += 1
            kernel = body(text, head.end())
            if kernel.strip() and "wait_for_previous()" not in kernel:
                line = text.count("\n", 0, head.start()) + 1
                faults.append(f"{path}:{line}: expected wait_for_previous() in the kernel")
    lint.report("kernels", faults, n_kernels)


if __name__ == "__main__":
    main()
