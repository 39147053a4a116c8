"""The files around the package: workflow, issue forms, hooks, citation, containers, package index.

Schemas of check-jsonschema and the fields that each file must have. Nothing here runs Docker or the
repository's host.
"""

import ast
import importlib.resources
import importlib.util
import json
import pathlib
import re
import shlex
import tomllib

import jsonschema
import pytest
from ruamel.yaml import YAML

import official_bert
from official_bert import catalog
from tests import dockerfiles
from tests.shared import ROOT

WORKFLOW = ".github/workflows/ci.yml"
FORMS = (".github/ISSUE_TEMPLATE/bug_report.yml", ".github/ISSUE_TEMPLATE/feature_request.yml")
SCHEMAS = {
    WORKFLOW: "github-workflows",
    FORMS[0]: "github-issue-forms",
    FORMS[1]: "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    "CITATION.cff": "citation-file-format",
}
DOCKER_INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "FROM", "RUN", "WORKDIR"}
PYTHONS = ["3.11", "3.12", "3.13"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_yaml(name: str):
    """Returns a file of YAML 1.2, in which `on` is a word and a date is text."""
    reader = YAML(typ="safe")
    reader.constructor.add_constructor(
        "tag:yaml.org,2002:timestamp", lambda constructor, node: constructor.construct_scalar(node)
    )
    return reader.load(read(name))


def project() -> dict:
    return tomllib.loads(read("pyproject.toml"))


def make_targets() -> set[str]:
    makefile = read("Makefile").replace("\\\n", "")
    return set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())


def targets_of(command: str) -> list[str]:
    """Returns the targets of a `make` command, without its flags and variables."""
    program, *words = shlex.split(command)
    assert program == "make"
    return [word for word in words if "=" not in word]


