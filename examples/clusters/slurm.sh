#!/usr/bin/env bash
# Trains on several machines of a Slurm cluster, and resumes after failures, preemption and the time limit. In the
# checkout, which all machines see:
#
#     sbatch examples/clusters/slurm.sh run_pretraining.py --flagfile=/shared/run.flags
#
# One worker on each machine uses all of its GPUs. The flags name files on a file system that all machines share.
#SBATCH --job-name=bert
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Before the time limit the workers save a checkpoint, and end with status 143.
#SBATCH --signal=TERM@180
set -u

for ((attempt = 0; attempt <= ${MAX_RESTARTS:-10}; attempt++)); do
    ((attempt == 0)) || echo "Starting all workers again (restart $attempt)"
    # The peers of a failed worker end by themselves within a minute. srun's status is the highest of all.
    srun --wait=90 --kill-on-bad-exit=0 "${PYTHON:-python}" examples/clusters/start_worker.py "$@"
    status=$?
    case $status in
        0 | 1) exit "$status" ;; # done, or every worker refused its input or its flags, which no restart changes
        143) scontrol requeue "$SLURM_JOB_ID" && exit 0 ;;
    esac
done
exit "$status"
