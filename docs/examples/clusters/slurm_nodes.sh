#!/bin/bash
#SBATCH --job-name=lce-nodes
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --output=lce-%j.log

set -uo pipefail
export LCE_HOME=/shared/lce-home
export PATH=/shared/lce/.venv/bin:$PATH
export config=$PWD/accelerate-$SLURM_JOB_ID.yaml

cat > "$config" <<END
num_machines: $SLURM_NNODES
num_processes: $((8 * SLURM_NNODES))
main_process_ip: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
main_process_port: 29500
mixed_precision: bf16
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
END

# --wait ends `lce join` on the other nodes when the worker of the first node has ended.
srun --wait=30 bash -c '
  if [ "$SLURM_NODEID" -gt 0 ]; then
    exec lce join "$config" --machine-rank "$SLURM_NODEID"
  fi
  exec lce worker lceg-llama2-7b --accelerate-config "$config" --no-wait \
    --model-folder llama2_7b=/shared/weights/llama-2-7b --data-folder slimpajama=/shared/data/slimpajama
'
