"""From the name of a model to a local folder with its files: released archives and the Hugging Face
Hub.

    uncased_L-12_H-768_A-12                    an archive of the original's README, or release/name
    google-bert/bert-base-uncased@revision     a repository of the Hub; the part from @ on may be absent

In: what a user gave as a model. Out: an existing path as it is, or the folder in a cache into which
the model was downloaded; the second time no network is needed. Of the Hub the cache, tokens and
offline mode are `huggingface_hub`'s.
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
# The original's, from the latest to the first: of two archives with one name, the first is meant.
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
_PATHS = {name: f"{release}/{name}" for release, names in RELEASES.items() for name in names}
_PATHS |= {
    f"{release}/{name}": f"{release}/{name}"
    for release, names in RELEASES.items()
    for name in names
}
_MEMBERS = (
    "vocab.txt",
    "bert_config.json",
    "bert_model.ckpt.data-00000-of-00001",
    "bert_model.ckpt.index",
)

_OWNER = "google-bert"
_CASES = ("base{}", "large{}", "base-multilingual{}", "large{}-whole-word-masking")
# What the Hub knows without an owner, too.
_WITHOUT_OWNER = (
    *(f"bert-{name.format(case)}" for name in _CASES for case in ("-uncased", "-cased")),
    "bert-base-chinese",
)
_SHA256 = re.compile("[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(@[\w./-]+)?", re.ASCII)
# What is read of a model, and of the modules of sentence-transformers in numbered folders. No
# pickles: they run code.
_FILES = (
    "model*.safetensors model.safetensors.index.json config.json vocab.txt tokenizer_config.json"
)
_FILES += " tokenizer.json modules.json sentence_bert_config.json config_sentence_transformers.json"
_PATTERNS = [pattern for name in _FILES.split() for pattern in (name, f"[0-9]_*/{name}")]


def is_cased(archive: str) -> bool:
    """Tells whether a released model reads text as it is, without lower-casing it."""
    return archive.startswith(("cased", "multi_cased", "wwm_cased"))


def local_path(model: str | os.PathLike) -> str:
    """Returns the path of a model: what exists as it is, and the folder of a name, which is
    downloaded if need be.

    What is no path and no name stays as it is, too, for an error of its reader. A name whose owner
    is an existing folder is a path.

    Raises:
        InputError: there is no model of this name, or it cannot be downloaded.
    """
    model = os.fspath(model)
    is_name = _NAME.fullmatch(model) and "ckpt" not in model and not model.endswith(".safetensors")
    if not is_name or files.exists(model) or files.exists(f"{model}.index"):
        return model
    if model in _PATHS:
        return _archive(_PATHS[model])
    if model.partition("@")[0] in _WITHOUT_OWNER:
        return _repository(f"{_OWNER}/{model}")
    owner, slash, _ = model.partition("/")
    if slash:
        return model if os.path.isdir(owner) else _repository(model)
    if near := _near(model):
        raise InputError(f"{model}: no such folder, and no model of this name is known; {near}")
    return model


def _near(name: str) -> str:
    return did_you_mean(
        name, [*_WITHOUT_OWNER, *(f"{_OWNER}/{known}" for known in _WITHOUT_OWNER), *_PATHS]
    )


def _archive(path: str) -> str:
    """Returns the folder of a released archive, release/name; another process that makes it is
    waited for.
    """
    # Late: most uses of a tokenizer need no log and no HTTP.
    from official_bert.io import download, folder_lock

    cache, base = (os.environ.get(name) or default for name, default in _DEFAULTS.items())
    url, target = f"{base.rstrip('/')}/{path}.zip", os.path.join(os.path.expanduser(cache), path)
    if files.exists(target):
        return target
    folder = os.path.dirname(target)
    with folder_lock.locked(folder, waits=True), contextlib.ExitStack() as stack:
        if files.exists(target):
            return target
        # A remote file system cannot append, so what is interrupted there begins anew.
        place = (
            stack.enter_context(tempfile.TemporaryDirectory())
            if files.is_remote(target)
            else folder
        )
        archive = os.path.join(place, f"{os.path.basename(target)}.zip")
        download.download(
            url,
            archive,
            f"or set {ARCHIVES} to the address of a mirror, or give the path of a folder",
        )
        _unpack(url, archive, target)
        os.remove(archive)
    return target


def _unpack(url: str, archive: str, target: str):
    """Unpacks a downloaded archive; one with another digest than the first of its name is
    refused and deleted.
    """
    digest, record = files.sha256(archive), f"{target}.zip.sha256"
    known = next(reading.read_lines(record), "").split(" ")[0] if files.exists(record) else digest
    if known != digest:
        os.remove(archive)
        raise InputError(
            f"{url}: its SHA-256 is {digest}, and was {known} at the first download; find out why "
            f"it has changed, and delete {record} if you trust it"
        )
    remedy = "start again to download it anew"
    try:
        members = _members(archive, archives.entry_names(archive, remedy), remedy)
        with writing.replacing_folder(target) as folder:
            targets = {member: os.path.join(folder, name) for name, member in members.items()}
            archives.copy_entries(archive, targets, remedy)
            settings = TokenizerConfig(do_lower_case=not is_cased(os.path.basename(target)))
            with files.open_file(os.path.join(folder, TOKENIZER_CONFIG_NAME), "w") as file:
                file.write(settings.to_json_string())
            with writing.replacing(record) as file:
                file.write(f"{digest}  {os.path.basename(archive)}\n")
    except archives.DamagedArchive as error:
        os.remove(archive)
        raise InputError(f"{url}: is no archive of a model ({error.reason}); {remedy}") from None


def _members(archive: str, entry_names: list[str], remedy: str) -> dict[str, str]:
    """Returns the entries of a model's files by their names without a folder, under which alone
    they are written.
    """
    members = {}
    for entry_name in entry_names:
        *folders, name = entry_name.split("/")
        if {"", ".."} & set(folders):
            raise archives.DamagedArchive(archive, f"it has a member {entry_name!r}", remedy)
        if name in members:
            raise archives.DamagedArchive(
                archive, f"it has two {name}: {members[name]} and {entry_name}", remedy
            )
        if name in _MEMBERS:
            members[name] = entry_name
    if missing := [name for name in _MEMBERS if name not in members]:
        raise archives.DamagedArchive(archive, f"it lacks {', '.join(missing)}", remedy)
    return members


def _repository(model: str) -> str:
    """Returns the folder of a repository in the cache of huggingface_hub; without network it
    takes what is there.
    """
    try:
        import huggingface_hub

        # The package loads its modules when they are imported.
        from huggingface_hub import constants, file_download
    except ImportError:
        raise InputError(
            f"{model}: no such folder; check the path or, if it is a model of the Hugging Face "
            "Hub, pip install 'official-bert[hub]'"
        ) from None
    name, _, revision = model.partition("@")
    try:
        folder_name = file_download.repo_folder_name(repo_id=name, repo_type="model")
        repository = os.path.join(constants.HF_HUB_CACHE, folder_name)
        known = _blobs(repository)
        folder = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=_PATTERNS
        )
    except Exception as error:  # of its HTTP library, too, which is another one in each version
        raise InputError(f"{model}: no such folder, and {_why(name, error)}") from error
    _check_digests(model, sorted(_blobs(repository) - known))
    if not glob.glob("**/*.safetensors", root_dir=folder, recursive=True):
        raise InputError(
            f"{model}: the Hub has no model.safetensors of it, and other weights can hold code "
            "that runs; name another revision or model"
        )
    return folder


def _blobs(repository: str) -> set[str]:
    """Returns the whole files that the cache of huggingface_hub has of a repository."""
    paths = glob.glob(os.path.join(glob.escape(repository), "blobs", "*"))
    return {path for path in paths if not path.endswith(".incomplete")}


def _check_digests(model: str, blobs: list[str]):
    """Compares new files with the SHA-256 that the Hub announces, by which the cache names the
    large ones.
    """
    for path in blobs:
        name = os.path.basename(path)
        if _SHA256.fullmatch(name) and (digest := files.sha256(path)) != name:
            os.remove(path)
            raise InputError(
                f"{model}: a file has arrived with the SHA-256 {digest}, and the Hub announces "
                f"{name}; start again to download it anew"
            )


def _why(name: str, error: Exception) -> str:
    """Returns why a repository of the Hub was not fetched, and what to do."""
    match type(error).__name__:
        case "RevisionNotFoundError":
            return "the Hub has no such revision of the model; correct what stands behind the @"
        case "RepositoryNotFoundError" | "GatedRepoError" | "HFValidationError":
            near = _near(name) or "check the name"
            return f"the Hub has no such model, or shows it to some users only (HF_TOKEN); {near}"
        case "KeyError" | "TypeError" | "AttributeError" | "IndexError" | "JSONDecodeError":
            return "the answer is not that of a Hugging Face Hub; check HF_ENDPOINT, or the network"
        case _:
            return (
                f"the Hugging Face Hub cannot be asked ({brief(error)}); check the path, or the "
                "network"
            )
