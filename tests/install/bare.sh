#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs and uses the contents of a folder of packages on a minimal Debian 12: the Debian packages, a program
# built with libmoe0-dev, and moe-cuda and the wheel, if they are there. Needs root, debootstrap and a network.
# Usage: bare.sh PACKAGES [TREE [docker]]; TREE is a tree of debootstrap, which is made if it does not exist, and
# kept; docker: also carries out the steps of the Dockerfile.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: bare.sh PACKAGES [TREE [docker]]" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "bare.sh: needs root, for debootstrap and chroot" >&2; exit 1; }
for program in debootstrap chroot unshare; do
  command -v $program >/dev/null || {
    echo "bare.sh: no $program in the PATH; on Debian: apt-get install debootstrap coreutils util-linux" >&2
    exit 1
  }
done
root=$(cd "$(dirname "$0")/../.." && pwd)
packages=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
base=${2:-$scratch/base}
[ -e "$base/usr/bin/apt-get" ] || {
  rm -rf "$base.partial" # left by a debootstrap that failed
  debootstrap --variant=minbase bookworm "$base.partial" >"$scratch/log" || { tail "$scratch/log"; exit 1; }
  mv -T "$base.partial" "$base"
}

# Programs in a tree see nothing of this environment but what the network needs: a compiler cache, say, is not there.
mapfile -t proxies < <(env | grep -i '_proxy=')
clean=(env -i "PATH=$PATH" "${proxies[@]}")

# fresh: makes a new tree in $tree, with the packages in /packages and the examples in /moe
fresh() {
  tree=$scratch/tree
  rm -rf "$tree"
  cp -a "$base" "$tree"
  cp /etc/resolv.conf "$tree/etc"
  mkdir -p "$tree/moe/tests/house"
  cp -r "$packages" "$tree/packages"
  cp -r "$root/examples" "$tree/moe"
  cp -r "$root/tests/house/consumer" "$tree/moe/tests/house"
}

# inside COMMAND: runs a command in the tree, with its own mounts, which end with the command
inside() {
  echo "\$ $1"
  "${clean[@]}" DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 unshare --mount --fork sh -c \
    'mount -t proc proc "$1/proc" && mount -t devtmpfs dev "$1/dev" && exec chroot "$1" sh -ec "cd /moe; $2"' \
    sh "$tree" "$1"
}
quietly() { inside "$1" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }; head -n 1 "$scratch/log"; }
install="apt-get install -y -q --no-install-recommends"

echo "== Debian packages"
fresh
quietly "apt-get update -q"
quietly "$install /packages/libmoe0.*_*.deb /packages/moe_*.deb"
inside "moe --version"
inside "moe generate examples/models/stories.moe -p 'Once upon a time' -n 16"
quietly "$install /packages/libmoe0-dev_*.deb gcc libc6-dev pkg-config cmake make"
inside "cc -std=c99 examples/generate.c \$(pkg-config --cflags --libs moe) -o generate"
inside "./generate examples/models/stories.moe 'The fox'"
quietly "cmake -S tests/house/consumer -B build && cmake --build build"
inside "build/consumer \$(pkg-config --modversion moe)"
if compgen -G "$packages/moe-cuda_*.deb" >/dev/null; then # it is loaded, and finds no driver in the tree
  quietly "$install /packages/moe-cuda_*.deb"
  inside "! moe generate examples/models/stories.moe -p 'The fox' --device cuda" 2>&1 | tee "$scratch/said"
  grep -q 'no NVIDIA driver' "$scratch/said"
fi
quietly "apt-get purge -y -q moe libmoe0.1 libmoe0-dev"
if left=$(find "$tree"/usr "$tree"/etc \( -name '*moe_c.h' -o -name 'libmoe*' -o -name 'moe' \) | grep .); then
  echo "left behind: $left" >&2
  exit 1
fi

wheels=("$packages"/*_"$(uname -m)".whl) # a release may also have one for another machine
if [ -e "${wheels[0]}" ]; then
  echo "== Wheel"
  fresh
  quietly "apt-get update -q"
  quietly "$install python3-numpy python3-pip" # its only dependency is NumPy
  quietly "pip install --break-system-packages --no-index /packages/*_$(uname -m).whl"
  inside "python3 -m moe --version"
  inside "python3 -c 'import moe; print(moe.Model(\"examples/models/stories.moe\").session().generate(\"The fox\", max_tokens=8).text())'"
  inside "test \$(ls /usr/local/lib/python3*/dist-packages/moe/libmoe*.so* | wc -l) = 2" # links would be copies
  inside "ldd /usr/local/lib/python3*/dist-packages/moe/libmoe*.so.0.*" | tee "$scratch/needs"
  ! grep -E 'pcre2|utf8proc|zstd|not found' "$scratch/needs" || exit 1
fi

if [ "${3:-}" = docker ]; then
  echo "== Dockerfile"
  "${clean[@]}" python3 -B "$root/tests/install/dockerfile.py" "$base" "$scratch" --version >"$scratch/log" 2>&1 ||
    { tail -n 40 "$scratch/log"; exit 1; }
  grep -E '^(FROM|COPY|RUN|USER|WORKDIR|ENTRYPOINT) ' "$scratch/log"
  tail -n 1 "$scratch/log"
fi
