#!/usr/bin/env bash
# Trains on a Cloud TPU VM, and resumes after failures. On the VM, in the checkout, with the packages of docs/tpu.md:
#
#     nohup examples/clusters/tpu_vm.sh run_pretraining.py --flagfile=run.flags >> train.log 2>&1 &
#
# The TPU is that of this VM. For a slice of several hosts start tpu_host.py on all of them, and this script on host 0
# alone, with TPU_LOAD_LIBRARY=0 and TPU_NAME=grpc://HOST0:8470,grpc://HOST1:8470: that one process drives all hosts. A
# VM that was preempted and made again resumes with the same command, as a startup script for instance; the flags name
# files on gs://.
set -u

child=
trap 'kill -TERM "$child"; wait "$child"; exit $?' TERM
for ((attempt = 0; attempt <= ${MAX_RESTARTS:-10}; attempt++)); do
    ((attempt == 0)) || echo "Starting again (restart $attempt)"
    "${PYTHON:-python}" -u "$@" --use_tpu=True --tpu_name="${TPU_NAME:-local}" &
    child=$!
    wait "$child"
    status=$?
    case $status in
        0 | 1 | 143) exit "$status" ;; # done, refused input, which no restart changes, or stopped with all saved
    esac
done
exit "$status"