def schema_errors(document, schema_name: str) -> list[str]:
    vendor = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    schema = json.loads(vendor.joinpath(f"{schema_name}.json").read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize(("name", "schema"), SCHEMAS.items(), ids=SCHEMAS)
def test_follows_its_schema(name, schema):
    assert schema_errors(read_yaml(name), schema) == []


@pytest.mark.parametrize(
    ("name", "break_it"),
    [
        (WORKFLOW, lambda document: document["jobs"]["lint"].pop("runs-on")),
        (FORMS[0], lambda document: document["body"][1].pop("attributes")),
        ("CITATION.cff", lambda document: document.pop("authors")),
    ],
)
def test_the_schemas_bite(name, break_it):
    document = read_yaml(name)
    break_it(document)
    assert schema_errors(document, SCHEMAS[name])


# --- The workflow and .ci/run


def test_the_jobs_of_the_workflow():
    workflow = read_yaml(WORKFLOW)
    assert list(workflow["jobs"]) == ["lint", "core", "extensions", "docs"]
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 60, name
        checkout, python, *commands = job["steps"]
        assert checkout["uses"].startswith("actions/checkout@v")
        assert python["uses"].startswith("actions/setup-python@v")
        assert commands, name
        for step in commands:
            assert set(targets_of(step["run"])) <= make_targets(), step


@pytest.mark.parametrize("job", ["core", "extensions"])
def test_the_matrix_has_every_supported_python(job):
    description = read_yaml(WORKFLOW)["jobs"][job]
    assert description["strategy"]["matrix"]["python"] == PYTHONS
    assert description["steps"][1]["with"]["python-version"] == "${{ matrix.python }}"
    assert project()["project"]["requires-python"] == ">=3.11,<3.14"


def test_core_and_extensions_run_every_quick_test():
    makefile = read("Makefile")
    recipes = dict(re.findall(r"^(test-core|test-extensions):.*\n\t(.*)$", makefile, re.MULTILINE))
    assert "-m core " in recipes["test-core"]
    assert '-m "not core and not long" ' in recipes["test-extensions"]


def test_ci_makes_the_distribution():
    lines = re.findall(r"^ *make -C \"\$complete\" (.*)$", read(".ci/run"), re.MULTILINE)
    assert {"lint", "dist", "docs"} <= set(lines[0].split()) <= make_targets()


# --- Issues, pull requests, hooks


@pytest.mark.parametrize("name", FORMS)
def test_a_form_asks_each_question_once(name):
    form = read_yaml(name)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    identifiers = [field["id"] for field in fields]
    assert len(identifiers) == len(set(identifiers))
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_checklist_of_a_pull_request_names_what_exists():
    names = re.findall(r"`([^`]+)`", read(".github/pull_request_template.md"))
    assert names
    for name in names:
        if name.startswith("make "):
            assert set(targets_of(name)) <= make_targets()
        else:
            assert (ROOT / name).exists(), name


def test_the_hooks_run_the_tools_of_the_makefile():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert list(hooks) == ["ruff-check", "ruff-format", "check-names", "codespell", "pyright"]
    makefile = read("Makefile").replace("$(IN_VENV)", ".venv/bin/python")
    for hook in hooks.values():
        command = " ".join(word for word in hook["entry"].split() if not word.startswith("--"))
        assert re.search(rf"{re.escape(command)}( |$)", makefile, re.MULTILINE), hook["id"]
        assert hook["language"] == "system"


def test_pyright_reads_the_package_with_its_environment():
    settings = project()["tool"]["pyright"]
    assert settings["typeCheckingMode"] == "basic"
    assert (ROOT / settings["include"][0] / "py.typed").exists()
    assert f"{settings['venvPath']}/{settings['venv']}" == "./.venv"


# --- Version, citation, security


def test_version_and_date_agree():
    version, date = re.search(r"^## (\S+) \((\S+)\)$", read("CHANGELOG.md"), re.MULTILINE).groups()
    citation = read_yaml("CITATION.cff")
    assert version == citation["version"] == official_bert.__version__
    assert date == citation["date-released"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_the_release_is_short_enough_to_read():
    newest = read("CHANGELOG.md").split("\n## ")[1]
    assert newest.count("\n") <= 60


def test_the_citation_names_this_port_and_the_paper():
    citation = read_yaml("CITATION.cff")
    metadata = project()["project"]
    assert [author["name"] for author in citation["authors"]] == [metadata["authors"][0]["name"]]
    assert citation["license"] == metadata["license"]
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == [
        "Devlin",
        "Chang",
        "Lee",
        "Toutanova",
    ]
    assert paper["title"].startswith("BERT: Pre-training of Deep Bidirectional Transformers")
    assert (paper["year"], paper["doi"]) == (2019, "10.18653/v1/N19-1423")
    assert metadata["urls"]["Paper"].rpartition("/")[2] in paper["identifiers"][0]["value"]


@pytest.mark.parametrize(
    ("page", "headings"),
    [
        ("SECURITY.md", {"Supported versions", "Report a vulnerability"}),
        ("CODE_OF_CONDUCT.md", {"Code of conduct"}),
    ],
)
def test_the_rules_of_the_project(page, headings):
    text = read(page)
    assert headings <= set(re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    for target in re.findall(r"\]\(([^)]*)\)", text):
        assert (ROOT / target).exists(), target


# --- Containers

DOCKERFILE = dockerfiles.parse(read("Dockerfile"))


def words(name: str, stage: str) -> list[str]:
    return [each.words for each in DOCKERFILE if (each.name, each.stage) == (name, stage)]


def test_each_instruction_is_known():
    for instruction in DOCKERFILE:
        assert instruction.name in DOCKER_INSTRUCTIONS, instruction
        assert instruction.words, instruction


def test_the_stages_start_from_a_supported_python():
    (default,) = words("ARG", "")
    name, version = default.split("=")
    assert version in PYTHONS
    stages = [each.words for each in DOCKERFILE if each.name == "FROM"]
    base = f"python:${{{name}}}-slim"
    assert stages == [f"{base} AS development", f"{base} AS training"]


def test_every_copied_file_exists_and_reaches_the_builder():
    files = dockerfiles.project_files()
    dockerignore = read(".dockerignore")
    copies = [each for each in DOCKERFILE if each.name == "COPY"]
    assert copies
    for copy in copies:
        for pattern, names in dockerfiles.sources(copy, files).items():
            assert names, f"line {copy.line}: {pattern} is not in the repository"
            hidden = [name for name in names if dockerfiles.is_ignored(name, dockerignore)]
            assert hidden == [], f"line {copy.line}: .dockerignore hides files of {pattern}"
        if len(copy.words.split()) > 2:
            assert copy.words.endswith("/"), f"line {copy.line}: several sources need a folder"


def test_the_builder_sees_nothing_else():
    dockerignore = read(".dockerignore")
    for name in (".git/config", ".venv/bin/python", "tests/shared.py", "docs/tpu.md", "README.md"):
        assert dockerfiles.is_ignored(name, dockerignore), name
    assert dockerfiles.is_ignored("official_bert/io/__pycache__/files.pyc", dockerignore)


def test_the_installed_lists_are_copied_before():
    """A requirements file of a RUN is copied by an earlier instruction."""
    copied = set()
    for instruction in DOCKERFILE:
        if instruction.name == "COPY":
            copied |= set(instruction.words.split()[:-1])
        elif instruction.name == "RUN":
            assert set(re.findall(r"--requirement (\S+)", instruction.words)) <= copied


def test_the_image_runs_the_console_command():
    (entry,) = words("ENTRYPOINT", "training")
    assert json.loads(entry) == list(project()["project"]["scripts"])
    (default,) = words("CMD", "training")
    assert json.loads(default) == ["--help"]


def test_the_image_fits_the_job_templates():
    """The templates of Kubernetes start examples/clusters/start_worker.py in /official_bert."""
    (folder,) = words("WORKDIR", "training")
    template = read("examples/clusters/indexed_job.yaml")
    assert f"workingDir: {folder}\n" in template
    script = re.search(r"command: \[python, (\S+)\]", template)[1]
    copied = [pattern for copy in words("COPY", "training") for pattern in copy.split()[:-1]]
    assert script.partition("/")[0] in copied


def test_a_part_of_an_instruction_is_an_error():
    with pytest.raises(AssertionError, match="line 2 has no end"):
        dockerfiles.parse("FROM python\nRUN pip \\\n")


def test_the_development_container():
    container = json.loads(read(".devcontainer/devcontainer.json"))
    build = container["build"]
    folder = ROOT / ".devcontainer"
    assert (folder / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (folder / build["context"]).resolve() == ROOT
    assert build["target"] in {instruction.stage for instruction in DOCKERFILE}
    assert set(targets_of(container["postCreateCommand"])) <= make_targets()
    (packages,) = words("RUN", build["target"])
    assert {"make", "git"} <= set(packages.split())
    settings = container["customizations"]["vscode"]["settings"]
    assert settings["python.testing.pytestEnabled"] is True


# --- The package index


def test_the_page_of_the_package_index_has_only_absolute_links():
    page = read(project()["project"]["readme"])
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert links
    assert all(link.startswith("https://") for link in links), links


def test_the_page_of_the_package_index_names_what_exists():
    page = read(project()["project"]["readme"])
    commands = set(re.findall(r"^(?:.*\| )?official-bert (\w+)", page, re.MULTILINE))
    assert {"run_classifier", "predict"} == commands
    assert commands <= set(catalog.commands())
    extras = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert extras
    assert extras <= set(project()["project"]["optional-dependencies"])


def test_the_python_of_the_package_index_fits_the_signatures():
    """The signature is read from the source: importing the class would load TensorFlow."""
    (code,) = re.findall(r"```python\n(.*?)```", read("docs/package_index.md"), re.DOTALL)
    example = ast.parse(code)
    imported = [name.name for name in example.body[0].names]
    assert imported == ["Classifier"]
    (call,) = (
        node
        for node in ast.walk(example)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Classifier.train"
    )
    spec = importlib.util.find_spec(official_bert._PUBLIC["Classifier"])
    (train,) = (
        node
        for node in ast.walk(ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "train"
    )
    _, *positional = [argument.arg for argument in train.args.posonlyargs + train.args.args]
    assert len(call.args) <= len(positional)
    names = {keyword.arg for keyword in call.keywords}
    assert names <= {*positional[len(call.args) :], *(each.arg for each in train.args.kwonlyargs)}


def test_the_classifiers_name_every_supported_python():
    classifiers = project()["project"]["classifiers"]
    prefix = "Programming Language :: Python :: "
    versions = [line.removeprefix(prefix) for line in classifiers if line.startswith(prefix)]
    assert versions == ["3 :: Only", *PYTHONS]
    assert not any(line.startswith("License ::") for line in classifiers), "license says it"


def test_the_source_archive_names_what_exists():
    files = dockerfiles.project_files()
    for line in read("MANIFEST.in").splitlines():
        rule, *patterns = line.split()
        if rule not in ("include", "graft", "prune"):
            continue
        for pattern in patterns:
            copy = dockerfiles.Instruction(line=0, name="COPY", words=f"{pattern} .", stage="")
            assert dockerfiles.sources(copy, files)[pattern], line
