#!/bin/bash
# Tests and measures the CUDA device on a GPU, and writes one JSON file.
#   tests/gpu/run.sh [--build DIR] [--out FILE]
# --build DIR: a folder made by tests/gpu/pack.sh, on this machine or another; by default, one is made
# first. --out: the file for the results (default: build/gpu.json).
# Exits with 77 (CTest: skipped) if there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=
out=build/gpu.json
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    *) echo "usage: tests/gpu/run.sh [--build DIR] [--out FILE]" >&2; exit 2 ;;
  esac
done

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "No GPU here (nvidia-smi names none): nothing was run."
  exit 77
fi
if [ -z "$build" ]; then
  build=build/gpu
  bash tests/gpu/pack.sh "$build"
fi
bin=$(cd "$build" && pwd)
export LD_LIBRARY_PATH=$bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# cuBLASLt is not in the folder; the toolkit's is used if the loader does not find another.
if [ -d /usr/local/cuda/lib64 ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/usr/local/cuda/lib64; fi
mkdir -p "$(dirname "$out")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
echo "== parity"
"$bin/gpu_parity" --gtest_brief=1 --gtest_output="json:$work/parity.json" || failed=1

if command -v compute-sanitizer >/dev/null; then
  small='Kinds/GpuSession.*softmax_raw:*/ternary2:*/int8:*/int8_group:*/int4_min:*/int4_k:*/int6_k:*mh_moe*:GpuSteps*:CudaChoose.IsIts*'
  for tool in memcheck racecheck; do
    echo "== compute-sanitizer $tool"
    timeout 150 compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/gpu_parity" \
      --gtest_brief=1 --gtest_filter="$small" >"$work/$tool.log" 2>&1 &&
      echo ok >"$work/$tool" || { echo "failed ($?)" >"$work/$tool"; tail -n 20 "$work/$tool.log"; failed=1; }
    cat "$work/$tool"
  done
else
  echo "== compute-sanitizer: not installed"
fi

echo "== kernels"
"$bin/gpu_bench" >"$work/kernels.json" || failed=1

echo "== whole models"
run_model() {  # NAME ARGUMENTS...
  local name=$1
  shift
  echo "-- $name"
  "$bin/moe" bench --device cuda --json "$@" >"$work/model.$name.json" || failed=1
}
run_model olmoe-ternary2 --synthetic olmoe-1b-7b -p 512 -n 64 -r 5
run_model olmoe-int8 --synthetic olmoe-1b-7b --weights int8 -p 512 -n 64 -r 5
run_model olmoe-int4 --synthetic olmoe-1b-7b --weights int4 -p 512 -n 64 -r 5
run_model olmoe-prefill-4096 --synthetic olmoe-1b-7b -p 4096 -n 0 -r 3
run_model olmoe-sessions-32 --synthetic olmoe-1b-7b -p 0 -n 32 -r 5 --sessions 32
# Runs with memory for a share of the experts. The error message for too small a limit gives the memory
# that everything else needs.
run_share() {  # NAME SHARE
  local sum
  sum=$("$bin/moe" bench --device cuda --synthetic olmoe-1b-7b -p 512 -n 64 -r 1 --gpu-memory 1M 2>&1 |
    sed -n 's/.*weights without experts \([0-9.]*\) + session \([0-9.]*\) + .*/\1 \2/p')
  # 16 layers of 64 experts of 1.58 MB
  run_model "$1" --synthetic olmoe-1b-7b -p 512 -n 64 -r 5 \
    --gpu-memory "$(awk -v share="$2" '{ printf "%d", 1e6 * ($1 + $2 + share * 1617) }' <<<"$sum")"
}
run_share olmoe-half-of-experts 0.50
run_share olmoe-quarter-of-experts 0.25
run_model mh-moe --synthetic mh-moe-768x12-h3 -p 512 -n 128 -r 5
run_model mh-moe-prefill-4096 --synthetic mh-moe-768x12-h3 -p 4096 -n 0 -r 5
run_model maple --synthetic maple-20b-a1b -p 512 -n 64 -r 5
run_model bitnet --synthetic bitnet-2b-4t -p 512 -n 64 -r 5

python3 - "$work" "$out" <<'PY'
import datetime, glob, json, os, subprocess, sys
work, out = sys.argv[1:]
read = lambda name: json.load(open(os.path.join(work, name)))
smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                     capture_output=True, text=True).stdout.strip()
commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
result = {"date": datetime.date.today().isoformat(), "gpu": smi, "commit": commit.stdout.strip()}
for name, file in (("parity", "parity.json"), ("kernels", "kernels.json")):
    try:
        data = read(file)
        result[name] = data if name == "kernels" else {
            key: data[key] for key in ("tests", "failures", "errors")}
    except (OSError, ValueError):
        result[name] = "no result"
for tool in ("memcheck", "racecheck"):
    path = os.path.join(work, tool)
    result[tool] = open(path).read().strip() if os.path.exists(path) else "not run"
models = {}
for path in sorted(glob.glob(os.path.join(work, "model.*.json"))):
    try:
        models[os.path.basename(path)[6:-5]] = json.load(open(path))
    except ValueError:
        models[os.path.basename(path)[6:-5]] = "no result"
result["models"] = models
json.dump(result, open(out, "w"), indent=1)
print(f"wrote {out}")
PY
[ "$failed" = 0 ] || { echo "something failed"; exit 1; }
