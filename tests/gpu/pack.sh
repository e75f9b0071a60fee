#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds the CUDA module, its tests and its benchmarks into DIR, together with the libraries they need, so
# that the folder can be copied to a machine with a GPU: DIR/run.sh there runs everything.
#   tests/gpu/pack.sh DIR [ARCHITECTURES]
# ARCHITECTURES: as CMAKE_CUDA_ARCHITECTURES, such as 90a-real for an H100 alone (default: all supported ones). A folder
# for one GPU may have at most 40 MB. nvcc is that of CUDACXX, of the PATH or of /usr/local/cuda (docs/gpu.md: from PyPI).
set -euo pipefail
to=$(realpath -m "${1:?usage: tests/gpu/pack.sh DIR [ARCHITECTURES]}")
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin

# CMake drops a preset's settings when a tree was configured with another compiler.
if [ -n "${CUDACXX:-}" ] && ! grep -qsxE "CMAKE_CUDA_COMPILER:[A-Z]+=$CUDACXX" build/cuda/CMakeCache.txt; then
  rm -rf build/cuda/CMakeCache.txt build/cuda/CMakeFiles
fi
if [ $# -gt 1 ]; then architectures=-DCMAKE_CUDA_ARCHITECTURES=$2; else architectures=-UCMAKE_CUDA_ARCHITECTURES; fi
cmake --preset cuda "$architectures" >/dev/null
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=\(.*nvcc.*\)/\1/p' build/cuda/CMakeCache.txt)
if [ -z "$nvcc" ]; then
  echo "no nvcc found: nothing to pack" >&2
  exit 1
fi
cmake --build --preset cuda
mkdir -p "$to"
cp -L build/cuda/bin/gpu_parity build/cuda/bin/gpu_bench build/cuda/bin/gpu_decode_step build/cuda/bin/moe "$to"
cp tests/gpu/run.sh tests/gpu/results.py "$to"
cp -L build/cuda/lib/libmoe.so.0.1 build/cuda/lib/libmoe_convert.so.0.1 build/cuda/lib/libmoe_serve.so.0.1 build/cuda/lib/libmoe_cuda.so "$to"
# Versions that run.sh compares with the driver, and reports.
{
  "$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/cuda \1/p'
  echo "architectures $(grep -oE 'code=\[[a-z_0-9,]+' build/cuda/build.ninja | sed 's/code=\[//' | tr ',' '\n' | sort -u | paste -sd' ')"
  echo "commit $(git describe --always --dirty 2>/dev/null || echo unknown)"
} >"$to/built"
# Libraries that the other machine may lack; it uses its own C and C++ libraries, as this one's may need a newer C library.
for file in "$to"/moe "$to"/*.so* "$to"/gpu_*; do
  ldd "$file" | awk '$3 ~ /^\// {print $3}'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64|libstdc\+\+|libgcc_s)\.so' |
  while read -r library; do
    [ -e "$to/$(basename "$library")" ] || cp -L "$library" "$to"
  done
for file in "$to"/moe "$to"/gpu_* "$to"/*.so*; do strip --strip-unneeded "$file" || true; done
bytes=$(du -s --bytes "$to" | cut -f1)
echo "$to: $((bytes / 1000000)) MB"
case "${2:-;}" in
  *\;*) ;; # several
  *) ((bytes <= 40000000)) || { echo "$to: more than 40 MB" >&2; exit 1; } ;;
esac
