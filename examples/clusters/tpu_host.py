#!/usr/bin/env python3
"""Starts the TensorFlow server of one host of a TPU slice, through which a training uses its cores.

Run it on every host of the slice, with the packages of docs/tpu.md, and leave it running. The
training runs on one host, or on a machine beside the slice, and connects to all servers:

    python examples/clusters/tpu_host.py --hosts=10.0.0.2,10.0.0.3 --index=0

Kubernetes on Google Cloud sets TPU_WORKER_HOSTNAMES and TPU_WORKER_ID, the defaults of both flags.
"""

import argparse
import os
import sys

JOB, PORT = "tpu_worker", 8470  # what TPUClusterResolver expects


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hosts",
        default=os.environ.get("TPU_WORKER_HOSTNAMES", ""),
        help="names or addresses of all hosts, separated by commas, in the same order everywhere",
    )
    parser.add_argument(
        "--index",
        type=int,
        default=os.environ.get("TPU_WORKER_ID"),
        help="the number of this host among them, from 0",
    )
    parser.add_argument("--port", type=int, default=PORT, help="the port of a host without one")
    return parser.parse_args()


def main():
    flags = parse_flags()
    hosts = [host.strip() for host in flags.hosts.split(",") if host.strip()]
    if flags.index is None or not 0 <= flags.index < len(hosts):
        sys.exit(
            f"tpu_host.py: host {flags.index} of the hosts {flags.hosts!r}; give --hosts with all "
            "hosts, and --index from 0 on, or TPU_WORKER_HOSTNAMES and TPU_WORKER_ID"
        )
    addresses = [host if ":" in host else f"{host}:{flags.port}" for host in hosts]
    import tensorflow as tf

    server = tf.distribute.Server(
        tf.train.ClusterSpec({JOB: addresses}), job_name=JOB, task_index=flags.index
    )
    print(f"host {flags.index} of {len(hosts)} serves {addresses[flags.index]}", flush=True)
    server.join()


if __name__ == "__main__":
    main()
