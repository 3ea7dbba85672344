#!/bin/bash
#SBATCH --job-name=lce
#SBATCH --array=0-15
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@90
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=lce-%A-%a.log

set -uo pipefail
export LCE_HOME=/shared/lce-home
export HF_HUB_OFFLINE=1
export PATH=/shared/lce/.venv/bin:$PATH

folders=(--model-folder llama2_7b=/shared/weights/llama-2-7b)
for name in slimpajama pg19 proof_pile essays squad hotpotqa longbench trec; do
  folders+=(--data-folder "$name=/shared/data/$name")
done

# Slurm sends the signal to all processes of the job; the shell ignores it. `lce worker` gives cells the grace period. A
# training run stops at once and later resumes from its last resume point.
trap : TERM
status=0
srun lce worker lceg-llama2-7b --processes 8 --micro-batch-tokens 32768 --no-wait --grace 45 \
  "${folders[@]}" || status=$?

# 130: the job was preempted or out of time, and work is left.
if [ "$status" -eq 130 ]; then
  scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$status"
