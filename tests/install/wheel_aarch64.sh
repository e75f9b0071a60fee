#!/bin/bash
# SPDX-License-Identifier: MIT
# Uses the libraries of a wheel for 64-bit ARM under qemu-user: examples/generate.c generates the same text as with
# BUILD_DIR on this machine, in C and in Debian's Python, and the converter can be loaded.
# Usage: wheel_aarch64.sh WHEEL BUILD_DIR
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: wheel_aarch64.sh WHEEL BUILD_DIR" >&2; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m zipfile -e "$1" "$scratch"
libraries=$scratch/moe
on_arm() { qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$libraries" "$@"; }

# The output goes to files because the exit status of a program in a pipe or in <() is lost.
aarch64-linux-gnu-objdump -p "$libraries"/libmoe*.so.0.* >"$scratch/needed"
grep -q 'NEEDED' "$scratch/needed" || { echo "wheel_aarch64: objdump names no library" >&2; exit 1; }
if grep -E 'NEEDED.*(pcre2|utf8proc|zstd)' "$scratch/needed"; then
  echo "wheel_aarch64: needs libraries that are not in the wheel" >&2
  exit 1
fi
aarch64-linux-gnu-gcc -std=c99 "$root/examples/generate.c" -I"$root/include" "$libraries/libmoe.so.0.1" -o "$scratch/generate"
story=("$root/examples/models/stories.moe" "Once upon a time")
on_arm "$scratch/generate" "${story[@]}" >"$scratch/there"
"$2/bin/example_generate" "${story[@]}" >"$scratch/here"
diff "$scratch/there" "$scratch/here"

cat >"$scratch/convert.c" <<'END'
#include <moe_c.h>
#include <string.h>
int main(void) {
  moe_error error;
  return moe_convert("no such folder", "model.moe", NULL, &error) == MOE_OK || strstr(error.text, "no such folder") == NULL;
}
END
aarch64-linux-gnu-gcc -std=c99 "$scratch/convert.c" -I"$root/include" "$libraries/libmoe_convert.so.0.1" "$libraries/libmoe.so.0.1" -o "$scratch/convert"
on_arm "$scratch/convert"

debian=$scratch/debian
packages=(python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 libexpat1 libffi8 zlib1g
  python3-numpy libblas3 liblapack3 libgfortran5)
bash "$root/scripts/fetch-cross-libs.sh" arm64 "$debian" "${packages[@]}" >"$scratch/log" 2>&1 || { tail "$scratch/log" >&2; exit 1; }
system=$debian/usr/lib/aarch64-linux-gnu
cat >"$scratch/generate.py" <<'END'
import sys, moe
print(sys.argv[2] + moe.Model(sys.argv[1]).session().generate(sys.argv[2], max_tokens=16).text())
END
"$2/bin/moe" generate "${story[0]}" -p "${story[1]}" -n 16 >"$scratch/here" 2>"$scratch/log"
qemu-aarch64 -L "$debian" -E "LD_LIBRARY_PATH=$system:$system/blas:$system/lapack" -E "PYTHONHOME=$debian/usr" \
  -E "PYTHONPATH=$scratch:$debian/usr/lib/python3/dist-packages" "$debian/usr/bin/python3.11" "$scratch/generate.py" "${story[@]}" >"$scratch/there"
diff "$scratch/there" "$scratch/here"
echo "$(basename "$1"): the same text as here"
