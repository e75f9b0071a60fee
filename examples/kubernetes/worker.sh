#!/bin/sh
# SPDX-License-Identifier: MIT
# Continues the prompts of files that appear in QUEUE/in, in any number of processes on any number of
# machines that share the folder. `moe batch` refuses a result file that another process is writing (it
# takes a lock, which NFS supports from version 4 on), and continues one that is unfinished. A file that
# fails for another reason is not tried again: it is moved to QUEUE/refused, with the message in NAME.txt
# beside it; put back into QUEUE/in, it continues where it stopped. A file whose name already exists in
# QUEUE/done is refused too, and so is one on which a signal ended moe in three attempts of one worker. If
# an empty file fails as well, or QUEUE/out has no space, the file is not at fault and the worker ends.
# Usage: worker.sh MODEL QUEUE [OPTION OF moe batch]...    WAIT: seconds between scans of the queue, 5
#        worker.sh --alive MINUTES    fails if the worker has neither scanned nor written for so long
state=${STATE:-/tmp/moe-worker}
attempts=3

if [ "$1" = --alive ]; then
  [ -n "$(find "$state" "$(cat "$state" 2>/dev/null)" -mmin "-$2" 2>/dev/null)" ]
  exit
fi

# look_at OUT: records the file that --alive checks
look_at() { echo "$1" >"$state"; }

stop() { # MESSAGE [STATUS]
  echo "worker.sh: $1" >&2
  exit "${2:-1}"
}

# started: after `starting=1` and a command in the background. A signal between the start and the
# assignment of `child` ends the worker here, so that `clean` ends the command as well.
started() {
  child=$!
  starting=
  [ -z "$ending" ] || exit "$ending"
}

end() { # STATUS: on a signal
  ending=$1
  [ -n "$starting" ] || exit "$1"
}

# attempt FILE OUT [OPTION OF moe batch]...: runs moe batch; messages are shown at once and kept in $scratch/log
attempt() {
  look_at "$2"
  tee "$scratch/log" <"$scratch/pipe" >&2 &
  tee=$!
  starting=1
  moe batch "$model" "$@" 2>"$scratch/pipe" & # in the background, so that signals are handled at once
  started
  wait $child
  status=$?
  child=
  wait $tee
  if [ $status = 126 ] || [ $status = 127 ]; then stop "the command moe cannot be run" $status; fi
  return $status
}

# After an attempt: whether the file itself failed, rather than being interrupted, locked or finished by another worker.
failed_for_good() {
  [ $status = 1 ] && [ -e "$file" ] && [ -s "$scratch/log" ] && ! grep -q 'another process is writing it$' "$scratch/log"
}

# After an attempt that a signal ended: whether it was the last one.
killed_for_good() {
  [ $status -ge 128 ] && [ $status != 130 ] && [ -e "$file" ] || return 1
  echo >>"$scratch/killed.$name"
  [ "$(wc -l <"$scratch/killed.$name")" -ge $attempts ] || return 1
  echo "moe was ended by signal $((status - 128)) in $attempts attempts" | tee -a "$scratch/log" >&2
}

# Ends the worker unless an empty file can be processed and there is space for results.
check_worker() {
  probe=$(mktemp "$queue/out/.probe.XXXXXX") || stop "cannot write in $queue/out"
  dd if=/dev/zero of="$probe" bs=64k count=16 conv=fsync 2>"$scratch/dd" || {
    cat "$scratch/dd" >&2
    stop "cannot write in $queue/out"
  }
  : >"$probe"
  attempt /dev/null "$probe" "$@" || exit
  rm -f "$probe"
  probe=
}

# refuse: moves the file to QUEUE/refused, with the message in $scratch/message; only an older message is replaced
refuse() {
  to=$queue/refused/$name
  n=2
  while [ -e "$to" ]; do
    to=$queue/refused/${name%.jsonl}.$n.jsonl
    n=$((n + 1))
  done
  rm -f "$scratch/killed.$name"
  part=$(mktemp "$queue/refused/.message.XXXXXX") && cat "$scratch/message" >"$part" && chmod '=rw' "$part" ||
    stop "cannot write in $queue/refused"
  if mv -n "$file" "$to" 2>/dev/null && [ ! -e "$file" ]; then
    mv "$part" "$to.txt"
  else # another worker has moved it
    rm -f "$part"
  fi
  part=
}

# Whether a file of this name was finished earlier. A file that another worker has just finished is not in QUEUE/in.
finished_before() {
  [ -e "$queue/done/$name" ] && [ -e "$file" ] || return 1
  echo "$queue/done/$name: a file of this name is finished already; give this one another name" >"$scratch/message"
  cat "$scratch/message" >&2
}

# finish: moves the file to QUEUE/done, unless another worker has done so
finish() {
  if finished_before; then
    refuse
    return
  fi
  mv -n "$file" "$queue/done/$name" 2>"$scratch/mv" && return
  if [ -e "$file" ] && [ ! -e "$queue/done/$name" ]; then
    cat "$scratch/mv" >&2
    stop "cannot move files to $queue/done"
  fi
}

clean() {
  [ -z "$child" ] || kill "$child" 2>/dev/null
  rm -rf "$scratch"
  rm -f "$probe" "$part"
}

model=$1 queue=$2
shift 2
child='' starting='' ending='' probe='' part='' scratch=''
trap clean EXIT
trap 'end 130' INT
trap 'end 143' TERM
# Private to this process: several workers of a machine may share STATE.
scratch=$(mktemp -d "$state.XXXXXX") && mkfifo "$scratch/pipe" || stop "cannot write beside $state"
mkdir -p "$queue/in" "$queue/out" "$queue/done" "$queue/refused" || exit
while true; do
  for file in "$queue"/in/*.jsonl; do
    name=${file##*/}
    look_at "$queue/out/$name"
    [ -e "$file" ] || continue
    if finished_before; then
      refuse
    elif attempt "$file" "$queue/out/$name" "$@"; then
      rm -f "$scratch/killed.$name"
      finish
    elif failed_for_good || killed_for_good; then
      cp "$scratch/log" "$scratch/message" || stop "cannot write beside $state"
      check_worker "$@"
      refuse
    elif [ $status = 2 ]; then # wrong usage
      exit $status
    fi
  done
  starting=1
  sleep "${WAIT:-5}" &
  started
  wait $child
  child=
done
