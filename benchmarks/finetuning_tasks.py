"""The tasks of the fine-tuning benchmarks: their flags and data, and the Hugging Face model of each
task.

In: a folder of real data and a Hugging Face encoder. Out: the options of our scripts, encoded sets,
and PyTorch models with their inputs and outputs.
"""

import copy
import itertools
import json
import pathlib
import shutil
from typing import NamedTuple

import numpy as np

SST2_ROWS, CODAH_DEV_ROWS, SQUAD_DEV_QUESTIONS, SQUAD_DEV_ARTICLES = 20_000, 555, 2_000, 5


class Benchmark(NamedTuple):
    """A task with the settings of the comparison.

    Attributes:
        script: the name of our script.
        metric: the key of the compared metric in eval_results.txt.
        flags: the flags of the script, without those that all tasks share.
        num_seeds: the number of runs of each side.
        evaluation: the flag that turns evaluation on.
        is_percentage: whether the metric is a percentage.
    """

    script: str
    metric: str
    flags: dict
    num_seeds: int = 1
    evaluation: str = "do_eval"
    is_percentage: bool = False


def _glue(
    name: str, metric: str, num_seeds: int = 1, epochs: float = 3.0, folder: str | None = None
) -> Benchmark:
    flags = {
        "task_name": name,
        "data_dir": folder or name,
        "num_train_epochs": epochs,
        "shuffle_buffer_size": 0,
    }
    return Benchmark("run_classifier", metric, flags | {"eval_batch_size": 32}, num_seeds)


SMALL_COLA = "CoLA-2500"  # the first rows of CoLA, for comparisons of our options alone
SMALL_COLA_ROWS = 2_500


def _squad(name: str, **flags) -> Benchmark:
    flags |= {
        "train_file": f"{name}/train.json",
        "predict_file": f"{name}/dev.json",
        "max_seq_length": 256,
    }
    flags |= {
        "doc_stride": 128,
        "shuffle_buffer_size": 0,
        "train_batch_size": 16,
        "predict_batch_size": 32,
    }
    flags |= {"length_aware_batches": True}
    return Benchmark("run_squad", "f1", flags, evaluation="do_predict", is_percentage=True)


BENCHMARKS = {
    "STS-B": _glue("STS-B", "eval_spearman", num_seeds=3),
    "CoLA": _glue("CoLA", "eval_matthews", num_seeds=3),
    "WNUT-17": Benchmark(
        "run_ner", "eval_f1", {"data_dir": "WNUT-17", "eval_batch_size": 32}, num_seeds=3
    ),
    "SST-2": _glue("SST-2", "eval_accuracy", epochs=1.0),
    "CODAH": Benchmark(
        "run_swag",
        "eval_accuracy",
        {"task_name": "codah", "data_dir": "CODAH", "train_batch_size": 16, "eval_batch_size": 16},
    ),
    "SQuAD 1.1": _squad("SQuAD-1.1", num_train_epochs=1.0),
    "SQuAD 2.0": _squad("SQuAD-2.0", num_train_epochs=2.0, version_2_with_negative=True),
    SMALL_COLA: _glue("CoLA", "eval_matthews", num_seeds=5, folder=SMALL_COLA),
}
COMPARED = [name for name in BENCHMARKS if name != SMALL_COLA]


def prepare_data(source: pathlib.Path, target: pathlib.Path):
    """Copies the part of the data that the comparison uses into the layout that the scripts read.

    Args:
        source: a folder with the subfolders glue, wnut17, codah and squad.
        target: a new folder with a subfolder for each task; what is there is not changed.
    """
    if not target.exists():
        _prepare_compared(source, target)
    if not (target / SMALL_COLA).exists():
        shutil.copytree(source / "glue/CoLA", target / SMALL_COLA)
        _copy_lines(
            source / "glue/CoLA/train.tsv",
            target / SMALL_COLA / "train.tsv",
            slice(SMALL_COLA_ROWS),
        )


