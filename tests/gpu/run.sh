#!/bin/bash
# SPDX-License-Identifier: MIT
# Tests, measures and profiles the CUDA device on a GPU, within a given time.
#   tests/gpu/run.sh [--build DIR] [--out FILE] [--seconds N]
# --build DIR: a folder made by tests/gpu/pack.sh, on this machine or another; by default the one this
# script is in, or one is made first. --out: the file for the results (default: build/gpu.json); beside it
# goes an archive, FILE.tar.gz for FILE.json, with the results and all logs. Both are written anew after each stage,
# and within it every few seconds, so that what ends the run loses only the running stage. --seconds: the time for everything but
# making a build (default 520); each stage has a share, and what earlier stages leave is for the later ones.
# A stage that fails or takes too long does not end the run. Exits with 77 (CTest: skipped) if there is no GPU, and with
# 0 only if everything but the sanitizers ran to its end and nothing failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cuda=${CUDA_PATH:-/usr/local/cuda}
PATH=$PATH:$cuda/bin

build=
out=build/gpu.json
deadline=520
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    --seconds) deadline=${2:?--seconds needs a number}; shift 2 ;;
    *) echo "usage: tests/gpu/run.sh [--build DIR] [--out FILE] [--seconds N]" >&2; exit 2 ;;
  esac
done
[[ $deadline =~ ^[1-9][0-9]{0,5}$ ]] || { echo "--seconds: expected a whole number, found '$deadline'" >&2; exit 2; }

gpus=$(nvidia-smi -L 2>/dev/null || true)
case "$gpus" in
  *GPU*) ;;
  *) echo "No GPU here (nvidia-smi names none): nothing was run."; exit 77 ;;
esac
command -v python3 >/dev/null || { echo "run.sh: no python3, which writes the results" >&2; exit 1; }
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
if [ -z "$build" ] && [ -x "$here/gpu_parity" ]; then build=$here; fi
if [ -z "$build" ]; then
  build=$here/../../build/gpu
  bash "$here/pack.sh" "$build"
  SECONDS=0
fi
bin=$(cd "$build" && pwd)

# A driver runs programs of its own major version of CUDA and of earlier ones.
cat "$bin/built" 2>/dev/null || echo "$bin/built is missing: nothing is known of the build"
needs=$(sed -n 's/^cuda \([0-9]*\).*/\1/p' "$bin/built" 2>/dev/null || true)
offers=$( (nvidia-smi || true) | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p')
if [ -n "$needs" ] && [ -n "$offers" ] && [ "$offers" -lt "$needs" ]; then
  echo "The driver runs programs for CUDA $offers and earlier; the build is for CUDA $needs: install a newer" \
    "driver (CUDA 12: 525, CUDA 13: 580 or newer), or run pack.sh with nvcc $offers." >&2
  exit 1
fi

work=$(mktemp -d)
logs=$work/logs
mkdir "$logs"
failed=0
running=
maker=
finish() {
  local pid
  for pid in $running $maker; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap finish EXIT
trap 'echo "ended by a signal"; report; exit 143' INT TERM

export LD_LIBRARY_PATH=$bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
{ cat "$bin/built" 2>/dev/null || true; } >"$logs/built.log"
nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader \
  >"$logs/gpu.log" 2>&1 || true

# Writes the results so far, and the archive.
archive=${out%.json}.tar.gz
reported=0
report() {
  reported=$SECONDS
  python3 "$here/results.py" "$logs" "$out" "$offers" >"$work/summary" ||
    { echo "$out could not be written"; failed=1; }
  cp "$out" "$logs/results.json" 2>/dev/null || true
  tar -czf "$archive.partial" -C "$work" logs && mv "$archive.partial" "$archive" ||
    { echo "$archive could not be written"; failed=1; }
}

# stage NAME SHARE: what follows may take until SHARE hundredths of the time have passed.
stage() {
  report
  echo "== $1 ($SECONDS s)"
  stage_end=$((deadline * $2 / 100))
}

# step NAME SECONDS COMMAND...: runs it with its output in $logs/NAME.log and its end in NAME.result; with
# `json` set, its standard output in that file. No step outlasts its stage. With `optional` set, one that finds
# no time left, or that the end of the stage cuts off, is no failure.
step() {
  local name=$1 limit=$2 rc=0 result=ok cut= left=$((stage_end - SECONDS - 3))
  shift 2
  ((limit <= left)) || { limit=$left cut=1; }
  if ((limit < 2)); then
    echo "not run: no time left" >"$logs/$name.result"
    echo "$name: not run: no time left"
    [ -n "${optional:-}" ] || failed=1
    return 1
  fi
  # In the background, so that a signal is answered at once.
  timeout -k 3 "$limit" "$@" >"${json:-$logs/$name.log}" 2>"$logs/$name.errors" &
  running=$!
  wait "$running" || rc=$?
  running=
  if [ -n "${json:-}" ]; then mv "$logs/$name.errors" "$logs/$name.log"; else cat "$logs/$name.errors" >>"$logs/$name.log"; fi
  rm -f "$logs/$name.errors"
  if [ "$(stat -c %s "$logs/$name.log")" -gt 4000000 ]; then # thousands of errors of one kind
    { head -c 2000000 "$logs/$name.log"; printf '\n... shortened ...\n'; tail -c 2000000 "$logs/$name.log"; } >"$work/short"
    mv "$work/short" "$logs/$name.log"
  fi
  case $rc in
    0) ;;
    124) result="timed out after $limit s" ;;
    137) result="killed, after $limit s or for its memory" ;;
    *) result="failed ($rc)" ;;
  esac
  case ${optional:+optional}${cut:+, cut}/$rc in
    "optional, cut/124" | "optional, cut/137") result="not run: no time left" ;;
    */0) ;;
    *) failed=1; tail -n 20 "$logs/$name.log" ;;
  esac
  echo "$result" >"$logs/$name.result"
  echo "$name: $result ($SECONDS s)"
  ((SECONDS - reported < 5)) || report
  return $((rc != 0))
}

