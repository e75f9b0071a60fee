#!/bin/bash
# SPDX-License-Identifier: MIT
# Tests a binding against a build that is installed into a temporary folder.
# Usage: bindings/test.sh rust|go|node BUILD_DIR     (CARGO: a cargo other than the one in PATH)
set -euo pipefail

case "${1:-}" in
  rust | go | node) language=$1 ;;
  *) echo "usage: bindings/test.sh rust|go|node BUILD_DIR" >&2; exit 2 ;;
esac
build=$(realpath "$2")
root=$(realpath "$(dirname "$0")/..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/prefix" >/dev/null
export PKG_CONFIG_PATH=$folder/prefix/lib/pkgconfig LD_LIBRARY_PATH=$folder/prefix/lib
export MOE_TEST_MODELS=$folder/models
mkdir "$folder/models"
moe=$folder/prefix/bin/moe
"$moe" convert "$root/tests/data/encoders/xlmr_maskedlm" "$folder/models/encoder.moe" --weights f32 >/dev/null
"$moe" convert "$root/tests/data/translation/mbart" "$folder/models/translator.moe" --weights f32 >/dev/null
"$moe" convert "$root/tests/data/chat/script" "$folder/models/script.moe" --weights f32 >/dev/null
"$moe" convert "$root/tests/data/chat/tools" "$folder/models/tools.moe" --weights f32 >/dev/null

# The text that the tests expect is the command's; the output in a README is its example's.
stories=$root/examples/models/stories.moe
story=$("$moe" generate "$stories" -p "Once upon a time" -n 24 2>/dev/null)
printed() { sed -n '/^```text$/,/^```$/p' README.md | sed '1d;$d'; }
compare() {
  local output
  output=$("$@" "$stories" "Once upon a time") # an assignment of its own: set -e checks its exit status
  diff <(printed) <(echo "$output")
  diff <(printed | head -n 1) <(echo "$story")
}

rust() {
  local cargo=${CARGO:-cargo}
  export CARGO_TARGET_DIR=$root/build/rust CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
  "$cargo" test --offline --locked --features serve -- --include-ignored # those need the converted models
  export PKG_CONFIG=false MOE_LIB_DIR=$folder/prefix/lib # finds the libraries without pkg-config
  "$cargo" test --offline --locked --features serve --test service the_readme
  compare "$cargo" run --offline --locked --quiet --example generate --
}

go_package() {
  # Packages in Go's cache have the link flags of an earlier, deleted folder. The define makes Go rebuild them.
  export CGO_CFLAGS="-O2 -g -DMOE_FOLDER=$(basename "$folder" | tr -c 'a-zA-Z0-9\n' _)"
  export GOCACHE=$root/build/go GOTOOLCHAIN=local
  export GOFLAGS="-mod=readonly -buildvcs=false" # git may be missing, or belong to another user
  test -z "$(gofmt -l .)" || { gofmt -d .; exit 1; }
  go vet ./...
  go test ./...
  compare go run ./examples/generate
}

node_package() {
  CXXFLAGS="-Werror -O0" MOE_SERVE=0 sh build.sh # as where libmoe_serve is missing
  local refusal
  refusal=$(! node examples/serve.js "$stories" 0 2>&1)
  grep -q "^built without libmoe_serve" <<<"$refusal" || { echo "$refusal"; exit 1; }
  CXXFLAGS="-Werror" sh build.sh
  node --test test/*.test.js
  compare node examples/generate.js
}

cd "$root/bindings/$language"
case "$language" in
  rust) rust ;;
  go) go_package ;;
  node) node_package ;;
esac
