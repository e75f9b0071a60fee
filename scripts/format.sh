#!/bin/bash
# SPDX-License-Identifier: MIT
# Formats the C and C++ sources with clang-format; --check changes nothing and fails on a difference.
set -euo pipefail
cd "$(dirname "$0")/.."
options=(-i)
[ "${1:-}" = "--check" ] && options=(--dry-run -Werror)
git ls-files -z --cached --others --exclude-standard '*.h' '*.inc' '*.c' '*.cpp' '*.cu' '*.cuh' |
  xargs -0 -n 20 -P "$(nproc)" clang-format "${options[@]}"
