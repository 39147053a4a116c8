"""The flags of official-bert serve, and the check of its models."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Sequence

from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.options.fields import POSITIVE, PROCESSES, SIZE, between, option

_SECONDS = between(1, 3600)
_NAME = re.compile(r"([\w.-]+)=(.+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The flags of official-bert serve."""

    model: tuple[str, ...] = option(
        help="A model: the folder of an exported version, an --export_dir with its newest version, "
        "the --output_dir of a training script, another folder of a model, or the name of one. "
        "NAME=FOLDER also sets its name in requests, which is otherwise that of the folder. Repeat "
        "the flag for several models."
    )
    host: str = option(
        "127.0.0.1",
        basic=True,
        help="The address to listen at. The default answers this machine only; 0.0.0.0 answers "
        "every network. The server has no passwords.",
    )
    port: int = option(
        8501,
        basic=True,
        check=between(0, 65535),
        help="The port to listen at; 0 is a free one.",
    )
    max_batch_tokens: int = option(
        2048,
        basic=True,
        check=SIZE,
        help="The largest number of tokens in a batch, with its padding. A longer text is a batch "
        "of its own.",
    )
    max_wait_ms: float = option(
        2.0,
        basic=True,
        check=between(0, 60_000),
        help="The number of milliseconds for which a text waits for others to fill its batch.",
    )
    max_queue_texts: int = option(
        4096,
        basic=True,
        check=POSITIVE,
        help="The largest number of texts that wait for a model. A request for more is refused "
        "with status 429 and Retry-After.",
    )
    max_request_texts: int = option(
        2048,
        check=POSITIVE,
        help="The largest number of texts, pairs or rows in a request.",
    )
    max_text_chars: int = option(
        100_000,
        check=POSITIVE,
        help="The largest number of characters in a text.",
    )
    max_body_mb: int = option(
        8,
        check=between(1, 1024),
        help="The largest size of a request, in megabytes.",
    )
    num_workers: int = option(
        2,
        check=PROCESSES,
        help="The number of batches that are computed at the same time, for each model.",
    )
    num_threads: int | None = option(
        None,
        check=SIZE,
        help="The number of threads that share the computation of a batch, by default one for each "
        "processor.",
    )
    client_timeout_secs: int = option(
        30,
        check=_SECONDS,
        help="The number of seconds in which a client must send its request.",
    )
    shutdown_timeout_secs: int = option(
        30,
        check=_SECONDS,
        help="The number of seconds in which the server answers the requests that it has accepted, "
        "after SIGTERM or Ctrl-C.",
    )


def read_model_paths(values: Sequence[str]) -> dict[str, str]:
    """Reads the values of --model.

    Args:
        values: each a folder, NAME=FOLDER, or the name of a model to download.

    Returns:
        The name of a model in requests -> its folder.

    Raises:
        InputError: two models have one name.

    Example:
        ```python
        read_model_paths(["/tmp/sst2", "/tmp/exports/ner/3", "search=/tmp/encoder"])
        # {"sst2": "/tmp/sst2", "ner": "/tmp/exports/ner/3", "search": "/tmp/encoder"}
        ```
    """
    paths: dict[str, str] = {}
    for value in values:
        match = _NAME.fullmatch(value)
        if match and not files.exists(value):
            name, path = match.groups()
        else:
            name, path = _choose_name(value), value
        if name in paths:
            raise InputError(
                f"--model={value}: there is a model {name!r} already; name this one, as in "
                f"--model=other={path}"
            )
        if not path or not name:
            raise InputError(f"--model={value}: is empty; give a folder, or NAME=FOLDER")
        paths[name] = path
    return paths


def _choose_name(path: str) -> str:
    """Returns the last part of a path that is no number, because versions are numbers."""
    parts = [part for part in re.split(r"[/\\]", os.path.normpath(path)) if part]
    names = [part for part in parts if not part.isdecimal()]
    return names[-1] if names else ""


@contextlib.contextmanager
def naming_model(name: str) -> Iterator[None]:
    """A context whose errors begin with the name of a model.

    Args:
        name: the name of the model in requests.
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"the model {name!r}: {error}") from error


def check_models(options: ServeOptions) -> None:
    """Check the folders of the models.

    Args:
        options: the flags of the command.

    Raises:
        InputError: one of them does not exist, or two models have one name.
    """
    # The import is here, because --help needs no check.
    from official_bert.commands import first_checks

    for name, path in read_model_paths(options.model).items():
        with naming_model(name):
            first_checks.check_model(path)
