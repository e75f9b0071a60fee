#!/bin/sh
# Continues the prompts of files that appear in QUEUE/in, in any number of processes of any number of
# machines that share the folder. `moe batch` refuses a result that another process is writing (its
# lock: NFS from version 4 on has it), and goes on with one that was left unfinished. A file that fails
# for another reason is not tried again: it goes to QUEUE/refused, with the message in NAME.txt beside
# it, and continues where it stopped when it is put back into QUEUE/in. The worker ends when an empty file
# fails as well: then the model or the options are at fault.
# Usage: worker.sh MODEL QUEUE [OPTION OF moe batch]...    WAIT: seconds between looks, 5
#        worker.sh --alive MINUTES    fails when the worker has neither looked nor written so long
state=${STATE:-/tmp/moe-worker}

if [ "$1" = --alive ]; then
  [ -n "$(find "$state" "$(cat "$state" 2>/dev/null)" -mmin "-$2" 2>/dev/null)" ]
  exit
fi

# look_at OUT: what --alive looks at
look_at() { echo "$1" >"$state"; }

# attempt FILE OUT [OPTION OF moe batch]...
attempt() {
  look_at "$2"
  moe batch "$model" "$@" 2>"$state.log"
  status=$?
  cat "$state.log" >&2
  return $status
}

# After an attempt: whether it was not interrupted, and no other worker has the file or has finished it.
failed_for_good() { [ $status = 1 ] && [ -e "$file" ] && ! grep -q 'another process is writing it$' "$state.log"; }

model=$1 queue=$2
shift 2
mkdir -p "$queue/in" "$queue/out" "$queue/done" "$queue/refused"
while true; do
  for file in "$queue"/in/*.jsonl; do
    name=${file##*/}
    look_at "$queue/out/$name"
    [ -e "$file" ] || continue
    if attempt "$file" "$queue/out/$name" "$@"; then
      mv "$file" "$queue/done/$name" 2>/dev/null # another worker may have seen the end first
    elif failed_for_good; then
      cp "$state.log" "$state.message"
      attempt /dev/null "$state.none" "$@" || exit
      cp "$state.message" "$queue/refused/$name.txt" && mv "$file" "$queue/refused/$name" 2>/dev/null
    elif [ $status = 2 ] || [ $status = 127 ]; then # no such option, no such command
      exit $status
    fi
  done
  sleep "${WAIT:-5}"
done