def _prepare_compared(source: pathlib.Path, target: pathlib.Path):
    new_folder = target.with_name(target.name + ".new")
    shutil.rmtree(new_folder, ignore_errors=True)
    for name in ("STS-B", "CoLA", "SST-2"):
        shutil.copytree(source / "glue" / name, new_folder / name)
    _copy_lines(
        source / "glue/SST-2/train.tsv", new_folder / "SST-2/train.tsv", slice(SST2_ROWS + 1)
    )
    shutil.copytree(source / "wnut17", new_folder / "WNUT-17")
    for name in ("CODAH", "SQuAD-1.1", "SQuAD-2.0"):
        (new_folder / name).mkdir()
    _copy_lines(
        source / "codah/full_data.tsv", new_folder / "CODAH/train.tsv", slice(-CODAH_DEV_ROWS)
    )
    _copy_lines(
        source / "codah/full_data.tsv", new_folder / "CODAH/dev.tsv", slice(-CODAH_DEV_ROWS, None)
    )
    shutil.copy(source / "squad/train-v1.1-subset.json", new_folder / "SQuAD-1.1/train.json")
    dev = json.loads((source / "squad/dev-v1.1.json").read_text(encoding="utf-8"))
    _write_squad(
        new_folder / "SQuAD-1.1/dev.json", dev, _first_questions(dev["data"], SQUAD_DEV_QUESTIONS)
    )
    half = json.loads((source / "squad/v2.0-half.json").read_text(encoding="utf-8"))
    _write_squad(
        new_folder / "SQuAD-2.0/train.json",
        half,
        _with_one_answer(half["data"][:-SQUAD_DEV_ARTICLES]),
    )
    _write_squad(new_folder / "SQuAD-2.0/dev.json", half, half["data"][-SQUAD_DEV_ARTICLES:])
    new_folder.rename(target)


def _copy_lines(source: pathlib.Path, target: pathlib.Path, part: slice):
    lines = source.read_text(encoding="utf-8").split("\n")
    lines = lines[:-1] if not lines[-1] else lines
    target.write_text("".join(f"{line}\n" for line in lines[part]), encoding="utf-8")


def _write_squad(path: pathlib.Path, whole: dict, articles: list[dict]):
    path.write_text(json.dumps(whole | {"data": articles}), encoding="utf-8")


def _first_questions(articles: list[dict], count: int) -> list[dict]:
    """Returns the articles up to the first `count` questions."""
    first_articles = []
    for article in articles:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            questions = paragraph["qas"][:count]
            count -= len(questions)
            if questions:
                paragraphs.append(paragraph | {"qas": questions})
        if paragraphs:
            first_articles.append(article | {"paragraphs": paragraphs})
    return first_articles


def _with_one_answer(articles: list[dict]) -> list[dict]:
    """Returns the articles with only the first answer of each question, because training allows
    at most one.
    """
    articles = copy.deepcopy(articles)
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                question["answers"] = question["answers"][:1]
    return articles


def make_options(
    benchmark: Benchmark, data: pathlib.Path, model: pathlib.Path, output_dir: pathlib.Path, **more
):
    """Returns the options of our script for the training and evaluation of a benchmark."""
    from official_bert import catalog

    flags = benchmark.flags | {
        name: str(data / benchmark.flags[name])
        for name in ("data_dir", "train_file", "predict_file")
        if name in benchmark.flags
    }
    flags |= {
        "vocab_file": str(model / "vocab.txt"),
        "bert_config_file": str(model / "config.json"),
    }
    flags |= {"init_checkpoint": str(model), "output_dir": str(output_dir), "learning_rate": 5e-5}
    flags |= {"do_train": True, benchmark.evaluation: True, "save_checkpoints_steps": 1_000_000}
    return catalog.options_class(benchmark.script)(**flags | more)


class Sets(NamedTuple):
    """The training set and the development set of a benchmark.

    Attributes:
        task: our task object, with its head and its metrics.
        train, dev: the encoded sets.
        num_outputs: the number of outputs of the head.
        num_targets: the number of targets in the development set that the metric counts.
        max_length: the value of --max_seq_length.
    """

    task: object
    train: object
    dev: object
    num_outputs: int
    num_targets: int
    max_length: int


