#!/usr/bin/env bash
# A training on many machines by Slurm: a chief, parameter servers and workers, started anew where that is asked for.
#
#   sbatch --nodes=7 --ntasks=7 tools/launch/slurm.sh films.yaml --data /shared/films-encoded --out /shared/runs/films
#
# Options of Slurm stand before the script, arguments of `feat2vec train` behind it. All paths are on a file system that
# all machines see. SERVERS (2) of the tasks are parameter servers, one is the chief, the others are workers. PORT (7000)
# and as many ports above it as there are tasks must be free, and reachable from this job's machines alone: TensorFlow's
# servers trust whoever reaches them.
#
#SBATCH --job-name=feat2vec
set -euo pipefail

restart=75 # the exit status by which feat2vec asks for its servers and itself to be started again
export SERVERS=${SERVERS:-2} PORT=${PORT:-7000}
tasks=${SLURM_NTASKS:?run this script by sbatch, with --ntasks}
if [ "$tasks" -lt $((SERVERS + 2)) ]; then
  echo "slurm.sh: a chief, $SERVERS servers and a worker are $((SERVERS + 2)) tasks; received --ntasks=$tasks" >&2
  exit 2
fi

# The machine of each task, in the order of their numbers. Every step of the job places its tasks in the same way.
export HOSTS STATUS
HOSTS=$(srun --ntasks="$tasks" bash -c 'echo "$SLURM_PROCID $(hostname)"' | sort -n | cut -d " " -f 2 | paste -s -d " ")
STATUS=$(mktemp -p "${SLURM_SUBMIT_DIR:-$PWD}" .feat2vec-status.XXXXXX) # all machines see this folder
trap 'rm -f "$STATUS"' EXIT

# What each task does, by its number: 0 is the chief, then come the servers, then the workers.
run_task() {
  local hosts=($HOSTS) chief="" servers="" workers="" i address
  for i in "${!hosts[@]}"; do
    address="\"${hosts[$i]}:$((PORT + i))\""
    if [ "$i" -eq 0 ]; then
      chief=$address
    elif [ "$i" -le "$SERVERS" ]; then
      servers="$servers${servers:+, }$address"
    else
      workers="$workers${workers:+, }$address"
    fi
  done
  local kind=worker index=$((SLURM_PROCID - SERVERS - 1))
  if [ "$SLURM_PROCID" -eq 0 ]; then
    kind=chief index=0
  elif [ "$SLURM_PROCID" -le "$SERVERS" ]; then
    kind=ps index=$((SLURM_PROCID - 1))
  fi
  export TF_CONFIG="{\"cluster\": {\"chief\": [$chief], \"ps\": [$servers], \"worker\": [$workers]},
    \"task\": {\"type\": \"$kind\", \"index\": $index}}"
  if [ "$kind" != chief ]; then
    exec feat2vec node --host 0.0.0.0
  fi
  local code=0
  feat2vec train "$@" --cluster --host 0.0.0.0 --resume || code=$?
  echo "$code" >"$STATUS"
  return "$code"
}

while :; do
  : >"$STATUS"
  # The chief's end ends the step: at once if it has failed, after ten seconds if it is done, as nodes only wait then.
  srun --ntasks="$tasks" --kill-on-bad-exit=1 --wait=10 bash -c "$(declare -f run_task); run_task \"\$@\"" run_task "$@" || true
  code=$(cat "$STATUS")
  # Without a status a machine or a node was lost before the chief could say so.
  if [ "${code:-$restart}" -ne "$restart" ]; then
    exit "$code"
  fi
  echo "slurm.sh: a process was lost; chief and servers start again, from the last checkpoint" >&2
  sleep "${PAUSE:-5}"
done
