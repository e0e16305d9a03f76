#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The job scripts of apps/configs/slurm on a Slurm of one node that this starts for itself, as root and on loopback:
#   tests/slurm_test.sh PROGRAM
# A run by MPI is told to stop, goes back to the queue, and ends as one that was never stopped, bit for bit; an array of seeds
# ends with their comparison; the script for GPUs is accepted for GPUs that the node is said to have. Exit code 77: no Slurm here.
set -euo pipefail
export ABTRAIN=$1
jobs_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/../apps/configs/slurm" && pwd)
PATH+=:/usr/sbin
for needed in munged slurmctld slurmd sbatch mpirun; do
  command -v "$needed" > /dev/null || { echo "there is no $needed"; exit 77; }
done
[[ $EUID == 0 ]] || { echo "only root can start a Slurm"; exit 77; }

scratch=$(mktemp -d) servers=()
cd "$scratch"
end() {
  ((${#servers[@]} == 0)) || kill "${servers[@]}" 2> /dev/null || true
  wait
  rm -rf "$scratch"
}
trap end EXIT
fail() { echo "$*"; tail -n 20 ./*.log; exit 1; }

dd if=/dev/urandom of=key bs=1024 count=1 status=none
chmod 400 key
node=$(hostname -s) port=$((20000 + $$ % 10000))
cat > slurm.conf << CONF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 10000))
SlurmUser=root
AuthInfo=socket=$scratch/munge
StateSaveLocation=$scratch
SlurmdSpoolDir=$scratch
SlurmctldPidFile=$scratch/controller.pid
SlurmdPidFile=$scratch/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES
CONF
printf "Name=gpu File=%s\n" /dev/null /dev/zero > gres.conf
export SLURM_CONF=$scratch/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
munged --foreground --force --key-file key --socket munge --pid-file munge.pid --log-file munge.log --seed-file munge.seed > munge.out 2>&1 &
servers+=($!)
slurmctld -D > controller.log 2>&1 &
servers+=($!)
slurmd -D > node.log 2>&1 &
servers+=($!)

patience=$((SECONDS + 240))
until_true() {  # COMMAND...: what it is, in the message
  until "$@"; do
    ((SECONDS < patience)) || fail "waited in vain for: $*"
    sleep 0.3
  done
}
idle() { [[ $(sinfo -h -o %T 2> /dev/null) == idle ]]; }
steps() { [[ -e $1/metrics.jsonl && $(wc -l < "$1/metrics.jsonl") -ge $2 ]]; }
waits() { [[ $(squeue -h -j "$1" -o %T 2> /dev/null) == PENDING ]]; }
gone() { [[ -z $(squeue -h -j "$1" 2> /dev/null) ]]; }
until_true idle

few="--ntasks-per-node=2 --cpus-per-task=1 --time=60"
flags="--dataset synthetic --data-dir $scratch/images --model resnet20 --width 0.5 --batch-size 8 --steps 1000 --eval-every 0 --val-samples 100 --threads 1"
for run in whole stopped; do
  job=$(sbatch --parsable $few --nodes=1 "$jobs_folder/cpus.sbatch" $flags --out "$scratch/$run")
  if [[ $run == stopped ]]; then
    until_true steps stopped 5
    scancel --batch --signal=USR1 "$job"  # as --signal=B:USR1@300 does before the limit
    until_true waits "$job"
    [[ ! -e stopped/model.safetensors ]] || fail "the run ended before it was stopped"
    scontrol update jobid="$job" starttime=now+2  # at once it may be refused as the one that was told to stop
  fi
  until_true gone "$job"
done
cmp whole/model.safetensors stopped/model.safetensors || fail "the run that was stopped ended otherwise"

RUNS=$scratch/seeds
export RUNS
job=$(sbatch --parsable --cpus-per-task=1 "$jobs_folder/seeds.sbatch" --dataset synthetic --data-dir "$scratch/images" --model resnet20 --width 0.25 \
  --batch-size 8 --steps 20 --eval-every 0 --val-samples 100)
until_true gone "$job"
grep -q '^2  *dense ' abtrain-"$job"-*.log || fail "no task compared the seeds"

sbatch --test-only $few --gpus-per-node=2 "$jobs_folder/gpus.sbatch" || fail "the script for GPUs is refused"
echo "stopped, requeued, equal bits; seeds compared; GPUs accepted"
