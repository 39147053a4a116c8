"""Downloads models by name: released archives, and repositories of the Hugging Face Hub.

    uncased_L-12_H-768_A-12                    an archive of the original's README, or release/name
    google-bert/bert-base-uncased@revision     a repository of the Hub; "@revision" may be absent

In: the value of a flag such as --model. Out: an existing path as it is, or the folder of a cache
into which the model was downloaded. The second time no network is needed. For the Hub,
`huggingface_hub` provides the cache, tokens and the offline mode.
"""

import contextlib
import glob
import os
import re
import tempfile

from official_bert.io import archives, files, reading, writing
from official_bert.io.errors import InputError, brief, did_you_mean
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME

CACHE, ARCHIVES = "OFFICIAL_BERT_CACHE", "OFFICIAL_BERT_ARCHIVES"  # environment variables
_DEFAULTS = {
    CACHE: "~/.cache/official_bert",
    ARCHIVES: "https://storage.googleapis.com/bert_models",
}
_SMALL = [(layers, hidden) for layers in (2, 4, 6, 8, 10, 12) for hidden in (128, 256, 512, 768)]
# Release of the original -> its archives, from the latest to the first. Of two archives with one
# name, that of the earlier release is used.
RELEASES = {
    "2020_02_20": [f"uncased_L-{layers}_H-{hidden}_A-{hidden // 64}" for layers, hidden in _SMALL],
    "2019_05_30": ["wwm_uncased_L-24_H-1024_A-16", "wwm_cased_L-24_H-1024_A-16"],
    "2018_11_23": ["multi_cased_L-12_H-768_A-12"],
    "2018_11_03": ["multilingual_L-12_H-768_A-12", "chinese_L-12_H-768_A-12"],
    "2018_10_18": [
        f"{case}_L-{size}"
        for case in ("uncased", "cased")
        for size in ("12_H-768_A-12", "24_H-1024_A-16")
    ],
}


def _list_archive_paths() -> dict[str, str]:
    """Returns the path release/name of each archive by its name and by its path."""
    pairs = [(release, name) for release, names in RELEASES.items() for name in names]
    paths = {name: f"{release}/{name}" for release, name in pairs}
    for release, name in pairs:
        path = f"{release}/{name}"
        paths[path] = path
    return paths


_PATHS = _list_archive_paths()
_MEMBERS = (
    "vocab.txt",
    "bert_config.json",
    "bert_model.ckpt.data-00000-of-00001",
    "bert_model.ckpt.index",
)

_OWNER = "google-bert"
_CASES = ("base{}", "large{}", "base-multilingual{}", "large{}-whole-word-masking")
# The models that the Hub also has under a name without an owner.
_WITHOUT_OWNER = (
    *(f"bert-{name.format(case)}" for name in _CASES for case in ("-uncased", "-cased")),
    "bert-base-chinese",
)
_SHA256 = re.compile("[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(@[\w./-]+)?", re.ASCII)
# The files of a model that are downloaded, also from the numbered folders of sentence-transformers'
# modules. Pickles are not, because they can run code.
_FILES = (
    "model*.safetensors model.safetensors.index.json config.json vocab.txt tokenizer_config.json"
    " tokenizer.json modules.json sentence_bert_config.json config_sentence_transformers.json"
)
_PATTERNS = [pattern for name in _FILES.split() for pattern in (name, f"[0-9]_*/{name}")]


def is_cased(archive: str) -> bool:
    """Returns whether a released model reads text without lower-casing it.

    Args:
        archive: the name of its archive.
    """
    return archive.startswith(("cased", "multi_cased", "wwm_cased"))


def has_files(path: str) -> bool:
    """Returns whether a path is that of a folder or a file, or the prefix of a TF1 checkpoint.

    Args:
        path: the path of a model.
    """
    return files.exists(path) or files.exists(f"{path}.index")


