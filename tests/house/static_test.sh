#!/bin/bash
# SPDX-License-Identifier: MIT
# The command of the preset static, whose size is reported, needs no shared library, and passes those tests of the command that
# run models, for which another build's command converts them. Usage: static_test.sh ROOT BUILD_DIR OTHER_COMMAND
set -euo pipefail
here=$(dirname "$0")
root=$(realpath "$1") moe=$(realpath "$2")/bin/moe other=$(realpath "$3")
python3 -B "$here/size_test.py" "$moe" 5300000
for package in libzstd-dev libpcre2-dev libutf8proc-dev libc6 libcli11-dev; do # what is linked in, beside the file
  grep -A 3 "^Parts of $package are linked in" "$(dirname "$moe")/moe-licences.txt" | grep -q . || {
    echo "$moe: no licence of $package beside it" >&2
    exit 1
  }
done
if readelf -l "$moe" | grep INTERP; then
  echo "$moe needs shared libraries" >&2
  exit 1
fi
for other_part in "convert a b" "serve a"; do
  rc=0
  # shellcheck disable=SC2086
  "$moe" $other_part 2>/dev/null || rc=$?
  [ $rc -eq 1 ]
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/moe" <<END
#!/bin/bash
case " \$* " in
  *" convert "* | *" --synthetic "*) exec "$other" "\$@" ;;
esac
exec "$moe" "\$@"
END
chmod +x "$folder/moe"
data=$root/tests/data
export MOE_TEST_NO_EDITOR=1 # static programs have no libedit
for name in batch chat context encoder perplexity results score terminal text_input trace translate worker; do
  echo "== $name"
  python3 -B "$root/tests/cli/${name}_test.py" "$folder/moe" "$root/examples/models/stories.moe" \
    "$data/pytorch/softmax_raw" "$data/chat/script"
done
