# Everything a fresh machine needs. `make` alone prints the targets: the lines with ##.
#
#   PYTHON=python3.12     the Python that .venv is made with: 3.11, 3.12 or 3.13
#   QUICKSTART=short      a smaller quickstart (under 3 minutes) instead of the full one (under 10 minutes)
#   PYTEST="tests/data"   what `make test` hands to pytest

PYTHON ?= python3
QUICKSTART ?= full
PYTEST ?=

IN_VENV := .venv/bin/python

# What `make test-tf220` runs: the parts of the project that compute something with TensorFlow.
TF220_TESTS := tests/modeling tests/optimization tests/training tests/checkpoints tests/serving tests/graph_text \
    tests/commands/test_run_pretraining.py tests/commands/test_run_pretraining_resumption.py \
    tests/commands/test_run_classifier.py

.PHONY: help quickstart test test-core test-extensions test-durations test-long test-tf220 lint dist docs \
    report-experiments install install-dev install-extras install-tpu-compile install-beam install-routers clean
.DELETE_ON_ERROR:

help:  ## prints this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-19s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

quickstart: install  ## pre-trains a small BERT in quickstart_output; with QUICKSTART=short in under 3 minutes
	$(IN_VENV) examples/quickstart.py --setting=$(QUICKSTART)

# Two processes, because one with TensorFlow takes 1 to 2 GB and starts in 5 s. One that has run its tests takes over some
# of the other's. A test that waits for more than 10 minutes fails with the stacks of all threads.
IN_TWO_PROCESSES := --timeout=600 --timeout-method=signal -n 2 --dist worksteal
QUICK_TESTS := -m "not long" $(IN_TWO_PROCESSES)

test: install-dev  ## runs the tests; with PYTEST="tests/data" those of one folder
	$(IN_VENV) -m pytest $(QUICK_TESTS) $(PYTEST)

test-core: install-dev  ## runs the tests of the core, which take 3 minutes: before each commit
	$(IN_VENV) -m pytest -m core $(IN_TWO_PROCESSES)

test-extensions: install-dev  ## runs the quick tests that `make test-core` leaves out
	$(IN_VENV) -m pytest -m "not core and not long" $(IN_TWO_PROCESSES) $(PYTEST)

test-durations: install-dev  ## runs the tests and writes their processor seconds to tests/durations.json
	$(IN_VENV) -m pytest $(QUICK_TESTS) --processor-times --write-durations

test-long: install-dev  ## runs the tests that take minutes
	$(IN_VENV) -m pytest -m long --timeout=3600 --timeout-method=signal $(PYTEST)

test-tf220: .venv-tf220/installed  ## runs the tests of the core with TensorFlow 2.20 in .venv-tf220
	.venv-tf220/bin/python -m pytest $(QUICK_TESTS) $(or $(PYTEST),$(TF220_TESTS))

# What tools/check_names.py reads.
CHECKED_NAMES := official_bert $(wildcard *.py) benchmarks examples tools

lint: install-dev .venv-lint/installed  ## checks lint, format, names, spelling, and the types of the package
	$(IN_VENV) -m ruff check .
	$(IN_VENV) -m ruff format --check .
	$(IN_VENV) tools/check_names.py $(CHECKED_NAMES)
	git ls-files -z | xargs -0 .venv-lint/bin/python -m codespell_lib
	.venv-lint/bin/python -m pyright

