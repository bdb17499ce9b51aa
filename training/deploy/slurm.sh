#!/usr/bin/env bash
# One run of training on two nodes under SLURM: sbatch training/deploy/slurm.sh
#SBATCH --job-name=translator-training
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --open-mode=append
set -euo pipefail

# Two minutes before the time limit, SLURM sends TERM: the run ends, and the requeued job resumes it
# from its last checkpoint. The run folder must be on storage that all nodes mount.
again() { scontrol requeue "$SLURM_JOB_ID"; }
srun --kill-on-bad-exit=1 .venv/bin/python training/train_pt_en.py --cluster slurm \
    --data train.tsv --validation validation.tsv --output runs/translator --steps 100000 --set clip_norm=0 &&
    status=0 || status=$?
if [ "$status" -ne 0 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then again; fi
exit "$status"
