"""Where the workers are, by flags and by TF_CONFIG; what they agree on is in
tests/test_workers.py, too.
"""

import json

import pytest

from official_bert.io.errors import InputError
from official_bert.training import workers
from tests.scripts import forked_python, run_python, run_script

HOSTS = ["10.0.0.1:2222", "10.0.0.2:2222"]


def config(cluster, **task) -> str:
    return json.dumps({"cluster": cluster, "task": task})


def test_the_environment_names_the_workers(monkeypatch):
    cluster = {
        "chief": [HOSTS[0]],
        "worker": [HOSTS[1]],
        "ps": ["10.0.0.3:2222"],
        "evaluator": ["10.0.0.4:1"],
    }
    monkeypatch.setenv("TF_CONFIG", config(cluster, type="worker", index="0"))
    found = workers.read_cluster()
    assert found == workers.Cluster({"chief": [HOSTS[0]], "worker": [HOSTS[1]]}, "worker", 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the workers are not known; set TF_CONFIG"),
        ("[]", "does not describe a cluster"),
        ('{"cluster": {"worker": ["a:1"]}}', "KeyError: 'task'"),
        (config({"worker": ["a:1"]}, type="worker", index=1), "has no worker 1; count them from 0"),
        (
            config({"worker": ["a:x"]}, type="worker", index=0),
            "'a:x' is no address; write host:port",
        ),
        (config({"worker": ["a:1", "a:1"]}, type="worker", index=0), "a:1 is there twice"),
    ],
)
def test_an_environment_without_a_cluster_is_refused(monkeypatch, text, sentence):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError, match=sentence):
        workers.read_cluster()


# Two workers print what they see; TF_CONFIG names a chief and a worker.
PROGRAM = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
hosts, index = config["cluster"]["worker"], config["task"]["index"]
task = {"type": ("chief", "worker")[index], "index": 0}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"chief": hosts[:1], "worker": hosts[1:]}, "task": task})
import numpy as np
import tensorflow as tf
from official_bert.io.errors import InputError
from official_bert.options.shared import DistributionOptions
from official_bert.training.distribution import make_strategy, split_over_replicas

from official_bert.training.workers import Workers

strategy = make_strategy(DistributionOptions(distribution_strategy="multi_worker_mirrored"))
workers = Workers(strategy)
def said(**values):
    try:
        workers.check_equal(values)
    except InputError as error:
        return str(error)
batch = {"x": np.arange(8).reshape(1, 8)}
def local(parts):
    return [np.asarray(value).tolist() for value in strategy.experimental_local_results(parts["x"])]
print(json.dumps({
    "index": workers.index, "count": workers.count,
    "chief": workers.is_chief,
    "from chief": workers.broadcast_from_chief(2**40 + index),
    "all": workers.gather(3 + index).tolist(),
    "equal": said(a=1, b=[2]),
    "other values": said(**{"a": 1, "--b": 2 + index, "c": index}),
    "other names": said(**{"a" * (1 + index): 1}),
    "any": [workers.any_worker(index == one) for one in (0, 1, 2)],
    "part": local(split_over_replicas(strategy, batch)),
    "own": local(split_over_replicas(strategy, batch, is_local=True)),
}))
"""


def test_two_workers_agree_and_share_batches():
    ran = run_script(
        "launch",
        "--num_workers=2",
        "--max_restarts=0",
        "--",
        forked_python(),
        "-c",
        PROGRAM,
    )
    found = {}
    for line in ran.stdout.splitlines():
        name, _, text = line.partition("] ")
        if text.startswith("{"):
            found[name[-1]] = json.loads(text)
    common = {
        "count": 2,
        "from chief": 2**40,
        "any": [True, True, False],
        "own": [[list(range(8))]],
    }
    common |= {"all": [3, 4], "equal": None}
    common |= {
        "other names": "the workers run different scripts or versions; start all of them with the same command"
    }
    differ = (
        "the workers differ in --b={} here, c; start all of them with the same flags on the same "
        "files"
    )
    chief = {
        "index": 0,
        "chief": True,
        "part": [[[0, 1, 2, 3]]],
        "other values": differ.format(2),
    }
    second_worker = {
        "index": 1,
        "chief": False,
        "part": [[[4, 5, 6, 7]]],
        "other values": differ.format(3),
    }
    assert found == {"0": common | chief, "1": common | second_worker}


def test_a_port_that_is_taken_ends_in_one_sentence():
    program = """
import json, os, socket
taken = socket.create_server(("localhost", 0))
from official_bert.io.errors import WorkerLost
from official_bert.options.shared import DistributionOptions
from official_bert.training.distribution import make_strategy
hosts = [f"localhost:{taken.getsockname()[1]}", "localhost:1"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}})
try:
    make_strategy(DistributionOptions(distribution_strategy="multi_worker_mirrored"))
except WorkerLost as error:
    print(error)
"""
    printed = run_python("-c", program).stdout
    assert (
        "cannot be reached (Could not start gRPC server); check the addresses, that no other"
        in printed
    )
