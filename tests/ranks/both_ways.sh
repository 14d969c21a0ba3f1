#!/bin/bash
# Between two hosts, which are namespaces, on a link of 100 Mb/s an all_gather sends half of its bytes each way. Where both ways are used
# at once it takes about half as long as sending them all one way; where they take turns, as long. 77 says that this cannot be done here.
#   both_ways.sh MPIRUN PROGRAM
set -uo pipefail
here=$(dirname -- "$0") mpirun=$1 program=$2
json=$(mktemp)
trap 'rm -f -- "$json"' EXIT
"$here/hosts.sh" --hosts 2 --rate 100mbit "$mpirun" "$program" bench collectives --devices cpu:1 --sizes 4MiB --time-limit 1s \
  --operations all_gather,send_receive --json "$json" || exit $?
time_of() { grep -A8 "\"$1\"" "$json" | grep -o '"time_ns": [0-9]*' | head -1 | grep -o '[0-9]*$'; }
both=$(time_of all_gather) one=$(time_of send_receive)
echo "4 MiB between two hosts on 100 Mb/s: half of it each way in $both ns, all of it one way in $one ns"
if [[ -z $both || -z $one ]] || ((both * 4 >= one * 3)); then
  echo 'WRONG: the two ways take turns'
  exit 1
fi