dist: .venv-lint/installed  ## builds the source archive and the wheel into dist and checks them for the package index
	rm -rf dist
	.venv-lint/bin/python -m build --quiet
	.venv-lint/bin/python -m twine check --strict dist/*

# The web address that the site links to: that of the clone's origin, if it has one.
REPOSITORY ?= $(patsubst %.git,%,$(filter https://%,$(shell git remote get-url origin 2>/dev/null)))

docs: .venv-docs/installed  ## builds the pages and the reference of the public names into site; a warning is an error
	REPOSITORY="$(REPOSITORY)" .venv-docs/bin/python docs/_site.py
	REPOSITORY="$(REPOSITORY)" .venv-docs/bin/python -m zensical build --strict --clean --config-file mkdocs.yml

report-experiments: .venv/installed-plots  ## makes the pages and pictures of the experiments of their result lines
	$(IN_VENV) benchmarks/experiment_report.py

install: .venv/installed  ## makes .venv with all that the commands need; PYTHON=python3.12 chooses its Python

install-dev: .venv/installed-dev  ## adds what tests and lint need

install-extras: .venv/installed-extras  ## adds the optional packages, but for those that benchmarks compare with

install-tpu-compile: .venv-tpu-compile/installed  ## makes .venv-tpu-compile, the TPU compiler that tests and benchmarks use

install-beam: .venv-beam/installed  ## makes .venv-beam, in which Apache Beam makes records

install-routers: .venv-routers/installed  ## makes .venv-routers, which compiles and runs the routers of examples/router

# The stamps: an installation is repeated when a list of packages is newer. requirements.txt has those that every
# command needs; pyproject.toml has the extras of users and the groups of developers.
# With one --quiet, pip prints a warning for each editable installation. With two, it prints only errors.
PIP_INSTALL := -m pip install --quiet --quiet --disable-pip-version-check

.venv/installed: requirements.txt pyproject.toml | .venv/ready
	$(IN_VENV) $(PIP_INSTALL) -r requirements.txt
	$(IN_VENV) $(PIP_INSTALL) --no-deps --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(IN_VENV) $(PIP_INSTALL) --group dev
	@touch $@

.venv/installed-extras: .venv/installed-dev
	$(IN_VENV) $(PIP_INSTALL) 'official-bert[data,evaluation,hub,nncf,notebook,openvino,plots,ray,runtimes,serve,serving]' \
	    --group clusters
	@touch $@

.venv/installed-plots: .venv/installed
	$(IN_VENV) $(PIP_INSTALL) 'official-bert[plots]'
	@touch $@

.venv-tf220/installed: requirements.txt pyproject.toml | .venv-tf220/ready
	$(@D)/bin/python $(PIP_INSTALL) -r requirements.txt --group tf220 --group dev
	@touch $@

.venv-tpu-compile/installed .venv-beam/installed .venv-docs/installed .venv-lint/installed: .venv-%/installed: pyproject.toml | .venv-%/ready
	$(@D)/bin/python $(PIP_INSTALL) --group $*
	@touch $@

# The header of onnxruntime's C API is in no package of the Python index. This package of npm has it.
HEADER_PACKAGE := com.github.asus4.onnxruntime@0.4.9
HEADER_FOLDER := package/Plugins/iOS~/onnxruntime.xcframework/ios-arm64_x86_64-simulator/onnxruntime.framework/Headers

.venv-routers/installed: pyproject.toml | .venv-routers/ready
	$(@D)/bin/python $(PIP_INSTALL) --group routers
	rm -rf $(@D)/header
	mkdir -p $(@D)/header $(@D)/include
	cd $(@D)/header && ../bin/npm pack --silent $(HEADER_PACKAGE) && tar -xzf *.tgz $(HEADER_FOLDER)
	cp $(@D)/header/$(HEADER_FOLDER)/* $(@D)/include
	rm -rf $(@D)/header
	@touch $@

# Both questions are in the Python that every version since 2.6 understands.
.venv/ready .venv-tf220/ready .venv-tpu-compile/ready .venv-beam/ready .venv-routers/ready .venv-docs/ready .venv-lint/ready:
	@$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" 2>/dev/null || { \
	    echo "official_bert needs Python 3.11, 3.12 or 3.13, which '$(PYTHON)' is not:" \
	        "install python3.12 (or name one that is there: make PYTHON=/path/to/python3.12)." >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make virtual environments because its ensurepip module is missing:" \
	        "install it (on Debian and Ubuntu the package python3-venv), or name another Python with" \
	        "make PYTHON=/path/to/python3.12." >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP_INSTALL) --upgrade "pip>=25.1"  # the first that knows --group
	@touch $@

clean:  ## deletes the virtual environments and what builds leave; trained models stay
	rm -rf .venv .venv-tf220 .venv-tpu-compile .venv-beam .venv-routers .venv-docs .venv-lint .cache site build dist *.egg-info
