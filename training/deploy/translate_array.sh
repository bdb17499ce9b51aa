#!/usr/bin/env bash
# A file translated in sixteen parts under SLURM: sbatch training/deploy/translate_array.sh
# A task that is queued again resumes its part. Then: cat out.*-of-16.txt > out.txt
#SBATCH --job-name=translate
#SBATCH --array=0-15
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

exec .venv/bin/python training/translate.py runs/translator --input=in.txt --output=out.txt \
    --shard=auto/16
