"""The job templates: their schemas, restarts under stand-ins for cluster managers, and two
workers that train.
"""

import dataclasses
import importlib
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from official_bert import catalog
from official_bert.training import workers
from tests.commands.pretraining_run import flags_of, make_base
from tests.scripts import flag_list, forked_python, run_here, run_interpreter, run_python
from tests.shared import ROOT, example
from tests.test_replicas import assert_same_pretraining

TEMPLATES = ROOT / "examples" / "clusters"
needs_schemas = pytest.mark.needs_extra("kubernetes_validate", "kubeflow_trainer_api")

# A stand-in for srun on one node, which the first time says that a worker was lost.
SRUN = """
for option; do case $option in --*) shift ;; *) break ;; esac; done
[ -e srun.once ] || { touch srun.once; exit 75; }
for index in 0 1; do SLURM_PROCID=$index SLURM_NTASKS=2 SLURM_JOB_NODELIST=node[1] "$@" & started="$started $!"; done
for process in $started; do wait $process || exit $?; done
"""


def program(path: pathlib.Path, text: str):
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)


def run_template(
    name: str,
    folder: pathlib.Path,
    *words: str,
    **environment,
) -> subprocess.CompletedProcess:
    """Run a template in a folder that has its programs and looks like the checkout."""
    examples = folder / "examples"
    if not examples.exists():
        examples.symlink_to(ROOT / "examples")
    path = os.environ["PATH"]
    return subprocess.run(
        [TEMPLATES / name, *words],
        cwd=folder,
        env=os.environ | {"PATH": f"{folder}:{path}"} | environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def is_free(port: int) -> bool:
    try:
        socket.create_server(("", port)).close()
    except OSError:
        return False
    return True


def find_two_free_ports() -> int:
    """Return the first of two free ports that follow each other."""
    for port in range(20000, 32000, 2):
        if is_free(port) and is_free(port + 1):
            return port
    raise OSError("all ports are in use")


def read_cluster(monkeypatch, **environment) -> workers.Cluster:
    """Return what a worker reads from TF_CONFIG, which the entry script sets before it becomes
    the worker.
    """
    script = example("clusters/start_worker")
    commands = []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["start_worker.py", "run_pretraining.py", "--do_train"])
    monkeypatch.setattr(script.os, "execv", lambda program, command: commands.append(command))
    monkeypatch.setenv("TF_CONFIG", "")
    script.main()
    (command,) = commands
    assert command == [
        sys.executable,
        "-u",
        str(ROOT / "run_pretraining.py"),
        "--distribution_strategy=multi_worker_mirrored",
        "--do_train",
    ]
    return workers.read_cluster()