def read_sets(options) -> Sets:
    """Reads and encodes the sets with the functions that our script uses."""
    from official_bert.model_source import resolve
    from official_bert.tasks import registry
    from official_bert.tasks.base import DataFiles

    source = resolve(options)
    options, tokenizer = source.options, source.tokenizer
    task_name = getattr(options, "task_name", None) or _TASK_NAMES[type(options).__name__]
    task = registry.make_task(task_name, {"task_name": task_name} | vars(options))
    dev = "dev" if hasattr(options, "do_eval") else "test"  # run_squad.py scores its test set
    set_names = "train", dev
    files = {name: getattr(options, f"{name}_file", None) for name in set_names}
    if dev == "test":
        files["test"] = options.predict_file
    data_files = DataFiles(getattr(options, "data_dir", None), files)
    examples = [task.read(data_files, name)[""] for name in set_names]
    train, dev = (
        task.encode(each, tokenizer, options.max_seq_length, name)
        for each, name in zip(examples, set_names, strict=True)
    )
    num_outputs = {"squad": 2}.get(task_name, len(task.labels or "1"))
    return Sets(
        task,
        train,
        dev,
        num_outputs,
        _num_targets(task_name, examples[1], dev),
        options.max_seq_length,
    )


_TASK_NAMES = {"TaggingOptions": "ner", "SquadOptions": "squad"}


def _num_targets(task_name: str, examples, encoded) -> int:
    """Returns the number of entities, of questions, or of examples."""
    if task_name == "ner":
        return sum(tag[0] == "B" for sentence in examples.sentences for tag in sentence.tags)
    return len(examples.examples) if task_name == "squad" else len(encoded.lengths)


def peer_model(benchmark: Benchmark, sets: Sets, folder: pathlib.Path, **config):
    """Returns Hugging Face's model for a task: the encoder of a folder with a randomly initialised
    head.

    Args:
        benchmark: the task.
        sets: the sets, for the number of outputs.
        folder: the folder of the encoder.
        config: fields with other values than in the folder's config.json.
    """
    import transformers

    classes = {
        "run_classifier": transformers.BertForSequenceClassification,
        "run_ner": transformers.BertForTokenClassification,
        "run_swag": transformers.BertForMultipleChoice,
        "run_squad": transformers.BertForQuestionAnswering,
    }
    transformers.logging.set_verbosity_error()
    if benchmark.script in ("run_classifier", "run_ner"):
        config["num_labels"] = sets.num_outputs
    return classes[benchmark.script].from_pretrained(folder, **config)


def peer_inputs(batch: dict[str, np.ndarray]) -> dict:
    """Converts one of our batches to arguments of Hugging Face's models, with labels if it has
    any.
    """
    import torch

    renamed = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
        "label_ids": "labels",
        "start_positions": "start_positions",
        "end_positions": "end_positions",
    }
    inputs = {
        name: torch.from_numpy(np.ascontiguousarray(batch[ours]))
        for ours, name in renamed.items()
        if ours in batch
    }
    if "label_mask" in batch:
        inputs["labels"] = torch.where(
            torch.from_numpy(batch["label_mask"]) > 0, inputs["labels"], -100
        )
    return {
        name: value if value.is_floating_point() else value.long() for name, value in inputs.items()
    }


def peer_outputs(sets: Sets, compute_logits, batch_size: int) -> dict[str, np.ndarray]:
    """Converts Hugging Face's logits on the development set to the outputs that our metrics read.

    Args:
        sets: the sets, of which the development set is used.
        compute_logits: a function from row numbers to the logits, a list of arrays [batch, ...].
        batch_size: the number of windows or examples in a batch.
    """
    count = len(sets.dev.lengths)
    starts = range(0, count, batch_size)
    batches = [compute_logits(np.arange(start, min(start + batch_size, count))) for start in starts]
    width = (
        sets.task.rules.max_seq_length
        if sets.task.objective(None).reads_padding
        else int(sets.dev.lengths.max())
    )
    first, *second = (
        list(itertools.chain.from_iterable(parts)) for parts in zip(*batches, strict=True)
    )
    if second:
        return {"start_logits": _filled(first, width), "end_logits": _filled(second[0], width)}
    if first[0].ndim == 2:
        return {"tags": np.stack([_filled([row.argmax(-1)], width, 0)[0] for row in first])}
    logits = np.stack(first)
    # The metrics need only the greatest, which is the same.
    return {"score": logits[:, 0], "probabilities": logits}


def _filled(rows: list[np.ndarray], width: int, value=-1e4) -> np.ndarray:
    filled = np.full((len(rows), width), value, rows[0].dtype)
    for target, row in zip(filled, rows, strict=True):
        target[: len(row)] = row
    return filled
