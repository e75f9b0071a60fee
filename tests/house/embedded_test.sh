#!/bin/bash
# SPDX-License-Identifier: MIT
# Checks the libmoe of the preset embedded: its size is reported, its symbols are those of a core; with `bare`, of the
# preset bare, what it needs of the C library. Usage: embedded_test.sh size|symbols|bare BUILD_DIR
set -euo pipefail
here=$(dirname "$0")
library=$2/lib/libmoe.so
case $1 in
  size) python3 -B "$here/size_test.py" "$library" 890000 ;;  # 33 kB are IQ types: codebooks, and reading by them
  symbols)
    python3 -B "$here/lint_symbols.py" core "$library"
    python3 -B "$here/lint_symbols.py" isa "$2"
    if nm -C "$library" | grep -E 'moe::grammar::(SchemaCompiler|Matcher::allowed)'; then
      echo "$library has the engine of grammars, which MOE_GRAMMAR=OFF leaves out" >&2
      exit 1
    fi
    if readelf -d "$library" | grep -E 'NEEDED.*(pcre2|utf8proc|stdc\+\+)'; then
      echo "$library needs a library that the preset embedded must not need" >&2
      exit 1
    fi ;;
  bare) python3 -B "$here/lint_symbols.py" bare "$2/lib/libmoe.a" ;;
esac
