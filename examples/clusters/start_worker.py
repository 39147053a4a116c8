#!/usr/bin/env python3
"""Starts one worker of a training on several machines, as the cluster manager that starts this
script numbers it.

In: a training script with its flags, and the manager's environment variables. The script of this
folder that fits the manager, slurm.sh, indexed_job.yaml or jobset.yaml, starts it once for each
worker:

    python examples/clusters/start_worker.py run_pretraining.py --flagfile=/shared/run.flags

Slurm sets SLURM_PROCID, SLURM_NTASKS and SLURM_JOB_NODELIST; workers of one machine listen on ports
from WORKER_PORT (2222) on. Kubernetes sets JOB_COMPLETION_INDEX, the templates NUM_WORKERS and
WORKER_ADDRESS, in which {} stands for a worker's number. This process becomes the training, so that
signals reach it and its exit status is that of the
worker: 1 if the input or a flag cannot be used, 75 if another worker is gone, 143 after SIGTERM,
    with all saved.
"""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def cluster(environment: Mapping[str, str]) -> tuple[list[str], int]:
    """Returns the addresses host:port of all workers, and the number of this one."""
    if "SLURM_PROCID" in environment:
        command = ["scontrol", "show", "hostnames", environment["SLURM_JOB_NODELIST"]]
        nodes = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.split()
        count, port = int(environment["SLURM_NTASKS"]), int(environment.get("WORKER_PORT", "2222"))
        if count % len(nodes):
            sys.exit(
                f"start_worker.py: {count} tasks on {len(nodes)} nodes; give sbatch "
                "--ntasks-per-node"
            )
        ports = range(port, port + count // len(nodes))
        return [f"{node}:{port}" for node in nodes for port in ports], int(
            environment["SLURM_PROCID"]
        )
    if "JOB_COMPLETION_INDEX" in environment:
        address = environment["WORKER_ADDRESS"]
        hosts = [address.format(index) for index in range(int(environment["NUM_WORKERS"]))]
        return hosts, int(environment["JOB_COMPLETION_INDEX"])
    sys.exit(
        "start_worker.py: neither SLURM_PROCID nor JOB_COMPLETION_INDEX is set; on one machine use "
        "launch"
    )


def main():
    if len(sys.argv) < 2:
        sys.exit(f"{__doc__}\nstart_worker.py: no command; give a training script and its flags")
    hosts, index = cluster(os.environ)
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": task})
    script, *flags = sys.argv[1:]
    command = [
        sys.executable,
        "-u",
        str(ROOT / script),
        "--distribution_strategy=multi_worker_mirrored",
        *flags,
    ]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
