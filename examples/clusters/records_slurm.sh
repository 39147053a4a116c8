#!/usr/bin/env bash
# Makes records of a large text as an array of Slurm, one part in each task, and resumes after preemption and the time
# limit. In the checkout, which all machines see:
#
#     sbatch examples/clusters/records_slurm.sh --flagfile=/shared/records.flags
#
# records.flags has the flags of create_pretraining_data.py but --part and --num_workers, one per line. To make some parts
# again: sbatch --array=3,7 and the rest of the command.
#SBATCH --job-name=records
#SBATCH --array=1-256
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=4:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Before the time limit the script ends with status 143; its finished shards stay.
#SBATCH --signal=TERM@60
set -u

# The number of all parts, which is the end of --array above, not that of a later array.
NUM_PARTS=${NUM_PARTS:-256}
srun "${PYTHON:-python}" create_pretraining_data.py "$@" --generator=sharded \
    --part="$SLURM_ARRAY_TASK_ID/$NUM_PARTS" --num_workers="${SLURM_CPUS_PER_TASK:-1}"
status=$?
if ((status == 143)); then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" && exit 0
fi
exit "$status"
