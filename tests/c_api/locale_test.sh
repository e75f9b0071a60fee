#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a locale whose decimal point is a comma and runs the test in it.
# Usage: locale_test.sh PROGRAM MODEL FOLDER; exits with 77, which skips the test, if no locale can be made
set -eu
command -v localedef >/dev/null || exit 77
rm -rf "$3" && mkdir -p "$3"
printf 'LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\nEND LC_NUMERIC\n' >"$3/source"
localedef -c -i "$3/source" "$3/comma" 2>/dev/null || true  # localedef warns of missing categories
[ -f "$3/comma/LC_NUMERIC" ] || exit 77
LOCPATH=$3 LC_ALL=comma exec "$1" "$2"