def local_path(model: str | os.PathLike) -> str:
    """Returns the path of a model, which is downloaded if need be.

    Args:
        model: the path or the name of a model. A name whose owner is an existing folder is a path.

    Returns:
        An existing path as it is, or the folder of a name. A text that is neither is returned as it
        is, for the error of its reader.

    Raises:
        InputError: there is no model of this name, or it cannot be downloaded.
    """
    model = os.fspath(model)
    is_name = _NAME.fullmatch(model) and "ckpt" not in model and not model.endswith(".safetensors")
    if not is_name or has_files(model):
        return model
    if model in _PATHS:
        return _fetch_archive(_PATHS[model])
    if model.partition("@")[0] in _WITHOUT_OWNER:
        return _fetch_repository(f"{_OWNER}/{model}")
    owner, slash, _ = model.partition("/")
    if slash:
        return model if os.path.isdir(owner) else _fetch_repository(model)
    if hint := _find_similar(model):
        raise InputError(f"{model}: no such folder, and no model of this name is known; {hint}")
    return model


def _find_similar(name: str) -> str:
    """Returns a sentence with the names that a wrong one may mean; "" if none is similar."""
    owned_names = [f"{_OWNER}/{model}" for model in _WITHOUT_OWNER]
    return did_you_mean(name, [*_WITHOUT_OWNER, *owned_names, *_PATHS])


def cache_dir() -> str:
    """Returns the folder in which the package keeps what it can download or compute again."""
    return os.path.expanduser(os.environ.get(CACHE) or _DEFAULTS[CACHE])


def _fetch_archive(path: str) -> str:
    """Returns the folder of a released archive, release/name.

    Waits while another process downloads it.
    """
    # The imports are here, because most uses of a tokenizer need no log and no HTTP.
    from official_bert.io import download, folder_lock

    base = os.environ.get(ARCHIVES) or _DEFAULTS[ARCHIVES]
    url = f"{base.rstrip('/')}/{path}.zip"
    target = os.path.join(cache_dir(), path)
    if files.exists(target):
        return target
    folder = os.path.dirname(target)
    with folder_lock.locked(folder, waits=True), contextlib.ExitStack() as stack:
        if files.exists(target):
            return target
        # A remote file system cannot append, so that a download starts again.
        download_folder = folder
        if files.is_remote(target):
            download_folder = stack.enter_context(tempfile.TemporaryDirectory())
        archive = os.path.join(download_folder, f"{os.path.basename(target)}.zip")
        hint = f"or set {ARCHIVES} to the address of a mirror, or give the path of a folder"
        download.download(url, archive, hint)
        _unpack(url, archive, target)
        os.remove(archive)
    return target


def _unpack(url: str, archive: str, target: str):
    """Unpacks a downloaded archive.

    An archive with another digest than the first one of its name is refused and deleted.
    """
    digest = files.sha256(archive)
    record = f"{target}.zip.sha256"
    first_digest = digest
    if files.exists(record):
        first_digest = next(reading.read_lines(record), "").split(" ")[0]
    if first_digest != digest:
        os.remove(archive)
        raise InputError(
            f"{url}: its SHA-256 is {digest}, and was {first_digest} at the first download; find "
            f"out why it has changed, and delete {record} if you trust it"
        )
    hint = "start again to download it"
    try:
        entry_names = archives.entry_names(archive, hint)
        members = _find_members(archive, entry_names, hint)
        with writing.replacing_folder(target) as folder:
            targets = {member: os.path.join(folder, name) for name, member in members.items()}
            archives.copy_entries(archive, targets, hint)
            settings = TokenizerConfig(do_lower_case=not is_cased(os.path.basename(target)))
            with files.open_file(os.path.join(folder, TOKENIZER_CONFIG_NAME), "w") as file:
                file.write(settings.to_json_string())
            with writing.replacing(record) as file:
                file.write(f"{digest}  {os.path.basename(archive)}\n")
    except archives.DamagedArchive as error:
        os.remove(archive)
        raise InputError(f"{url}: is no archive of a model ({error.reason}); {hint}") from None


