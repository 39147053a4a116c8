# Everything a fresh machine needs: `make quickstart` to see it work, `make test` before a commit.
#
#   PYTHON=python3.12     the Python that .venv is made with: 3.11, 3.12 or 3.13
#   QUICKSTART=short      a smaller quickstart (under 3 minutes) instead of the full one (under 10 minutes)
#   PYTEST="tests/data"   what `make test` hands to pytest

PYTHON ?= python3
QUICKSTART ?= full
PYTEST ?=

IN_VENV := .venv/bin/python

.PHONY: quickstart test test-long lint install install-dev clean
.DELETE_ON_ERROR:

quickstart: install
	$(IN_VENV) examples/quickstart.py --setting=$(QUICKSTART)

# Two processes, each test file in one of them: a process with TensorFlow takes 1 to 2 GB and starts in 5 s. A test that
# waits for more than 10 minutes fails with the stacks of all threads.
test: install-dev
	$(IN_VENV) -m pytest -m "not long" --timeout=600 --timeout-method=signal -n 2 --dist loadfile --no-loadscope-reorder $(PYTEST)

test-long: install-dev
	$(IN_VENV) -m pytest -m long --timeout=3600 --timeout-method=signal $(PYTEST)

lint: install-dev
	$(IN_VENV) -m ruff check .
	$(IN_VENV) -m ruff format --check .

install: .venv/installed

install-dev: .venv/installed-dev

# The stamps: an installation is repeated when a list of requirements is newer.
.venv/installed: requirements.txt | .venv/created
	$(IN_VENV) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv/installed-dev: requirements-dev.txt .venv/installed | .venv/created
	$(IN_VENV) -m pip install --quiet --disable-pip-version-check --use-pep517 -r requirements-dev.txt
	@touch $@

# Both questions are in the Python that every version since 2.6 understands.
.venv/created:
	@$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" 2>/dev/null || { \
	    echo "official_bert needs Python 3.11, 3.12 or 3.13, which '$(PYTHON)' is not:" \
	        "install python3.12 (or name one that is there: make PYTHON=/path/to/python3.12)." >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make virtual environments because its ensurepip module is missing:" \
	        "install it (on Debian and Ubuntu the package python3-venv), or name another Python with" \
	        "make PYTHON=/path/to/python3.12." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

clean:
	rm -rf .venv quickstart_output build *.egg-info
