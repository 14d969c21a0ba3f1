#!/bin/bash
# Cuts the network between two hosts, which are namespaces, while four ranks train on them. Those on rank 0's side must end within the
# patience and name the ranks of the other, those on the other must end by themselves (what they say is cut off with them), and the
# run must continue from its last checkpoint with the losses of one that was not cut. mpirun must end too. 77 says that this cannot be done here.
#   link_cut.sh MPIRUN PROGRAM
set -uo pipefail
here=$(dirname -- "$0") mpirun=$1 program=$2
patience=5
folder=$(mktemp -d)
failed=0
check() { # CONDITION... -- WORDS
  local words=()
  while [[ $1 != -- ]]; do words+=("$1") && shift; done
  "${words[@]}" || { echo "WRONG: ${*:2}" && failed=1; }
}
now() { date +%s%N | sed 's/......$//'; } # milliseconds

job="train --model mlp:dim=64,depth=4 --batch 24 --optimizer adam --samples 240 --warmup 0 --strategy zero-2 -q"
# shellcheck disable=SC2086
"$here/hosts.sh" --hosts 2 --ranks 4 "$mpirun" \
  --mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
  "$program" $job --steps 1000000 --checkpoint "$folder/kept" --every 5 --patience $patience >"$folder/out" 2>"$folder/err" &
hosts=$!
trap 'pkill -KILL -P $hosts; kill $hosts 2>/dev/null; wait; rm -rf -- "$folder"' EXIT
ranks_on() { ip netns pids "b$hosts-$1" 2>/dev/null | while read -r pid; do [[ $(cat "/proc/$pid/comm" 2>/dev/null) == "${program##*/}" ]] && echo "$pid"; done; }

until compgen -G "$folder/kept/*.safetensors" >/dev/null; do
  kill -0 $hosts 2>/dev/null || { wait $hosts; code=$?; cat "$folder/out" "$folder/err"; exit $code; }
  sleep 0.05
done
sleep 0.5
start=$(now)
ip -n "b$hosts-1" link set eth0 down
while [[ -n $(ranks_on 0)$(ranks_on 1) ]] && (($(now) - start < 30000)); do sleep 0.02; done
took=$(($(now) - start))
echo "all ranks ended $took ms after the cut"
check test $took -lt $((patience * 1000)) -- "the ranks ended only after $took ms"
for rank in 1 3; do
  check grep -q "^\(baton: \)\?rank $rank (pid .* on node1) has not been heard from" "$folder/err" -- "rank $rank is not named"
done
check grep -q "the last good checkpoint is $folder/kept/" "$folder/err" -- 'the last checkpoint is not named'
while kill -0 $hosts 2>/dev/null && (($(now) - start < 40000)); do sleep 0.1; done
if kill -0 $hosts 2>/dev/null; then
  echo "WRONG: mpirun did not end" && failed=1
else
  wait $hosts
  code=$?
  check test $code -ne 0 -- 'the exit code is 0'
  echo "mpirun ended $(($(now) - start)) ms after the cut, with $code"
fi

last=$(find "$folder/kept" -name '*.safetensors' | sort | tail -1)
step=$((10#$(basename "$last" .safetensors | sed 's/step-//')))
# shellcheck disable=SC2086
for more in '--json whole.json' '--checkpoint kept --resume --json after.json'; do
  (cd "$folder" && "$program" $job --devices cpu:4 --steps $((step + 10)) $more >/dev/null) || { echo 'WRONG: it does not go on' && failed=1; }
done
losses() { sed -n '/"losses": \[/,/\]/p' "$folder/$1" | grep -o '[0-9][0-9.e-]*' | tail -10; }
check test "$(losses whole.json)" == "$(losses after.json)" -- 'the run that went on has other losses'
check test -n "$(losses after.json)" -- 'the run that went on has no losses'
((failed == 0)) || cat "$folder/err"
exit $failed
