#!/bin/bash
# Builds the CUDA module, its tests and its benchmarks into DIR, together with the libraries they need, so
# that the folder can be copied to a machine with a GPU (run.sh --build DIR).
#   tests/gpu/pack.sh DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
to=${1:?usage: tests/gpu/pack.sh DIR}

cmake --preset cuda >/dev/null
if ! grep -q '^CMAKE_CUDA_COMPILER:.*nvcc' build/cuda/CMakeCache.txt; then
  echo "no nvcc found: nothing to pack" >&2
  exit 1
fi
cmake --build --preset cuda
mkdir -p "$to"
cp -L build/cuda/bin/gpu_parity build/cuda/bin/gpu_bench build/cuda/bin/moe "$to"
cp -L build/cuda/lib/libmoe.so.0 build/cuda/lib/libmoe_convert.so.0 build/cuda/lib/libmoe_cuda.so "$to"
# Libraries that the other machine may lack; it uses its own C library.
for file in "$to"/moe "$to"/*.so* "$to"/gpu_*; do
  ldd "$file" | awk '$3 ~ /^\// {print $3}'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so' |
  while read -r library; do
    [ -e "$to/$(basename "$library")" ] || cp -L "$library" "$to"
  done
for file in "$to"/moe "$to"/gpu_* "$to"/*.so*; do strip --strip-unneeded "$file" || true; done
du -sh "$to"
