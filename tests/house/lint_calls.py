#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library never ends the process and never prints, and few of its files know of a model's budget. Usage: lint_calls.py ROOT"""

import os
import re
import sys

import lint

LIBRARY = ("src/", "quant/", "kernels/", "formats/")
FORBIDDEN = {
    "ends the process": r"\b(abort|_?exit|quick_exit|terminate|__builtin_trap|raise|kill)\s*\(",
    "ends the process when it fails": r"(?<!static_)\bassert\s*\(",
    "prints": r"\b(f|v|vf|d|vd)?printf\s*\(|\b(puts|putchar|fputs|perror|psignal)\s*\(",
    "uses the process's streams": r"\b(stdout|stderr|cout|cerr|clog)\b",
    "has process-wide state": r"\b(strtok|setlocale|srand|rand|signal|sigaction|setenv|atexit)\s*\(",
    "depends on the locale": r"\b(strto(d|f|ld)|ato[fil]|isalpha|isspace|tolower|toupper)\s*\(",
}
# Whoever else wants memory says what it takes, or is lent it: see src/model/README.md.
OF_THE_BUDGET = r"\b(Budget|Reservation|Claimant)\b|\bbudget\(\)\."
KNOW_THE_BUDGET = {"src/model/budget.cpp", "src/model/budget.h", "src/model/model.cpp", "src/model/model.h", "src/run/memory.cpp",
                   "src/run/workspace.cpp", "src/run/workspace.h", "src/c_api/memory.cpp"}


def main():
    root = sys.argv[1]
    faults = []
    paths = [p for p in lint.sources(root) if p.startswith(LIBRARY)]
    for path in paths:
        for number, line in enumerate(lint.code(os.path.join(root, path)).splitlines(), 1):
            for why, pattern in FORBIDDEN.items():
                found = re.search(pattern, line)
                if found:
                    faults.append(f"{path}:{number}: {found[0].strip()} {why}")
            if path not in KNOW_THE_BUDGET and (found := re.search(OF_THE_BUDGET, line)):
                faults.append(f"{path}:{number}: {found[0]} belongs to the files that KNOW_THE_BUDGET")
    lint.report("calls", faults, len(paths))


main()