def _find_members(archive: str, entry_names: list[str], hint: str) -> dict[str, str]:
    """Returns the entries of a model's files by their names without a folder.

    They are written under these names, so that no entry leaves the target folder.
    """
    members = {}
    for entry_name in entry_names:
        *folders, name = entry_name.split("/")
        if {"", ".."} & set(folders):
            raise archives.DamagedArchive(archive, f"it has a member {entry_name!r}", hint)
        if name in members:
            raise archives.DamagedArchive(
                archive, f"it has two {name}: {members[name]} and {entry_name}", hint
            )
        if name in _MEMBERS:
            members[name] = entry_name
    if missing := [name for name in _MEMBERS if name not in members]:
        raise archives.DamagedArchive(archive, f"it lacks {', '.join(missing)}", hint)
    return members


def _fetch_repository(model: str) -> str:
    """Returns the folder of a repository in the cache of huggingface_hub.

    Without a network it is the folder of an earlier download.
    """
    try:
        # The package is optional, so that the type checker may not find it. It loads its modules
        # when they are imported.
        import huggingface_hub  # pyright: ignore[reportMissingImports]
        from huggingface_hub import (  # pyright: ignore[reportMissingImports]
            constants,
            file_download,
        )
    except ImportError:
        raise InputError(
            f"{model}: no such folder; check the path or, if it is a model of the Hugging Face "
            "Hub, pip install 'official-bert[hub]'"
        ) from None
    name, _, revision = model.partition("@")
    try:
        folder_name = file_download.repo_folder_name(repo_id=name, repo_type="model")
        repository = os.path.join(constants.HF_HUB_CACHE, folder_name)
        earlier_blobs = _list_blobs(repository)
        folder = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=_PATTERNS
        )
    except Exception as error:  # each version of the package has other errors of an HTTP library
        raise InputError(f"{model}: no such folder, and {explain(name, error)}") from error
    check_digests(model, sorted(_list_blobs(repository) - earlier_blobs))
    if not glob.glob("**/*.safetensors", root_dir=folder, recursive=True):
        raise InputError(
            f"{model}: the Hub has no model.safetensors of it, and other weights can hold code "
            "that runs; name another revision or model"
        )
    return folder


def _list_blobs(repository: str) -> set[str]:
    """Returns the complete files of a repository in the cache of huggingface_hub."""
    paths = glob.glob(os.path.join(glob.escape(repository), "blobs", "*"))
    return {path for path in paths if not path.endswith(".incomplete")}


def check_digests(model: str, blobs: list[str]) -> None:
    """Compares new files with the SHA-256 of the Hub, by which the cache names large files.

    Args:
        model: the name of the model on the Hub, for messages.
        blobs: the paths of the new files in the cache. A file whose name is not a SHA-256 is not
            checked.

    Raises:
        InputError: a digest differs. The file is deleted.
    """
    for path in blobs:
        name = os.path.basename(path)
        if not _SHA256.fullmatch(name):
            continue
        digest = files.sha256(path)
        if digest != name:
            os.remove(path)
            raise InputError(
                f"{model}: a file has arrived with the SHA-256 {digest}, and the Hub announces "
                f"{name}; start again to download it"
            )


def explain(name: str, error: Exception) -> str:
    """Returns why a repository of the Hub was not downloaded, and what to do.

    Args:
        name: the name of the repository, without its revision.
        error: the error of the download.
    """
    match type(error).__name__:
        case "RevisionNotFoundError":
            return "the Hub has no such revision of the model; correct the part behind the @"
        case "RepositoryNotFoundError" | "GatedRepoError" | "HFValidationError":
            hint = _find_similar(name) or "check the name"
            return f"the Hub has no such model, or shows it to some users only (HF_TOKEN); {hint}"
        case "KeyError" | "TypeError" | "AttributeError" | "IndexError" | "JSONDecodeError":
            return "the answer is not that of a Hugging Face Hub; check HF_ENDPOINT, or the network"
        case _:
            return (
                f"the Hugging Face Hub cannot be reached ({brief(error)}); check the path, or the "
                "network"
            )
