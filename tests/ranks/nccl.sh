#!/bin/bash
# Everything that goes by NCCL between ranks, on one GPU: NCCL takes each rank for a host of its own and moves bytes over sockets.
#   nccl.sh MPIRUN TEST_RANKS BATON [STRIKES]
# Each call in each type, all strategies against one process, ranks that are killed, stopped and told to end. It shows that all that
# is correct, and nothing of how fast it is. Processes take turns on the GPU while NCCL's kernels wait, so it takes many minutes. 77
# says that there is no GPU here, or no NCCL, so that nothing was tested.
set -uo pipefail

mpirun=$1 tests=$2 baton=$(realpath "$3") strikes=${4:-8}
here=$(cd "$(dirname "$0")" && pwd)
ranks() { "$here/mpirun.sh" TRUE "$mpirun" "$@"; }

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -i 0 >/dev/null 2>&1; then
  echo "skipped: there is no GPU here"
  exit 77
fi
export BATON_CUDA_RANKS=nccl
folder=$(mktemp -d) && cd "$folder" || exit 1
trap 'rm -rf "$folder"' EXIT
wrong=0
expect() { # WORDS COMMAND...
  local words=$1
  shift
  if "$@"; then
    echo "ok: $words"
  else
    echo "WRONG: $words" && wrong=1
  fi
}

logged() { "$@" 2>&1 | tee -a log; }
for count in 2 4; do
  expect "what NCCL leaves between $count ranks" \
    logged ranks -n $count "$tests" --gtest_brief=1 --gtest_filter='NcclBetweenRanks.*:By/GpuRanks.*/nccl'
done
if [[ $wrong == 0 ]] && ! grep -q 'PASSED  ] [1-9]' log; then
  echo "skipped: no test ran, because there is no NCCL here or baton was built without CUDA"
  exit 77
fi

# Whole GPUs: two ranks that share one.
losses() { grep -o '"losses":[^]]*' "$1"; }
job='train --model mlp:dim=64,depth=4 --strategy ddp --devices cuda:0 --steps 5 -q'
same_losses() {
  ranks -n 2 "$baton" $job --json nccl.json >out && BATON_CUDA_RANKS=staged ranks -n 2 "$baton" $job --json staged.json >out &&
    [[ -n $(losses nccl.json) && $(losses nccl.json) == "$(losses staged.json)" ]]
}
expect 'whole GPUs that two ranks share leave the losses of staged meetings' same_losses

# Ranks on a GPU take seconds to start, the more the more of them there are.
strike() { python3 "$here/failures.py" --program "$baton" --mpirun "$mpirun" --devices nccl "$@"; }
expect 'nothing is lost when ranks are killed and stopped' strike --count "$strikes" --steps 100 --within 4
expect 'nor when they are in the middle of a training' strike --count "$strikes" --steps 3000 --after 3 --within 2 --resume-every 0
expect 'nor when a signal abandons a step that waits for NCCL' strike --count 2 --steps 100 --after 3 --within 2 --delay 400 --how term --resume-every 0
exit $wrong
