#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds and tests everything. Missing Debian packages are installed first.
#   tests/run.sh          release with gcc; not the CUDA emulator
#   tests/run.sh --asan   and asan (address + undefined behaviour) with clang
#   tests/run.sh --all    and the emulator under asan, kernels compiled by clang, tsan, aarch64, armhf and riscv64 under
#                         qemu, embedded, bare, static, compiled for Windows, cuda, Rust, Go, Node, installation, packages, additions and formatting
# Logs go to build/logs. Exits 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.."

all=0 asan=0
case "${1:-}" in
  "") ;;
  --asan) asan=1 ;;
  --all) all=1 asan=1 ;;
  *) echo "usage: tests/run.sh [--asan|--all]" >&2; exit 2 ;;
esac

logs=build/logs
jobs=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL=$jobs # also in scripts
summary=()
passed=0
failed=0
mkdir -p "$logs"
shopt -s lastpipe

# step NAME COMMAND...: runs the command, with its output in a log; a failure shows the end of the log.
# The counts of ctest are summed; any other step counts as one test. The times shown are wall-clock and
# CPU time; what runs beside a step takes of its wall-clock time.
step() {
  local name=$1 start=$SECONDS rc=0 log ok bad cpu TIMEFORMAT='%0U %0S'
  shift
  log=$logs/${name//: /-}.log
  printf '== %s ... ' "$name"
  { time "$@" >"$log" 2>&1 || rc=$?; } 2>"$log.time"
  cpu=$(($(<"$log.time" tr ' ' '+')))
  rm "$log.time"
  bad=$((rc != 0)) ok=$((rc == 0))
  if [[ $(grep -E '^[0-9]+% tests passed' "$log") =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
    bad=${BASH_REMATCH[1]} ok=$((BASH_REMATCH[2] - BASH_REMATCH[1]))
    ((rc == 0 || bad > 0)) || bad=1
  fi
  local result="ok" time=$((SECONDS - start))
  ((rc == 0)) || result="FAILED"
  ((ok + bad > 1)) && result+=", $ok of $((ok + bad)) tests passed"
  echo "$result ($time s, cpu $cpu s)"
  ((rc == 0)) || { tail -n 60 "$log" | sed 's/^/   | /'; echo "   whole log: $log"; }
  summary+=("$(printf '%-22s %5d s  cpu %5d s  %s' "$name" "$time" "$cpu" "$result")")
  passed=$((passed + ok)) failed=$((failed + bad))
  return $rc
}

# build PRESET [cmake options]; then check PRESET [ctest options]
build() {
  step "$1: configure" cmake --preset "$@" && step "$1: build" cmake --build --preset "$1"
}
check() {
  local preset=$1
  shift
  # One more than there are cores, as some tests wait.
  step "$preset: tests" "${wrapper[@]}" ctest --preset "$preset" -j $((jobs + 1)) --no-tests=error "$@"
}
wrapper=()

# beside FUNCTION: runs its steps beside the following ones, which leave cores idle; joined FUNCTION: waits for them, and
# shows and counts them as if they had run here.
beside() {
  rm -f "$logs/$1.sums"
  set -m # a process group of its own, which can be ended
  (
    summary=() passed=0 failed=0
    "$1"
    printf '%s\n' "$passed" "$failed" "${summary[@]}" >"$logs/$1.sums.part" && mv "$logs/$1.sums.part" "$logs/$1.sums"
  ) >"$logs/$1.shown" 2>&1 </dev/null &
  besides=$!
  set +m
}
joined() {
  local sums=()
  wait "$besides"
  besides=
  cat "$logs/$1.shown"
  [ -e "$logs/$1.sums" ] && mapfile -t sums <"$logs/$1.sums"
  ((${#sums[@]} >= 2)) || sums=(0 1 "$1: FAILED, it was ended")
  passed=$((passed + sums[0])) failed=$((failed + sums[1])) summary+=("${sums[@]:2}")
}
besides=
trap '[ -z "$besides" ] || kill -- "-$besides"; exit 143' INT TERM # once the step in the foreground has ended

# The libraries of the other architectures: mostly a download.
cross=(aarch64:arm64 armhf:armhf riscv64:riscv64)
cross_libraries() {
  local target
  for target in "${cross[@]}"; do
    step "${target%:*}: libraries" bash scripts/fetch-cross-libs.sh "${target#*:}" "$PWD/build/${target#*:}-libs"
  done
}

# Stages that use the finished tree of release, and those that need no tree of these.
users() {
  # Builds what the preset cuda builds, in the tree of release, which has the library already. No line of the kernels
  # depends on the architecture, and the oldest has the fewest instructions.
  step "cuda: configure" cmake --preset release -DMOE_CUDA=ON -DMOE_CUDA_CHECK=ON -DCMAKE_CUDA_ARCHITECTURES=80-real &&
    step "cuda: build" cmake --build --preset release --target moe_gpu &&
    command -v cuobjdump >/dev/null && [ -n "$(command -v nvcc)" ] && step "cuda: instructions" bash tests/gpu/check_sass.sh build/release
  local language settings name
  for language in rust go node; do
    step "$language" bash bindings/test.sh $language build/release
  done
  step "installation" bash tests/house/install_test.sh build/release
  step "part of a project" bash tests/house/subproject_test.sh . build/release/bin/example_generate
  step "additions" python3 -B tests/house/additions_test.py .
  # The packages too are built in the tree of release, whose own settings are restored afterwards.
  settings=(-DMOE_CUDA=OFF -UMOE_CUDA_CHECK -UCMAKE_CUDA_ARCHITECTURES)
  for name in CMAKE_INSTALL_PREFIX MOE_ZSH_FOLDER; do
    settings+=("-D$name=$(sed -n "s/^$name:[A-Z]*=//p" build/release/CMakeCache.txt)")
  done
  # Their CUDA module is the one built above for one architecture; the packages are checked, not shipped.
  step "packages: build" bash scripts/package.sh build/release build/packages &&
    step "packages" python3 -B tests/install/packages_test.py build/packages
  step "release: as it was" cmake --preset release "${settings[@]}"
  rm -f build/release/lib/libmoe_cuda.so # the tests of release expect no CUDA module
  step "formatting" bash scripts/format.sh --check
}

step "packages" bash scripts/install-deps.sh "$( ((all)) && echo all || echo test)" || exit 1

((all)) && { beside cross_libraries; step "quick start" bash examples/quickstart.sh; }
build release -DMOE_TESTS_EMULATOR=OFF && check release  # with --all, asan runs the emulator's tests
if ((asan)); then
  # CMake drops a preset's settings when the build tree was configured with a different compiler.
  grep -qs '^CMAKE_CXX_COMPILER:.*clang' build/asan/CMakeCache.txt || rm -rf build/asan
  build asan -DMOE_TESTS_EMULATOR=$( ((all)) && echo ON || echo OFF) -DMOE_UNITY=ON && check asan
fi

if ((all)); then
  step "asan: each file" python3 -B tests/house/each_file.py build/asan core
  joined cross_libraries
  beside users
  # No instruction of a newer CPU in code that any CPU may run, as clang optimises it too. Its bits are tested under asan.
  step "clang: configure" cmake --preset clang -DMOE_TESTS=OFF && step "clang: build" cmake --build --preset clang --target moe_kernels &&
    step "clang: kernels" python3 -B tests/house/lint_symbols.py isa build/clang
  # gcc 12's ThreadSanitizer cannot map its shadow memory when the kernel uses many bits of address randomisation
  setarch -R true 2>/dev/null && wrapper=(setarch -R)
  build tsan && check tsan
  wrapper=()
  # No test of these runs the service.
  for target in "${cross[@]}"; do
    [ -e "build/${target#*:}-libs/complete" ] && build "${target%:*}" -DMOE_SERVE=OFF && check "${target%:*}"
  done
  build embedded && for check in symbols size; do
    step "embedded: $check" bash tests/house/embedded_test.sh $check build/embedded
  done
  build bare && check bare && step "bare: symbols" bash tests/house/embedded_test.sh bare build/bare
  step "windows: compiled" bash tests/house/windows_test.sh .
  build static && step "static: command" bash tests/house/static_test.sh . build/static build/asan/bin/moe
  joined users
fi

echo
echo "Summary (${SECONDS} s)"
printf '  %s\n' "${summary[@]}"
((all)) && grep -h '^MOE_CUDA:' "$logs/cuda-configure.log" 2>/dev/null
echo "$passed passed, $failed failed"
((failed == 0))
