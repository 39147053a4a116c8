"""The job templates: their schemas, restarts under stand-ins for cluster managers, and two
workers that train.
"""

import importlib
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from official_bert.training import workers
from tests.commands.pretraining_run import flags_of, make_base
from tests.scripts import flag_list, run_here
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
    name: str, folder: pathlib.Path, *words: str, **environment
) -> subprocess.CompletedProcess:
    """Runs a template in a folder that has its programs and looks like the checkout."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
    command = [TEMPLATES / name, *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
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


def cluster_of(monkeypatch, **environment) -> workers.Cluster:
    """What a worker reads from TF_CONFIG, which the entry script sets before it becomes the
    worker.
    """
    script, commands = example("clusters/start_worker"), []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["start_worker.py", "run_pretraining.py", "--do_train"])
    monkeypatch.setattr(script.os, "execv", lambda program, command: commands.append(command))
    monkeypatch.setenv("TF_CONFIG", "")
    script.main()
    strategy = "--distribution_strategy=multi_worker_mirrored"
    assert commands == [
        [sys.executable, "-u", str(ROOT / "run_pretraining.py"), strategy, "--do_train"]
    ]
    return workers.read_cluster()


@pytest.mark.long
def test_two_workers_train_under_slurm_and_start_again(tmp_path):
    base = make_base(tmp_path / "base")
    flags = {"bert_config_file": base / "no_dropout.json", "do_eval": True}
    run_here("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / "one", **flags)))
    program(tmp_path / "srun", SRUN)
    program(tmp_path / "scontrol", "[ \"$*\" = 'show hostnames node[1]' ] && echo localhost")
    port = next(port for port in range(20000, 32000, 2) if is_free(port) and is_free(port + 1))
    words = ("run_pretraining.py", *flag_list(**flags_of(base, tmp_path / "two", **flags)))
    ran = run_template("slurm.sh", tmp_path, *words, PYTHON=sys.executable, WORKER_PORT=str(port))
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.startswith("Starting all workers again (restart 1)\n")
    assert_same_pretraining(tmp_path / "one", tmp_path / "two", num_replicas=2)


def test_slurm_goes_on_later_or_gives_up(tmp_path):
    program(tmp_path / "scontrol", 'echo "$@" >> scontrol.log')
    for status, ends_with, count in ((143, 0, 1), (1, 1, 1), (75, 75, 3)):
        program(tmp_path / "srun", f"echo srun; exit {status}")
        ran = run_template("slurm.sh", tmp_path, "run_x.py", SLURM_JOB_ID="7", MAX_RESTARTS="2")
        assert (ran.returncode, ran.stdout.count("srun")) == (ends_with, count)
    assert (tmp_path / "scontrol.log").read_text() == "requeue 7\n"


def test_a_tpu_vm_starts_again_and_hands_sigterm_on(tmp_path):
    program(
        tmp_path / "python",
        '[ -e once ] || { touch once; exit 70; }\necho "$@"; exec "$INSTEAD" -c "$CODE"',
    )
    run = {"TPU_NAME": "slice-1", "INSTEAD": sys.executable, "CODE": "0"}
    ran = run_template("tpu_vm.sh", tmp_path, "run_x.py", "--do_train", **run)
    assert ran.returncode == 0
    command = "-u run_x.py --do_train --use_tpu=True --tpu_name=slice-1\n"
    assert ran.stdout == f"Starting again (restart 1)\n{command}"
    # The program sends SIGTERM to the template, and saves for a moment when that hands it on.
    run["CODE"] = (
        "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), "
        "print('saved', flush=True), sys.exit(143)))\nos.kill(os.getppid(), signal.SIGTERM)\n"
        # A signal just before a sleep does not end it, and its handler runs after it.
        "while True: time.sleep(0.1)"
    )
    ran = run_template("tpu_vm.sh", tmp_path, "run_x.py", "--do_train", **run)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (143, "saved")


def test_slurm_names_the_workers(monkeypatch, tmp_path):
    program(tmp_path / "scontrol", "echo a; echo b")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "[a-b]"}
    assert cluster_of(monkeypatch, **slurm) == workers.Cluster(
        {"worker": ["a:2222", "a:2223", "b:2222", "b:2223"]}, "worker", 3
    )
    with pytest.raises(SystemExit, match="3 tasks on 2 nodes; give sbatch --ntasks-per-node"):
        cluster_of(monkeypatch, SLURM_NTASKS="3")
    for name in slurm:
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit, match="neither SLURM_PROCID nor JOB_COMPLETION_INDEX is set"):
        cluster_of(monkeypatch)


@needs_schemas
def test_the_shell_scripts_are_clean():
    subprocess.run(
        [pathlib.Path(sys.executable).with_name("shellcheck"), *TEMPLATES.glob("*.sh")], check=True
    )


@needs_schemas
@pytest.mark.parametrize(
    ("name", "host"), [("indexed_job", "bert-{}.bert"), ("jobset", "bert-workers-0-{}.bert")]
)
def test_kubernetes_knows_the_templates_and_they_name_the_workers(monkeypatch, name, host):
    yaml = importlib.import_module("yaml")
    kubernetes = importlib.import_module("kubernetes_validate")
    (*_, made) = documents = list(yaml.safe_load_all((TEMPLATES / f"{name}.yaml").read_text()))
    if name == "jobset":
        module = importlib.import_module("kubeflow_trainer_api.models.jobset_v1alpha2_job_set")
        assert made == written(module.JobsetV1alpha2JobSet.from_dict(made).to_dict(), made), (
            "a field is unknown"
        )
        (group,) = made["spec"]["replicatedJobs"]
        assert (
            host
            == f"{made['metadata']['name']}-{group['name']}-0-{{}}.{made['spec']['network']['subdomain']}"
        )
        documents = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "workers"},
                **group["template"],
            }
        ]
    for document in documents:
        kubernetes.validate(document, "1.37", strict=True)
    job = documents[-1]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["command"] == ["python", "examples/clusters/start_worker.py"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    found = cluster_of(monkeypatch, **variables, JOB_COMPLETION_INDEX="3")
    assert found == workers.Cluster(
        {"worker": [f"{host.format(n)}:2222" for n in range(4)]}, "worker", 3
    )
    assert variables["NUM_WORKERS"] == str(job["completions"]) == str(job["parallelism"])


def written(read: dict, given: dict):
    """The part of a read object that was given; whatever else it has is a default."""
    if isinstance(given, dict):
        return {name: written(read[name], value) for name, value in given.items() if name in read}
    if isinstance(given, list):
        return [written(*pair) for pair in zip(read, given, strict=True)]
    return read


def test_the_guide_names_every_template():
    guide = (ROOT / "docs" / "scaling_out.md").read_text(encoding="utf-8")
    named = set(re.findall(r"examples/clusters/([\w.]+)", guide))
    assert named == {
        path.name for path in TEMPLATES.iterdir() if path.suffix in (".sh", ".yaml", ".py")
    }
