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
OTHER_PLATFORMS = ".github/workflows/other_platforms.yml"
BUG_REPORT = ".github/ISSUE_TEMPLATE/bug_report.yml"
FEATURE_REQUEST = ".github/ISSUE_TEMPLATE/feature_request.yml"
SCHEMAS = {
    WORKFLOW: "github-workflows",
    OTHER_PLATFORMS: "github-workflows",
    BUG_REPORT: "github-issue-forms",
    FEATURE_REQUEST: "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
    "CITATION.cff": "citation-file-format",
}
DOCKER_INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "FROM", "RUN", "WORKDIR"}
PYTHONS = ["3.11", "3.12", "3.13"]
LINK = re.compile(r"\]\(([^)]*)\)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_yaml(name: str):
    """Returns a file of YAML 1.2, in which `on` is a word and a date is text."""
    reader = YAML(typ="safe")
    constructor = reader.constructor
    constructor.add_constructor(
        "tag:yaml.org,2002:timestamp",
        lambda constructor, node: constructor.construct_scalar(node),
    )
    return reader.load(read(name))


def read_json(name: str) -> dict:
    return json.loads(read(name))


def project() -> dict:
    return tomllib.loads(read("pyproject.toml"))


def metadata() -> dict:
    """What the package index shows of the project."""
    return project()["project"]


def find_in_lines(pattern: str, text: str) -> list:
    """Returns the matches of a pattern in which ^ and $ are the ends of a line."""
    return re.findall(pattern, text, re.MULTILINE)


def make_targets() -> set[str]:
    makefile = read("Makefile").replace("\\\n", "")
    (targets,) = find_in_lines(r"^\.PHONY: (.+)$", makefile)
    return set(targets.split())


def command_targets(command: str) -> set[str]:
    """Returns the targets of a `make` command, without its flags and variables."""
    program, *words = shlex.split(command)
    assert program == "make"
    return {word for word in words if "=" not in word}


def schema_errors(document, schema_name: str) -> list[str]:
    vendor = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    file = vendor.joinpath(f"{schema_name}.json")
    schema = json.loads(file.read_text(encoding="utf-8"))
    validator_class = jsonschema.validators.validator_for(schema)
    validator = validator_class(schema)
    errors = []
    for error in validator.iter_errors(document):
        errors.append(f"{error.json_path}: {error.message}")
    return errors


@pytest.mark.parametrize(("name", "schema"), SCHEMAS.items(), ids=SCHEMAS)
def test_follows_its_schema(name, schema):
    assert schema_errors(read_yaml(name), schema) == []


@pytest.mark.parametrize(
    ("name", "path", "field"),
    [
        pytest.param(WORKFLOW, ["jobs", "lint"], "runs-on", id="workflow"),
        pytest.param(BUG_REPORT, ["body", 1], "attributes", id="issue form"),
        pytest.param("CITATION.cff", [], "authors", id="citation"),
    ],
)
def test_the_schemas_bite(name, path, field):
    document = read_yaml(name)
    part = document
    for key in path:
        part = part[key]
    del part[field]
    assert schema_errors(document, SCHEMAS[name])


# --- The workflow and .ci/run


def test_the_jobs_of_the_workflow():
    workflow = read_yaml(WORKFLOW)
    assert list(workflow["jobs"]) == ["lint", "core", "extensions", "docs"]
    assert workflow["permissions"] == {"contents": "read"}
    known_targets = make_targets()
    for name, job in workflow["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 60, name
        checkout, python, *command_steps = job["steps"]
        assert checkout["uses"].startswith("actions/checkout@v")
        assert python["uses"].startswith("actions/setup-python@v")
        assert command_steps, name
        for step in command_steps:
            assert command_targets(step["run"]) <= known_targets, step


def test_the_jobs_of_other_platforms():
    """They say that nobody has run them, and name targets and tests that exist."""
    assert read(OTHER_PLATFORMS).startswith("# Not run by us: ")
    workflow = read_yaml(OTHER_PLATFORMS)
    assert list(workflow["on"]) == ["workflow_dispatch"]
    assert workflow["permissions"] == {"contents": "read"}
    commands = []
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 60
        commands += [step["run"] for step in job["steps"] if "run" in step]
    known_targets = make_targets()
    for command in commands:
        if command.startswith("make "):
            assert command_targets(command) <= known_targets
    words = " ".join(commands).split()
    paths = [word for word in words if word.startswith("tests/")]
    assert len(paths) > 5
    assert all((ROOT / path).exists() for path in paths)


@pytest.mark.parametrize("job", ["core", "extensions"])
def test_the_matrix_has_every_supported_python(job):
    workflow = read_yaml(WORKFLOW)
    description = workflow["jobs"][job]
    matrix = description["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    _, setup_python, *_ = description["steps"]
    inputs = setup_python["with"]
    assert inputs["python-version"] == "${{ matrix.python }}"
    assert metadata()["requires-python"] == ">=3.11,<3.14"


def test_core_and_extensions_run_every_quick_test():
    makefile = read("Makefile")
    recipes = dict(find_in_lines(r"^(test-core|test-extensions):.*\n\t(.*)$", makefile))
    assert "-m core " in recipes["test-core"]
    assert '-m "not core and not long" ' in recipes["test-extensions"]


def test_ci_makes_the_distribution():
    first_line, *_ = find_in_lines(r"^ *make -C \"\$complete\" (.*)$", read(".ci/run"))
    targets = set(first_line.split())
    assert {"lint", "dist", "docs"} <= targets
    assert targets <= make_targets()


# --- Issues, pull requests, hooks


@pytest.mark.parametrize("name", [BUG_REPORT, FEATURE_REQUEST])
def test_a_form_asks_each_question_once(name):
    form = read_yaml(name)
    identifiers = []
    required = []
    for field in form["body"]:
        if field["type"] == "markdown":
            continue
        identifiers.append(field["id"])
        validations = field.get("validations", {})
        required.append(validations.get("required"))
    assert len(identifiers) == len(set(identifiers))
    assert any(required)


def test_the_checklist_of_a_pull_request_names_what_exists():
    names = re.findall(r"`([^`]+)`", read(".github/pull_request_template.md"))
    assert names
    for name in names:
        if name.startswith("make "):
            assert command_targets(name) <= make_targets()
        else:
            assert (ROOT / name).exists(), name


def test_the_hooks_run_the_tools_of_the_makefile():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    entries = {}
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        entries[hook["id"]] = hook["entry"]
    assert list(entries) == [
        "ruff-check",
        "ruff-format",
        "check-names",
        "codespell",
        "pyright",
    ]
    makefile = read("Makefile").replace("$(IN_VENV)", ".venv/bin/python")
    for name, entry in entries.items():
        words = [word for word in entry.split() if not word.startswith("--")]
        command = re.escape(" ".join(words))
        assert find_in_lines(f"{command}( |$)", makefile), name


def test_pyright_reads_the_package_with_its_environment():
    settings = project()["tool"]["pyright"]
    assert settings["typeCheckingMode"] == "basic"
    package, *_ = settings["include"]
    marker = ROOT / package / "py.typed"
    assert marker.exists()
    assert settings["venvPath"] == "."
    assert settings["venv"] == ".venv"


# --- Version, citation, security


def test_version_and_date_agree():
    newest, *_ = find_in_lines(r"^## (\S+) \((\S+)\)$", read("CHANGELOG.md"))
    version, date = newest
    assert version == official_bert.__version__
    citation = read_yaml("CITATION.cff")
    assert version == citation["version"]
    assert date == citation["date-released"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_the_release_is_short_enough_to_read():
    newest = read("CHANGELOG.md").split("\n## ")[1]
    assert newest.count("\n") <= 62


def test_the_citation_names_this_port():
    citation = read_yaml("CITATION.cff")
    (author,) = citation["authors"]
    first_author, *_ = metadata()["authors"]
    assert author["name"] == first_author["name"]
    assert citation["license"] == metadata()["license"]


def test_the_citation_names_the_paper():
    citation = read_yaml("CITATION.cff")
    paper = citation["preferred-citation"]
    family_names = [author["family-names"] for author in paper["authors"]]
    assert family_names == [
        "Devlin",
        "Chang",
        "Lee",
        "Toutanova",
    ]
    assert paper["title"].startswith("BERT: Pre-training of Deep Bidirectional Transformers")
    assert paper["year"] == 2019
    assert paper["doi"] == "10.18653/v1/N19-1423"
    address = metadata()["urls"]["Paper"]
    _, _, paper_number = address.rpartition("/")
    identifier, *_ = paper["identifiers"]
    assert paper_number in identifier["value"]


@pytest.mark.parametrize(
    ("page", "headings"),
    [
        ("SECURITY.md", {"Supported versions", "Report a vulnerability"}),
        ("CODE_OF_CONDUCT.md", {"Code of conduct"}),
    ],
)
def test_the_rules_of_the_project(page, headings):
    text = read(page)
    page_headings = find_in_lines(r"^#+ (.*)$", text)
    assert headings <= set(page_headings)
    for target in LINK.findall(text):
        assert (ROOT / target).exists(), target


# --- Containers

DOCKERFILE = dockerfiles.parse(read("Dockerfile"))


def find_instructions(name: str) -> list[dockerfiles.Instruction]:
    return [instruction for instruction in DOCKERFILE if instruction.name == name]


def find_words(name: str, stage: str) -> list[str]:
    """The words of each instruction of a name in a stage."""
    instructions = find_instructions(name)
    return [instruction.words for instruction in instructions if instruction.stage == stage]


def test_each_instruction_is_known():
    for instruction in DOCKERFILE:
        assert instruction.name in DOCKER_INSTRUCTIONS, instruction
        assert instruction.words, instruction


def test_the_stages_start_from_a_supported_python():
    (default,) = find_words("ARG", "")
    name, version = default.split("=")
    assert version in PYTHONS
    base = f"python:${{{name}}}-slim"
    development, training = find_instructions("FROM")
    assert development.words == f"{base} AS development"
    assert training.words == f"{base} AS training"


def test_every_copied_file_exists_and_reaches_the_builder():
    files = dockerfiles.project_files()
    dockerignore = read(".dockerignore")
    copies = find_instructions("COPY")
    assert copies
    for copy in copies:
        place = f"line {copy.line}"
        sources = dockerfiles.sources(copy, files)
        for pattern, names in sources.items():
            assert names, f"{place}: {pattern} is not in the repository"
            hidden_names = [name for name in names if dockerfiles.is_ignored(name, dockerignore)]
            assert hidden_names == [], f"{place}: .dockerignore hides files of {pattern}"
        if len(sources) > 1:
            assert copy.words.endswith("/"), f"{place}: several sources need a folder"


def test_the_builder_sees_nothing_else():
    dockerignore = read(".dockerignore")
    names = [
        ".git/config",
        ".venv/bin/python",
        "tests/shared.py",
        "docs/tpu.md",
        "README.md",
        "official_bert/io/__pycache__/files.pyc",
    ]
    for name in names:
        assert dockerfiles.is_ignored(name, dockerignore), name


def test_the_installed_lists_are_copied_before():
    """A requirements file of a RUN is copied by an earlier instruction."""
    copied_names = set()
    for instruction in DOCKERFILE:
        if instruction.name == "COPY":
            *sources, _ = instruction.words.split()
            copied_names.update(sources)
        elif instruction.name == "RUN":
            installed_lists = re.findall(r"--requirement (\S+)", instruction.words)
            assert set(installed_lists) <= copied_names


def test_the_image_runs_the_console_command():
    (entry,) = find_words("ENTRYPOINT", "training")
    scripts = metadata()["scripts"]
    assert json.loads(entry) == list(scripts)
    (default,) = find_words("CMD", "training")
    assert json.loads(default) == ["--help"]


def test_the_image_fits_the_job_templates():
    """The templates of Kubernetes start examples/clusters/start_worker.py in /official_bert."""
    (folder,) = find_words("WORKDIR", "training")
    template = read("examples/clusters/indexed_job.yaml")
    assert f"workingDir: {folder}\n" in template
    script, *_ = find_in_lines(r"command: \[python, (\S+)\]", template)
    top_folder, _, _ = script.partition("/")
    copied_patterns = []
    for copy in find_words("COPY", "training"):
        *sources, _ = copy.split()
        copied_patterns.extend(sources)
    assert top_folder in copied_patterns


def test_a_part_of_an_instruction_is_an_error():
    with pytest.raises(AssertionError, match="line 2 has no end"):
        dockerfiles.parse("FROM python\nRUN pip \\\n")


def test_the_development_container_is_a_stage_of_the_dockerfile():
    container = read_json(".devcontainer/devcontainer.json")
    build = container["build"]
    folder = ROOT / ".devcontainer"
    dockerfile = folder / build["dockerfile"]
    assert dockerfile.resolve() == ROOT / "Dockerfile"
    context = folder / build["context"]
    assert context.resolve() == ROOT
    stages = {instruction.stage for instruction in DOCKERFILE}
    assert build["target"] in stages
    (packages,) = find_words("RUN", build["target"])
    assert {"make", "git"} <= set(packages.split())


def test_the_development_container_is_ready_for_tests():
    container = read_json(".devcontainer/devcontainer.json")
    targets = command_targets(container["postCreateCommand"])
    assert targets <= make_targets()
    settings = container["customizations"]["vscode"]["settings"]
    assert settings["python.testing.pytestEnabled"] is True


# --- The package index


def test_the_page_of_the_package_index_has_only_absolute_links():
    page = read(metadata()["readme"])
    links = LINK.findall(page)
    assert links
    for link in links:
        assert link.startswith("https://")


def test_the_page_of_the_package_index_names_what_exists():
    page = read(metadata()["readme"])
    commands = set(find_in_lines(r"^(?:.*\| )?official-bert (\w+)", page))
    assert commands == {"run_classifier", "predict"}
    assert commands <= set(catalog.commands())
    extras = find_in_lines(r"^\| `(\w+)` \|", page)
    assert extras
    assert set(extras) <= set(metadata()["optional-dependencies"])


def find_nodes(tree: ast.AST, kind: type) -> list:
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def parse_classifier_module() -> ast.Module:
    """The source of Classifier; importing the class would load TensorFlow."""
    spec = importlib.util.find_spec(official_bert._PUBLIC["Classifier"])
    source = pathlib.Path(spec.origin).read_text(encoding="utf-8")
    return ast.parse(source)


def test_the_python_of_the_package_index_fits_the_signatures():
    page = read("docs/package_index.md")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    example = ast.parse(code)
    (alias,) = example.body[0].names
    assert alias.name == "Classifier"
    calls = find_nodes(example, ast.Call)
    (call,) = [call for call in calls if ast.unparse(call.func) == "Classifier.train"]
    functions = find_nodes(parse_classifier_module(), ast.FunctionDef)
    (train,) = [function for function in functions if function.name == "train"]

    parameters = train.args
    _self, *positional = [*parameters.posonlyargs, *parameters.args]
    num_positional = len(call.args)
    assert num_positional <= len(positional)
    remaining = [*positional[num_positional:], *parameters.kwonlyargs]
    allowed_keywords = {parameter.arg for parameter in remaining}
    keywords = {keyword.arg for keyword in call.keywords}
    assert keywords <= allowed_keywords


def test_the_classifiers_name_every_supported_python():
    classifiers = metadata()["classifiers"]
    prefix = "Programming Language :: Python :: "
    python_lines = [line for line in classifiers if line.startswith(prefix)]
    versions = [line.removeprefix(prefix) for line in python_lines]
    assert versions == ["3 :: Only", *PYTHONS]
    license_lines = [line for line in classifiers if line.startswith("License ::")]
    assert license_lines == [], "license says it"


def test_the_source_archive_names_what_exists():
    files = dockerfiles.project_files()
    for line in read("MANIFEST.in").splitlines():
        rule, *patterns = line.split()
        if rule not in ("include", "graft", "prune"):
            continue
        for pattern in patterns:
            copy = dockerfiles.Instruction(line=0, name="COPY", words=f"{pattern} .", stage="")
            sources = dockerfiles.sources(copy, files)
            assert sources[pattern], line
