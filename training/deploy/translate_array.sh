#!/usr/bin/env bash
# A file translated in sixteen parts under SLURM:
#
#   split -n l/16 -d --additional-suffix=.txt in.txt in.   # in.00.txt to in.15.txt
#   sbatch training/deploy/translate_array.sh
#
# A task that is queued again resumes its part. Then: cat out.??.txt > out.txt
#SBATCH --job-name=translate
#SBATCH --array=0-15
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

part=$(printf %02d "$SLURM_ARRAY_TASK_ID")
exec .venv/bin/python training/translate.py runs/translator --resume \
    --input="in.$part.txt" --output="out.$part.txt"
