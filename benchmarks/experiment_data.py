#!/usr/bin/env python3
"""Lays out real data for official-bert run_experiment at the scale desk.

In: a folder with the subfolders corpus, blimp, glue, squad, wnut17 and codah. Out: a new folder in
the layout that docs/experiments.md describes: the corpus, of whose documents the last ones are held
out, BLiMP, and the data of the tasks. With --novels, which the folder novels has, the corpus is 11
million words, and the last novel is held out, too. What has no development set of its own is split;
the questions of SQuAD 1.1 that are evaluated are 2,000.

    python benchmarks/experiment_data.py --source=../shared/data --data_dir=data --novels
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import finetuning_tasks

from official_bert.data.pretraining.text_formats import line_reader

READ = (
    "corpus/*.txt",
    "blimp/BLiMP.zip",
    "glue/CoLA",
    "glue/SST-2/train.tsv",
    "glue/STS-B",
    "wnut17",
    "codah/full_data.tsv",
    "squad/train-v1.1-subset.json",
    "squad/dev-v1.1.json",
    "squad/v2.0-half.json",
)  # what --source must have
HELD_OUT_SHARE = 0.02  # of the documents
SQUAD = {
    "SQuAD-1.1/train.json": "train-v1.1.json",
    "SQuAD-1.1/dev.json": "dev-v1.1.json",
    "SQuAD-2.0/train.json": "train-v2.0.json",
    "SQuAD-2.0/dev.json": "dev-v2.0.json",
}


def first_missing(source: pathlib.Path, has_novels: bool) -> pathlib.Path | None:
    """Returns the first path that a source of data lacks: a file, or the outermost folder; None
    if all are there.
    """
    for pattern in (*READ, *(["novels/*.txt"] if has_novels else [])):
        if not any(source.glob(pattern)):
            paths = [source, *(source.joinpath(*pattern.split("/")[:depth]) for depth in (1, 2, 3))]
            return next(path for path in paths if not path.exists())
    return None


def split_corpus(texts: list[str], name: str, target: pathlib.Path):
    """Writes train_NAME.txt and held_out_NAME.txt, with the documents of some texts in their
    order.
    """
    documents = "\n\n".join(text.strip("\n") for text in texts).split("\n\n")
    first_held_out = min(round(len(documents) * (1 - HELD_OUT_SHARE)), len(documents) - 1)
    for kind, part in (
        ("train", documents[:first_held_out]),
        ("held_out", documents[first_held_out:]),
    ):
        path = target / f"{kind}_{name}.txt"
        path.write_text("\n\n".join(part) + "\n", encoding="utf-8")
        print(
            f"corpus/{path.name}: {len(part)} documents, "
            f"{sum(len(text.split()) for text in part):,} words"
        )


def lay_out(source: pathlib.Path, target: pathlib.Path, has_novels: bool):
    """Writes all data into an empty folder."""
    (target / "corpus").mkdir()
    pages = [path.read_text(encoding="utf-8") for path in sorted(source.glob("corpus/*.txt"))]
    split_corpus(pages, "wikipedia", target / "corpus")
    if has_novels:
        novels = [
            "\n".join(line_reader("prose")(str(path)))
            for path in sorted(source.glob("novels/*.txt"))
        ]
        split_corpus(novels, "novels", target / "corpus")
    shutil.copy(source / "blimp" / "BLiMP.zip", target)
    for name in ("CoLA", "SST-2", "STS-B"):
        shutil.copytree(source / "glue" / name, target / name)
    with tempfile.TemporaryDirectory(dir=target) as work:
        split = pathlib.Path(work, "split")
        finetuning_tasks.prepare_data(source, split)
        for name in ("WNUT-17", "CODAH"):
            shutil.move(split / name, target / name)
        (target / "SQuAD").mkdir()
        for name, official in SQUAD.items():
            shutil.move(split / name, target / "SQuAD" / official)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--source", type=pathlib.Path, required=True, help="folder with the real data"
    )
    parser.add_argument("--data_dir", type=pathlib.Path, required=True, help="the new folder")
    parser.add_argument("--novels", action="store_true", help="add the novels to the corpus")
    flags = parser.parse_args()
    if flags.data_dir.exists():
        sys.exit(f"--data_dir={flags.data_dir}: exists already; name another folder, or delete it")
    if missing := first_missing(flags.source, flags.novels):
        sys.exit(
            f"{missing}: no such file or folder; --source must name a folder "
            "with corpus, blimp, glue, squad, wnut17 and codah in it, and with --novels novels, too"
        )
    target = flags.data_dir.with_name(f".{flags.data_dir.name}.new")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        lay_out(flags.source, target, flags.novels)
        target.rename(flags.data_dir)
    finally:
        shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    main()