# cuBLASLt is not in the folder: the loader's, the toolkit's, or that of a Python package (nvidia-cublas).
find_cublas_lt() {
  ldconfig -p 2>/dev/null | sed -n 's/.*libcublasLt\.so\.1[23] .*=> //p'
  ls "$cuda"/lib64/libcublasLt.so.1[23] 2>/dev/null || true
  python3 -c 'import glob, sys
for folder in sys.path:
    print(*glob.glob(glob.escape(folder) + "/nvidia/*/lib/libcublasLt.so.1[23]"), sep="\n")' 2>/dev/null || true
}
found=$(find_cublas_lt)
cublas_lt=$(grep -m 1 '\.13$' <<<"$found" || grep -m 1 . <<<"$found" || true)
echo "${cublas_lt:-not found}" | tee "$logs/cublas_lt.log"
if [ -n "$cublas_lt" ]; then
  LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$cublas_lt")
else
  echo "no libcublasLt.so.13 or .12 in the loader's folders, $cuda/lib64 or Python's packages (pip install nvidia-cublas)"
  failed=1
fi

# The models are made beside the tests, which need few of the cores: 19 GB in all.
make_models() {
  local name shape arguments one= rc
  trap '[ -z "$one" ] || kill "$one"; exit 0' TERM
  while read -r name shape arguments; do
    # shellcheck disable=SC2086
    nice "$bin/moe" bench --synthetic "$shape" $arguments --save "$work/$name.moe.part" \
      >"$logs/model.$name.made.log" 2>&1 </dev/null &
    one=$! rc=0
    wait "$one" || rc=$?
    one=
    if [ $rc = 0 ]; then mv "$work/$name.moe.part" "$work/$name.moe"; else echo "failed ($rc)" >"$logs/model.$name.made.result"; fi
  done <<'MODELS'
olmoe-ternary2 olmoe-1b-7b
maple maple-20b-a1b
olmoe-int4 olmoe-1b-7b --weights int4
olmoe-int8 olmoe-1b-7b --weights int8
mh-moe mh-moe-768x12-h3 --context 4096
bitnet bitnet-2b-4t
MODELS
}
make_models &
maker=$!

stage "parity" 30
run_suite() {  # NAME FILTER
  step "parity.$1" 120 "$bin/gpu_parity" --gtest_brief=1 "--gtest_filter=$2" \
    "--gtest_output=json:$logs/parity.$1.json" && return
  grep -q 'not run' "$logs/parity.$1.result" && return
  # An error of a kernel shows in a later call: again, waiting for each kernel.
  optional=1
  CUDA_LAUNCH_BLOCKING=1 step "again.$1.blocking" 30 "$bin/gpu_parity" --gtest_brief=1 "--gtest_filter=$2" || true
  if command -v compute-sanitizer >/dev/null; then
    step "again.$1.memcheck" 30 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/gpu_parity" \
      --gtest_brief=1 "--gtest_filter=$2" || true
  fi
  optional=
}
suites=$("$bin/gpu_parity" --gtest_list_tests 2>"$logs/list.log" | sed -n 's/^\([A-Za-z][A-Za-z0-9_/]*\)\..*/\1/p' || true)
[ -n "$suites" ] || { echo "gpu_parity lists no tests:"; cat "$logs/list.log"; failed=1; }
for suite in $suites; do
  run_suite "${suite//\//_}" "$suite.*" # one process each: some errors end a process
done

stage "experts, again and again" 38
step "repeated.GpuExperts" 60 "$bin/gpu_parity" --gtest_brief=1 '--gtest_filter=GpuExperts.*' --gtest_repeat=20 || true

