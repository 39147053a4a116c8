"""Makes the recordings of this folder from the whole ones: README.md says what is compressed, left out or cut.

    python -m tests.golden.reduce ../shared tests/golden

In: the folder `shared`, with `golden` and Google's vocabularies in it. Out: every file of this folder but README.md,
the licence of scripts and this program.
"""

import gzip
import json
import pathlib
import shutil
import sys
from collections.abc import Iterable

import numpy as np

from official_bert.tokenization import FullTokenizer

FOLDERS = (
    "model_gelu",
    "model_relu16types",
    "head_classifier",
    "head_squad",
    "scripts",
    "squad_v1",
    "squad_v2",
    "squad_v1cased",
    "squad_train",
    "squad_eval",
)
FILES = ("classifier_features.npz", "corpus.txt", "pretrain_*")
LEFT_OUT = ("scripts/corpus.txt",)  # what records.tfrecord was made of; no test reads it

TEXT = (".json", ".jsonl", ".txt")
LARGE = 20_000  # bytes, above which a text is compressed
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def chosen_lines(lines: list[str]) -> list[str]:
    """1,000 of the 4,800 tokenized texts: 667 of random Unicode, 200 of English and 133 of Chinese Wikipedia."""
    chinese = [line for number, line in enumerate(lines[4600:]) if number % 3]
    return lines[:4000:6] + lines[4000:4600:3] + chinese


def write_text(path: pathlib.Path, text: str):
    """Writes a text; a large one is compressed, and .gz goes behind its name."""
    content = text.encode("utf-8")
    if path.suffix in TEXT and len(content) <= LARGE:
        path.write_bytes(content)
        return
    path = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
    path.write_bytes(gzip.compress(content, mtime=0))


def write_without_logits(path: pathlib.Path, source: pathlib.Path):
    """Arrays without the random logits that were fed: `fed_logits` of tests/tasks/squad/sample.py draws them again."""
    with np.load(source) as arrays:
        kept = {name: arrays[name] for name in arrays.files if not name.endswith("_logits")}
    np.savez_compressed(path, **kept)


def copy(source: pathlib.Path, path: pathlib.Path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in TEXT:
        write_text(path, source.read_text(encoding="utf-8"))
    elif source.name == "features.npz":
        write_without_logits(path, source)
    else:
        shutil.copyfile(source, path)


def squad_texts(folder: pathlib.Path) -> Iterable[str]:
    """Questions, contexts and answers of a recording's input."""
    for article in json.loads((folder / "input.json").read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            yield paragraph["context"]
            for question in paragraph["qas"]:
                yield question["question"]
                yield from (answer["text"] for answer in question["answers"])


def reduced_vocabulary(vocab_file: pathlib.Path, is_cased: bool, texts: Iterable[str]) -> str:
    """A vocabulary in which every piece that does not occur in the texts has given way to its number, as in "[4711]".

    The tokenizer splits at brackets, so that it never looks such a line up; all other lines keep their numbers.
    The longest piece that fits is the same with fewer pieces around it.
    """
    tokenizer = FullTokenizer(str(vocab_file), do_lower_case=not is_cased)
    kept = set(SPECIAL).union(*map(tokenizer.tokenize, texts))
    lines = [piece if piece in kept else f"[{number}]" for number, piece in enumerate(tokenizer.vocab)]
    return "".join(f"{line}\n" for line in lines)


def main(shared: pathlib.Path, output: pathlib.Path):
    golden = shared / "golden"
    sources = [path for name in FOLDERS for path in sorted((golden / name).rglob("*")) if path.is_file()]
    sources += [path for pattern in FILES for path in sorted(golden.glob(pattern))]
    for source in sources:
        name = str(source.relative_to(golden))
        if name not in LEFT_OUT:
            copy(source, output / name)

    with gzip.open(golden / "tokenization.jsonl.gz", "rt", encoding="utf-8", newline="\n") as file:
        lines = chosen_lines(list(file))
    write_text(output / "tokenization.jsonl.gz", "".join(lines))

    corpus = (golden / "corpus.txt").read_text(encoding="utf-8").split("\n")
    for name, squads in (("uncased", ("squad_v1", "squad_v2", "squad_train")), ("cased", ("squad_v1cased",))):
        texts = corpus + [text for squad in squads for text in squad_texts(golden / squad)]
        vocab_file = shared / "data" / "vocab" / f"{name}_vocab.txt"
        vocabulary = reduced_vocabulary(vocab_file, name == "cased", texts)
        write_text(output / f"{name}_vocab.txt", vocabulary)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