@pytest.mark.long
def test_two_workers_train_under_slurm_and_start_again(tmp_path):
    base = make_base(tmp_path / "base")
    one = tmp_path / "one"
    two = tmp_path / "two"
    flags = {
        "bert_config_file": base / "no_dropout.json",
        "do_eval": True,
    }
    one_flags = flag_list(**flags_of(base, one, **flags))
    two_flags = flag_list(**flags_of(base, two, **flags))
    run_here("run_pretraining.py", *one_flags)

    program(tmp_path / "srun", SRUN)
    program(tmp_path / "scontrol", "[ \"$*\" = 'show hostnames node[1]' ] && echo localhost")
    ran = run_template(
        "slurm.sh",
        tmp_path,
        "run_pretraining.py",
        *two_flags,
        PYTHON=sys.executable,
        WORKER_PORT=str(find_two_free_ports()),
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.startswith("Starting all workers again (restart 1)\n")
    assert_same_pretraining(one, two, num_replicas=2)


@pytest.mark.parametrize(
    ("status", "template_status", "num_starts", "log"),
    [
        pytest.param(143, 0, 1, "requeue 7\n", id="preempted"),
        pytest.param(1, 1, 1, "", id="failed"),
        pytest.param(75, 75, 3, "", id="lost a worker"),
    ],
)
def test_slurm_goes_on_later_or_gives_up(tmp_path, status, template_status, num_starts, log):
    log_file = tmp_path / "scontrol.log"
    log_file.touch()
    program(tmp_path / "scontrol", 'echo "$@" >> scontrol.log')
    program(tmp_path / "srun", f"echo srun; exit {status}")
    ran = run_template("slurm.sh", tmp_path, "run_x.py", SLURM_JOB_ID="7", MAX_RESTARTS="2")
    assert ran.returncode == template_status
    assert ran.stdout.count("srun") == num_starts
    assert log_file.read_text() == log


@pytest.mark.parametrize(
    ("status", "template_status", "log"),
    [
        pytest.param(0, 0, "", id="made"),
        pytest.param(143, 0, "requeue 7_3\n", id="preempted"),
        pytest.param(1, 1, "", id="failed"),
    ],
)
def test_slurm_makes_a_part_of_the_records(tmp_path, status, template_status, log):
    log_file = tmp_path / "scontrol.log"
    log_file.touch()
    program(tmp_path / "scontrol", 'echo "$@" >> scontrol.log')
    program(tmp_path / "srun", f'echo "$@"; exit {status}')
    ran = run_template(
        "records_slurm.sh",
        tmp_path,
        "--flagfile=records.flags",
        PYTHON="python",
        SLURM_ARRAY_JOB_ID="7",
        SLURM_ARRAY_TASK_ID="3",
        SLURM_CPUS_PER_TASK="16",
    )
    assert ran.returncode == template_status
    assert ran.stdout == (
        "python create_pretraining_data.py --flagfile=records.flags --generator=sharded "
        "--part=3/256 --num_workers=16\n"
    )
    assert log_file.read_text() == log
    assert "#SBATCH --array=1-256\n" in (TEMPLATES / "records_slurm.sh").read_text()


# A program that sends SIGTERM to the template, and saves for a moment when that hands it on.
# A signal just before a sleep does not end it, and its handler runs after it.
SAVING_PROGRAM = """
import os, signal, sys, time

def save(*_):
    time.sleep(0.2)
    print('saved', flush=True)
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
os.kill(os.getppid(), signal.SIGTERM)
while True:
    time.sleep(0.1)
"""


def test_a_tpu_vm_starts_again_and_hands_sigterm_on(tmp_path):
    program(
        tmp_path / "python",
        '[ -e once ] || { touch once; exit 70; }\necho "$@"; exec "$INSTEAD" -c "$CODE"',
    )

    def run_program(code: str) -> subprocess.CompletedProcess:
        return run_template(
            "tpu_vm.sh",
            tmp_path,
            "run_x.py",
            "--do_train",
            TPU_NAME="slice-1",
            INSTEAD=sys.executable,
            CODE=code,
        )

    ran = run_program("0")
    assert ran.returncode == 0
    command = "-u run_x.py --do_train --use_tpu=True --tpu_name=slice-1\n"
    assert ran.stdout == f"Starting again (restart 1)\n{command}"

    ran = run_program(SAVING_PROGRAM)
    assert ran.returncode == 143
    assert ran.stdout.splitlines()[-1] == "saved"


_COMPUTES_ON_TWO_HOSTS = """
import os, sys
import tensorflow as tf
tpu = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=sys.argv[1])
tf.config.experimental_connect_to_cluster(tpu)
for host in (0, 1):
    with tf.device(f"/job:worker/task:{host}/device:CPU:0"):
        result = tf.constant(2) + host
    print(result.device, int(result), flush=True)
os._exit(0)  # the usual end would wait for the servers
"""


def test_a_training_reaches_the_servers_of_the_hosts_of_a_slice():
    first_port = find_two_free_ports()
    hosts = [f"localhost:{first_port}", f"localhost:{first_port + 1}"]
    program = TEMPLATES / "tpu_host.py"
    servers = [
        subprocess.Popen(
            [forked_python(), program, f"--hosts={','.join(hosts)}", f"--index={index}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in (0, 1)
    ]
    try:
        for index, server in enumerate(servers):
            assert server.stdout.readline() == f"host {index} of 2 serves {hosts[index]}\n"
        tpu = ",".join(f"grpc://{host}" for host in hosts)
        output = run_python("-c", _COMPUTES_ON_TWO_HOSTS, tpu).stdout
    finally:
        for server in servers:
            server.kill()
            server.wait()
    places = [f"/job:worker/replica:0/task:{host}/device:CPU:0" for host in (0, 1)]
    assert output.splitlines()[-2:] == [f"{places[0]} 2", f"{places[1]} 3"]


@pytest.mark.parametrize("words", [[], ["--hosts=a,b"], ["--hosts=a,b", "--index=2"]])
def test_a_host_without_a_number_of_its_own_is_refused(monkeypatch, words):
    monkeypatch.delenv("TPU_WORKER_HOSTNAMES", raising=False)
    monkeypatch.delenv("TPU_WORKER_ID", raising=False)
    ran = run_interpreter(TEMPLATES / "tpu_host.py", *words, status=1)
    assert "give --hosts with all hosts, and --index from 0 on" in ran.stderr


def test_slurm_names_the_workers(monkeypatch, tmp_path):
    program(tmp_path / "scontrol", "echo a; echo b")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    slurm = {
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "4",
        "SLURM_JOB_NODELIST": "[a-b]",
    }
    cluster = read_cluster(monkeypatch, **slurm)
    addresses = ["a:2222", "a:2223", "b:2222", "b:2223"]
    assert cluster == workers.Cluster({"worker": addresses}, "worker", 3)

    with pytest.raises(SystemExit, match="3 tasks on 2 nodes; give sbatch --ntasks-per-node"):
        read_cluster(monkeypatch, SLURM_NTASKS="3")
    for name in slurm:
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit, match="neither SLURM_PROCID nor JOB_COMPLETION_INDEX is set"):
        read_cluster(monkeypatch)


@needs_schemas
def test_the_shell_scripts_are_clean():
    shellcheck = pathlib.Path(sys.executable).with_name("shellcheck")
    subprocess.run([shellcheck, *TEMPLATES.glob("*.sh")], check=True)


def read_documents(name: str) -> list[dict]:
    """Read the documents of a template for Kubernetes."""
    yaml = importlib.import_module("yaml")
    text = (TEMPLATES / name).read_text()
    return list(yaml.safe_load_all(text))


def validate(document: dict):
    kubernetes = importlib.import_module("kubernetes_validate")
    kubernetes.validate(document, "1.37", strict=True)


def assert_names_workers(monkeypatch, job: dict, host: str):
    """Assert that the workers of a job find each other at the addresses of this form."""
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["python", "examples/clusters/start_worker.py"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    cluster = read_cluster(monkeypatch, **variables, JOB_COMPLETION_INDEX="3")
    addresses = [f"{host.format(number)}:2222" for number in range(4)]
    assert cluster == workers.Cluster({"worker": addresses}, "worker", 3)
    num_workers = variables["NUM_WORKERS"]
    assert num_workers == str(job["completions"])
    assert num_workers == str(job["parallelism"])


@needs_schemas
def test_kubernetes_knows_the_indexed_job_which_names_the_workers(monkeypatch):
    documents = read_documents("indexed_job.yaml")
    for document in documents:
        validate(document)
    job = documents[-1]["spec"]
    assert_names_workers(monkeypatch, job, "bert-{}.bert")


@needs_schemas
def test_kubernetes_knows_the_job_of_the_records_whose_pods_make_all_parts(tmp_path):
    (job,) = read_documents("records_job.yaml")
    validate(job)
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    program(tmp_path / "python", 'echo "$@"')
    parts = []
    for index in (0, spec["completions"] - 1):
        ran = subprocess.run(
            [*container["command"], *container["args"]],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": str(index)},
            capture_output=True,
            text=True,
            check=True,
        )
        script, *flags = ran.stdout.split()
        assert script == "create_pretraining_data.py"
        options = catalog.options_class("create_pretraining_data")
        names = {flag.removeprefix("--").partition("=")[0] for flag in flags}
        assert names - {"flagfile"} <= {field.name for field in dataclasses.fields(options)}
        parts.append(next(flag for flag in flags if flag.startswith("--part=")))
    assert parts == ["--part=1/256", "--part=256/256"]


@needs_schemas
def test_kubernetes_knows_the_jobset_which_names_the_workers(monkeypatch):
    jobset = read_documents("jobset.yaml")[-1]
    module = importlib.import_module("kubeflow_trainer_api.models.jobset_v1alpha2_job_set")
    parsed = module.JobsetV1alpha2JobSet.from_dict(jobset)
    assert jobset == cut_to_written(parsed.to_dict(), jobset), "a field is unknown"

    spec = jobset["spec"]
    (group,) = spec["replicatedJobs"]
    jobset_name = jobset["metadata"]["name"]
    group_name = group["name"]
    subdomain = spec["network"]["subdomain"]
    host = f"{jobset_name}-{group_name}-0-{{}}.{subdomain}"
    assert host == "bert-workers-0-{}.bert"

    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "workers"},
        **group["template"],
    }
    validate(job)
    assert_names_workers(monkeypatch, job["spec"], host)


def cut_to_written(parsed: dict, written: dict):
    """Return the part of a parsed object that was written; whatever else it has is a default."""
    if isinstance(written, dict):
        fields = {}
        for name, value in written.items():
            if name in parsed:
                fields[name] = cut_to_written(parsed[name], value)
        return fields
    if isinstance(written, list):
        return [cut_to_written(*pair) for pair in zip(parsed, written, strict=True)]
    return parsed


def test_the_guides_name_every_template():
    guides = [ROOT / "docs" / f"{name}.md" for name in ("scaling_out", "records_many_machines")]
    text = "".join(guide.read_text(encoding="utf-8") for guide in guides)
    names = set(re.findall(r"examples/clusters/([\w.]+)", text))
    suffixes = (".sh", ".yaml", ".py")
    templates = [path for path in TEMPLATES.iterdir() if path.suffix in suffixes]
    assert names == {path.name for path in templates}