stage "whole models" 62
# made NAME: waits for a model; false if there is none.
made() {
  until [ -e "$work/$1.moe" ] || [ -e "$logs/model.$1.made.result" ] || ((SECONDS >= stage_end - 5)); do sleep 0.2; done
  [ -e "$work/$1.moe" ] && return
  failed=1
  [ -e "$logs/model.$1.made.result" ] || echo "not made: no time left" >"$logs/model.$1.made.result"
  echo "model.$1: $(cat "$logs/model.$1.made.result")"
  tail -n 5 "$logs/model.$1.made.log" 2>/dev/null || true
  return 1
}
run_model() {  # NAME ARGUMENTS...
  local name=$1
  shift
  json=$logs/model.$name.json step "model.$name" 60 "$bin/moe" bench --device cuda --json "$@" || true
}
# Runs with memory for a share of the 1024 experts. The error message for too small a limit gives the
# memory that everything else and an expert need.
run_share() {  # NAME SHARE MODEL
  local sum
  sum=$(timeout 20 "$bin/moe" bench --device cuda "$3" -p 512 -n 64 -r 1 --gpu-memory 1M 2>&1 |
    sed -n 's/.*weights without experts \([0-9.]*\) + session \([0-9.]*\) + one expert \([0-9.]*\).*/\1 \2 \3/p' || true)
  if [ -z "$sum" ]; then
    echo "no sum in the message for --gpu-memory 1M" | tee "$logs/model.$1.result"
    failed=1
    return
  fi
  run_model "$1" "$3" -p 512 -n 64 -r 3 \
    --gpu-memory "$(awk -v share="$2" '{ printf "%d", 1e6 * ($1 + $2 + share * 1024 * $3) }' <<<"$sum")"
}
if made olmoe-ternary2; then
  model=$work/olmoe-ternary2.moe
  run_model olmoe-ternary2 "$model" -p 512 -n 64 -r 5
  run_model olmoe-prefill-4096 "$model" -p 4096 -n 0 -r 3
  run_model olmoe-sessions-32 "$model" -p 0 -n 32 -r 5 --sessions 32
  run_share olmoe-half-of-experts 0.50 "$model"
  run_share olmoe-quarter-of-experts 0.25 "$model"
fi
if made maple; then run_model maple "$work/maple.moe" -p 512 -n 64 -r 5; fi
for weights in int4 int8; do
  if made "olmoe-$weights"; then run_model "olmoe-$weights" "$work/olmoe-$weights.moe" -p 512 -n 64 -r 5; fi
  rm -f "$work/olmoe-$weights.moe"
done
if made mh-moe; then
  run_model mh-moe "$work/mh-moe.moe" -p 512 -n 128 -r 5
  run_model mh-moe-prefill-4096 "$work/mh-moe.moe" -p 4096 -n 0 -r 5
fi
if made bitnet; then run_model bitnet "$work/bitnet.moe" -p 512 -n 64 -r 5; fi

stage "kernels" 80
step kernels 180 "$bin/gpu_bench" "$logs/kernels.json" || true

# Time and bytes of each kernel of a decode step.
stage "profile of a decode step" 90
metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active
metrics+=,launch__grid_size,launch__block_size,launch__registers_per_thread,launch__shared_mem_per_block
profile() {  # NAME MODEL NCU-OPTIONS...
  local name=$1 model=$2
  shift 2
  # ncu mixes its messages with the table, which has quotes in every line.
  step "profile.$name" 40 ncu --csv --page raw --print-units base --profile-from-start off --clock-control none \
    "$@" "$bin/gpu_decode_step" "$model" || return 1
  grep '^"' "$logs/profile.$name.log" >"$logs/profile.$name.csv" || true
  [ "$(wc -l <"$logs/profile.$name.csv")" -gt 2 ] && return
  echo "failed: no kernel in the profile" | tee "$logs/profile.$name.result"
  failed=1
  return 1
}
if command -v ncu >/dev/null; then
  for name in olmoe-ternary2 maple; do
    [ -e "$work/$name.moe" ] || { echo "not run: no model" >"$logs/profile.$name.result"; failed=1; continue; }
    # A version of ncu may lack one of the metrics; its own choice takes several passes.
    profile $name "$work/$name.moe" --metrics $metrics || profile $name.basic "$work/$name.moe" || true
  done
else
  echo "not run: no ncu" | tee "$logs/profile.result"
  failed=1
fi
rm -f "$work"/*.moe

# Every kind of kernel, in tests of small shapes: each instruction takes the sanitizers far longer.
stage "sanitizers" 100
small="CudaAttention.* CudaMatmul.ManyRows CudaMatmul.GroupsMeetTheirMatrices
  CudaGatedMatmul.GroupsMeetTheirMatrices CudaRoute.TogetherWithTheirPairs CudaPairs.* CudaPrepare.*
  CudaSample.IsItsDefinition GpuSteps.* WideHeads/GpuSession.*"
optional=1
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck; do
    set -f # the filters are no file names
    for filter in $small; do
      step "sanitizer.$tool.${filter//[^A-Za-z0-9.]/_}" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$bin/gpu_parity" --gtest_brief=1 "--gtest_filter=$filter" || true
    done
    set +f
  done
else
  echo "compute-sanitizer: not installed"
fi

report
cat "$work/summary"
echo "wrote $out and $archive after $SECONDS s"
[ "$failed" = 0 ] || { echo "something failed or was not run: the archive holds the logs"; exit 1; }
