#!/bin/bash
# Tests and measures the CUDA device on a GPU, and writes one JSON file.
#   tests/gpu/run.sh [--build DIR] [--out FILE]
# --build DIR: a folder made by tests/gpu/pack.sh, on this machine or another; by default the one this
# script is in, or one is made first. --out: the file for the results (default: build/gpu.json), written
# anew after each stage; logs go to a folder beside it. What fails or takes too long does not end the run.
# Exits with 77 (CTest: skipped) if there is no GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/local/cuda/bin

build=
out=build/gpu.json
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    *) echo "usage: tests/gpu/run.sh [--build DIR] [--out FILE]" >&2; exit 2 ;;
  esac
done

gpus=$(nvidia-smi -L 2>/dev/null || true)
case "$gpus" in
  *GPU*) ;;
  *) echo "No GPU here (nvidia-smi names none): nothing was run."; exit 77 ;;
esac
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
if [ -z "$build" ] && [ -x "$here/gpu_parity" ]; then build=$here; fi
if [ -z "$build" ]; then
  build=$here/../../build/gpu
  bash "$here/pack.sh" "$build"
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

export LD_LIBRARY_PATH=$bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# cuBLASLt is not in the folder; the toolkit's is used if the loader does not find another.
if [ -d /usr/local/cuda/lib64 ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/usr/local/cuda/lib64; fi
logs=${out%.json}.logs
mkdir -p "$logs"
rm -f "$logs"/*.{json,log,result}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ cat "$bin/built" 2>/dev/null || true; } >"$logs/built.log"
nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total --format=csv,noheader \
  >"$logs/gpu.log" 2>&1 || true
deadline=570  # seconds: the sanitizers get what the other stages leave
failed=0

# step NAME SECONDS COMMAND...: runs it with its output in $logs/NAME.log and its end in NAME.result; with
# `json` set, its standard output in that file.
step() {
  local name=$1 limit=$2 rc=0 result=ok
  shift 2
  if [ -n "${json:-}" ]; then
    timeout -k 10 "$limit" "$@" >"$json" 2>"$logs/$name.log" || rc=$?
  else
    timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 || rc=$?
  fi
  case $rc in
    0) ;;
    124) result="timed out after $limit s" ;;
    137) result="killed, after $limit s or for its memory" ;;
    *) result="failed ($rc)" ;;
  esac
  echo "$result" >"$logs/$name.result"
  echo "$name: $result"
  [ "$rc" = 0 ] && return 0
  failed=1
  tail -n 20 "$logs/$name.log"
  return 1
}

# Writes the results so far.
report() {
  command -v python3 >/dev/null || return 0
  python3 - "$logs" "$out" "$offers" <<'PY' || { echo "$out could not be written"; failed=1; }
import datetime, glob, json, os, sys
logs, out, cuda = sys.argv[1:]
def text(name):
    try:
        return open(os.path.join(logs, name)).read().strip()
    except OSError:
        return ""
def data(name):
    try:
        return json.loads(text(name))
    except ValueError:
        return None
def names(kind):
    return sorted(os.path.basename(p)[len(kind) + 1:-7] for p in glob.glob(os.path.join(logs, kind + ".*.result")))
def suite(name):
    found = {"result": text(f"parity.{name}.result")}
    tests = data(f"parity.{name}.json")
    if tests:
        found["tests"] = tests["tests"]
        found["failed"] = {f'{s["name"]}.{t["name"]}': t["failures"][0]["failure"]
                           for s in tests["testsuites"] for t in s["testsuite"] if t.get("failures")}
        found["skipped"] = [f'{s["name"]}.{t["name"]}' for s in tests["testsuites"] for t in s["testsuite"]
                            if t.get("result") == "SKIPPED"]
    return found
built = dict(line.split(" ", 1) for line in text("built.log").splitlines() if " " in line)
suites = {name: suite(name) for name in names("parity")}
kernels = {"result": text("kernels.result") or "not run"}
kernels.update(data("kernels.json") or {})
result = {
    "date": datetime.date.today().isoformat(), "gpu": text("gpu.log"), "driver_for_cuda": cuda, "build": built,
    "parity": {"tests": sum(s.get("tests", 0) for s in suites.values()),
               "failures": sum(len(s.get("failed", {})) for s in suites.values()),
               "suites_not_ok": sum(s["result"] != "ok" for s in suites.values()), "suites": suites},
    "again": {name: text(f"again.{name}.result") for name in names("again")},
    "models": {name: {"result": text(f"model.{name}.result"), "bench": data(f"model.{name}.json")}
               for name in names("model")},
    "kernels": kernels,
    "sanitizers": {name: text(f"sanitizer.{name}.result") for name in names("sanitizer")}}
with open(out + ".partial", "w") as f:
    json.dump(result, f, indent=1)
os.replace(out + ".partial", out)
PY
}

echo "== parity"
run_suite() {  # NAME FILTER
  step "parity.$1" 120 "$bin/gpu_parity" --gtest_brief=1 "--gtest_filter=$2" \
    "--gtest_output=json:$logs/parity.$1.json" && return
  [ "$SECONDS" -lt 300 ] || return 0
  # An error of a kernel shows in a later call: again, waiting for each kernel.
  CUDA_LAUNCH_BLOCKING=1 step "again.$1.blocking" 60 "$bin/gpu_parity" --gtest_brief=1 "--gtest_filter=$2" || true
  if command -v compute-sanitizer >/dev/null; then
    step "again.$1.memcheck" 60 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/gpu_parity" \
      --gtest_brief=1 "--gtest_filter=$2" || true
  fi
}
suites=$("$bin/gpu_parity" --gtest_list_tests 2>"$logs/list.log" | sed -n 's/^\([A-Za-z][A-Za-z0-9_/]*\)\..*/\1/p' || true)
[ -n "$suites" ] || { echo "gpu_parity lists no tests:"; cat "$logs/list.log"; failed=1; }
for suite in $suites; do
  run_suite "${suite//\//_}" "$suite.*"  # one process each: some errors end a process
  report
done

echo "== whole models"
run_model() {  # NAME ARGUMENTS...
  local name=$1
  shift
  json=$logs/model.$name.json step "model.$name" 90 "$bin/moe" bench --device cuda --json "$@" || true
  report
}
# Whether NAME.moe could be written.
make_model() {  # NAME SHAPE ARGUMENTS...
  local name=$1 shape=$2
  shift 2
  rm -f "$work"/*.moe
  step "model.$name.made" 120 "$bin/moe" bench --synthetic "$shape" "$@" --save "$work/$name.moe"
}
# Runs with memory for a share of the 1024 experts. The error message for too small a limit gives the
# memory that everything else and an expert need.
run_share() {  # NAME SHARE MODEL
  local sum
  sum=$("$bin/moe" bench --device cuda "$3" -p 512 -n 64 -r 1 --gpu-memory 1M 2>&1 |
    sed -n 's/.*weights without experts \([0-9.]*\) + session \([0-9.]*\) + one expert \([0-9.]*\).*/\1 \2 \3/p' || true)
  if [ -z "$sum" ]; then
    echo "no sum in the message for --gpu-memory 1M" | tee "$logs/model.$1.result"
    failed=1
    return
  fi
  run_model "$1" "$3" -p 512 -n 64 -r 5 \
    --gpu-memory "$(awk -v share="$2" '{ printf "%d", 1e6 * ($1 + $2 + share * 1024 * $3) }' <<<"$sum")"
}
if make_model olmoe-ternary2 olmoe-1b-7b; then
  model=$work/olmoe-ternary2.moe
  run_model olmoe-ternary2 "$model" -p 512 -n 64 -r 5
  run_model olmoe-prefill-4096 "$model" -p 4096 -n 0 -r 3
  run_model olmoe-sessions-32 "$model" -p 0 -n 32 -r 5 --sessions 32
  run_share olmoe-half-of-experts 0.50 "$model"
  run_share olmoe-quarter-of-experts 0.25 "$model"
fi
for weights in int8 int4; do
  if make_model "olmoe-$weights" olmoe-1b-7b --weights "$weights"; then
    run_model "olmoe-$weights" "$work/olmoe-$weights.moe" -p 512 -n 64 -r 5
  fi
done
if make_model mh-moe mh-moe-768x12-h3 --context 4096; then
  run_model mh-moe "$work/mh-moe.moe" -p 512 -n 128 -r 5
  run_model mh-moe-prefill-4096 "$work/mh-moe.moe" -p 4096 -n 0 -r 5
fi
if make_model maple maple-20b-a1b; then run_model maple "$work/maple.moe" -p 512 -n 64 -r 5; fi
if make_model bitnet bitnet-2b-4t; then run_model bitnet "$work/bitnet.moe" -p 512 -n 64 -r 5; fi
rm -f "$work"/*.moe

echo "== kernels"
step kernels 180 "$bin/gpu_bench" "$logs/kernels.json" || true
report

# Every kind of kernel, in tests of small shapes: each instruction takes the sanitizers far longer.
small="CudaAttention.* CudaMatmul.ManyRows CudaMatmul.GroupsMeetTheirMatrices
  CudaGatedMatmul.GroupsMeetTheirMatrices CudaRoute.TogetherWithTheirPairs CudaPairs.* CudaPrepare.*
  CudaSample.IsItsDefinition GpuSteps.* WideHeads/GpuSession.*"
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck; do
    echo "== compute-sanitizer $tool"
    set -f  # the filters are no file names
    for filter in $small; do
      name=${filter//[^A-Za-z0-9.]/_}
      if [ "$SECONDS" -ge "$deadline" ]; then
        echo "not run: no time left" >"$logs/sanitizer.$tool.$name.result"
        continue
      fi
      step "sanitizer.$tool.$name" 60 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/gpu_parity" \
        --gtest_brief=1 "--gtest_filter=$filter" || true
    done
    set +f
    report
  done
else
  echo "== compute-sanitizer: not installed"
fi

report
if command -v python3 >/dev/null; then echo "wrote $out"; else echo "no python3: no JSON, results in $logs"; fi
[ "$failed" = 0 ] || { echo "something failed: see $logs"; exit 1; }
