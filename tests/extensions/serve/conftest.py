"""One server with a model of each kind for all tests of the folder."""

import pytest

from tests.fine_tuning_runs import needs_family
from tests.serving import exported

# Name of a model -> the kind of its export, and whether it reads text.
MODELS = {
    "mrpc": ("mrpc", False),
    "text": ("mrpc", True),
    "score": ("sts-b", False),
    "multi": ("tsv", False),
    "swag": ("swag", False),
    "squad": ("squad", False),
    "ner": ("ner", False),
    "masks": ("pretraining", False),
    "encoder": ("embedding", False),
}


@pytest.fixture(scope="package")
def paths(tmp_path_factory):
    """The folder of each model by its name."""
    needs_family("embedding")
    folders = {}
    for name, (kind, reads_text) in MODELS.items():
        flags = {"export_text": True} if reads_text else {}
        if kind == "squad":
            flags |= exported.SQUAD_2  # lengths that fit the toy model
        folders[name] = exported.shared_export(tmp_path_factory, kind, **flags).path
    return folders


@pytest.fixture(scope="package")
def address(paths):
    from tests.extensions.serve.running import running

    with running(paths, client_timeout_secs=2, max_body_mb=1) as running_address:
        yield running_address
