#!/bin/sh
# Continues the prompts of files that appear in QUEUE/in, in any number of processes of any number of
# machines that share the folder. `moe batch` refuses a result that another process is writing (its
# lock: NFS from version 4 on has it), and goes on with one that was left unfinished.
# Usage: worker.sh MODEL QUEUE [OPTION OF moe batch]...    WAIT: seconds between looks, 5
#        worker.sh --alive MINUTES    fails when the worker has neither looked nor written so long
state=${STATE:-/tmp/moe-worker}

if [ "$1" = --alive ]; then
  [ -n "$(find "$state" "$(cat "$state" 2>/dev/null)" -mmin "-$2" 2>/dev/null)" ]
  exit
fi

model=$1 queue=$2
shift 2
mkdir -p "$queue/in" "$queue/out" "$queue/done"
while true; do
  for file in "$queue"/in/*.jsonl; do
    name=${file##*/}
    echo "$queue/out/$name" >"$state" # what --alive looks at
    [ -e "$file" ] || continue
    if moe batch "$model" "$file" "$queue/out/$name" "$@"; then
      mv "$file" "$queue/done/$name" 2>/dev/null # another worker may have seen the end first
    fi
  done
  sleep "${WAIT:-5}"
done
