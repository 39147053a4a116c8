"""Hostile command lines: flags that contradict each other, or whose values nothing can be done
with.
"""

import math
import os
import socket
import typing

import pytest
import tensorflow as tf

from official_bert import catalog
from official_bert.options.fields import flag_fields
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.text import TextProcessor
from official_bert.training import distribution
from tests.hostile.commands import (
    classifier,
    corpus,
    embeddings,
    growth,
    mining,
    reranker,
    vectors,
)
from tests.hostile.rows import check, row, table
from tests.scripts import end_of


@pytest.mark.parametrize(
    ("given", "sentence"),
    [(f"--random_seed={'1' * 5000}", ""), ("--masked_lm_prob=nan", "nan: must be a finite number")],
)
def test_numbers_have_bounds(folder, given, sentence):
    ended = end_of(*corpus(folder), given)
    assert ended.status == 1
    assert ended.sentence.startswith(f"create_pretraining_data.py: {given.partition('=')[0]}=")
    assert sentence in ended.sentence
    assert "\n" not in ended.sentence


def test_no_number_flag_is_without_a_bound():
    """A new flag comes with a check that has an upper bound."""
    for command in catalog.commands():
        flags_class = catalog.options_class(command)
        kinds = typing.get_type_hints(flags_class)
        for field in flag_fields(flags_class):
            kind = kinds[field.name]
            if {int, float} & {kind, *typing.get_args(kind)}:
                holds, _ = field.metadata["check"]
                assert not holds(math.nan)
                assert not holds(2.0**70) or field.name == "null_score_diff_threshold"


def train(folder, *others):
    return classifier(folder, "--do_train", *others)


def table_of(folder, text, *others):
    (folder / "classification" / "train.tsv").write_text(text)
    return train(folder, *others)


def module(folder, text, name):
    """Writes a module of the test folder's own, of which `name` is a class."""
    module = f"hostile_{abs(hash(folder))}"
    (folder / f"{module}.py").write_text(text)
    return train(folder, f"--task_name={module}:{name}")


RAISES = """
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.processor import DataProcessor

class NeedsMore(DataProcessor):
    def __init__(self, colour):
        pass

class Raises(DataProcessor):
    def __init__(self):
        raise KeyError("colour")
"""

DOCUMENTS = "query\tdocument\tlabel\n"
ONE_LABEL = "text\tlabel\na\tyes\nb\tyes\n"
PAIRS = "Sentence1\tSentence2\tLabel\na\tb\tyes\nc\td\tno\n"
NAMED_TWICE = "x\tx\tlabel\nb\tc\tyes\ne\tf\tno\n"
# Flags of a training, and parts of the sentence that refuses them; of a number alone, the flag
# itself.
REFUSED = [
    *(
        (f"--search={value}", value)
        for value in (
            "train_batch_size=2.5",
            "learning_rate=nan",
            "num_train_epochs=1;2",
            "restarts=1,2",
        )
    ),
    *(
        (flag, flag)
        for flag in (
            "--ema_decay=1",
            "--all_reduce_dtype=float16",
            "--long_texts=all",
            "--labels=yes",
        )
    ),
    ("--model=no/such", "no/such: no such folder", "Hugging Face Hub"),
    (
        "--model=cased_L-12_H-768_A12",
        "cased_L-12_H-768_A12: no such folder",
        "cased_L-12_H-768_A-12?",
    ),
    ("--collective=nccl", "--collective=nccl: only goes"),
    ("--long_texts=windows --pooling=cls", "--pooling=cls"),
    ("--long_texts=windows --doc_stride=0", "--doc_stride=0"),
    (
        "--doc_stride=9",
        "--doc_stride=9: has no effect without --long_texts=windows; add that, or leave the flag out",
    ),
    ("--abstain_below=70", "--abstain_below=70", "between 0 and"),
    ("--calibrate --label_type=score", "--calibrate: a regression has no probabilities"),
    ("--abstain_below=0.7 --label_type=score", "--abstain_below: only for tasks with one label"),
    ("--abstain_below=0.7 --label_type=multi", "--abstain_below: only for tasks with one label"),
    ("--task_name=.m:Class", "'.m' is relative"),
    ("--data_format=xlsx", "--data_format=xlsx", "tsv|csv|jsonl|parquet"),
    ("--data_format=csv", "train.csv: no such file; ", "train.tsv is there"),
    ("--train_file=absent*.csv", "--train_file: no file matches 'absent*.csv'"),
    ("--train_file=absent.csv", "absent.csv: no such file; check the path"),
    ("--train_file=a,,b", "--train_file: no file matches 'a'"),
    ("--do_eval --dev_file=absent*.csv", "--dev_file: no file matches 'absent*.csv'"),
    ("--do_predict --test_file=absent.csv", "absent.csv: no such file; check the path"),
    ("--data_dir=", "--train_file: must be given, or --data_dir"),
    ("--data_dir= --task_name=CoLA", "--data_dir: must be given"),
    ("--train_file=a --task_name=CoLA", "--train_file: only goes with --task_name=text, not CoLA"),
]
ROWS = [
    *(
        row(given, lambda folder, given=given: train(folder, *given.split()), *says)
        for given, *says in REFUSED
    ),
    row(
        "no task",
        lambda folder: ["run_classifier.py", "--do_train", f"--output_dir={folder / 'out'}"],
        "--task_name: must be given; give text for a table of your own, with --data_dir or "
        "--train_file, or a task of GLUE such as SST-2",
    ),
    row("nothing to do", classifier, "nothing to do", "--do_train"),
    row(
        "value as a word",
        lambda folder: corpus(folder, "a.tfrecord", "--do_lower_case", "False"),
        "the word 'False' belongs to no flag; write --do_lower_case=False",
    ),
    row(
        "stray word in place of a flag",
        lambda folder: ["predict", f"{folder}/model"],
        "/model' belongs to no flag;",
    ),
    row(
        "unknown flag of a script of the original, with its value as a word",
        lambda folder: corpus(folder, "a.tfrecord", "--unknown", "1", "--random_seed", "1"),
        warns=("unknown flag, ignored: --unknown",),
        leaves=("a.tfrecord",),
    ),
    row(
        "flag of another command",
        lambda folder: ["predict", f"--model={folder}", "--max_seq_length=32"],
        "unknown flag: --max_seq_length=32 (--nostrict_flags ignores unknown flags)",
    ),
    row(
        "class weights",
        lambda folder: train(folder, "--class_weights=1e30,1,1"),
        "--class_weights=1e30,1,1",
        leaves=("out/*",),
    ),
    row(
        "a threshold of a prediction",
        lambda folder: ["predict", f"--model={folder}", "--abstain_below=70"],
        "--abstain_below=70",
        "between 0 and",
    ),
    *(
        row(given, lambda folder, given=given: vectors(folder, *given.split()), says)
        for given, says in (
            (
                "--index=a.npz --search=a.npz",
                "--search: does not go with --index; make the index first",
            ),
            (
                "--index=a.npz --output_file=b",
                "--output_file: does not go with --index, the one file that",
            ),
            ("--index=a.npz --on_error=report", "--on_error=report: does not go with --index"),
            (
                "--top_k=3",
                "--top_k=3: has no effect without --search or --token_search; add that, or leave "
                "the flag out",
            ),
            ("--search=a.npz --top_k=0", "--top_k=0: must be at least 1"),
            ("--search=absent.npz", "absent.npz: no such file"),
            ("--index=a.npz --vector_type=int4", "--vector_type=int4: value should be one of"),
            ("--index=a.npz --width=0", "--width=0: must be at least 1"),
            ("--width=8", "--width=8: has no effect without --index"),
            ("--query_prompt=q", "--query_prompt=q: has no effect without --search"),
            ("--search=a.npz --document_prompt=q", "has no effect without --index or --vectors_f"),
            (
                "--vectors_file=a.npy --search=a.npz",
                "--vectors_file: writes vectors alone, and does not go with --index and --search",
            ),
            ("--vectors_file=/dev/null", "/dev/null: must be a file on this machine"),
        )
    ),
    row(
        "an index of a model without vectors",
        lambda folder: vectors(
            folder, f"--model={folder}", f"--index={folder}/a.npz", input_file="/dev/null"
        ),
        "a model of pretraining gives no vectors of texts; name an export of --task_name=embedding",
    ),
    *(
        row(f"mining {given}", lambda folder, given=given: mining(folder, given), says)
        for given, says in (
            ("--skip_top=50", "leaves none of --top_k=50; give a smaller one"),
            ("--margin=-0.1", "must be between 0 and 2"),
            ("--max_score=1.5", "must be between -1 and 1"),
            ("--num_negatives=0", "must be at least 1"),
            ("--has_header=no", "--has_header=no: must be true or false"),
            ("--columns=anchor=a", "--columns: this flag is now --text_a_column"),
            ("--data_format=xml", "value should be one of <tsv|csv|jsonl|parquet>"),
            ("--anchor_column=query", "pairs.tsv has no such column, only anchor, positive"),
            (
                "--data_format=csv",
                "pairs.tsv: has one column, 'anchor\\tpositive', which may be several with",
            ),
        )
    ),
    *(
        row(
            f"embeddings {given}",
            lambda folder, given=given: embeddings(folder, *given.split()),
            *says,
        )
        for given, *says in (
            ("--loss=cosine", "--loss=cosine"),
            ("--scale=0", "--scale=0"),
            ("--triplet_margin=-1", "--triplet_margin=-1"),
            (
                "--matryoshka=8,half",
                "must be different positive whole numbers, separated by commas",
            ),
            ("--projection=0", "--projection=0"),
            ("--pooling=min", "--pooling=min"),
            ("--eval_task=ndcg", "--eval_task=ndcg"),
            ("--max_query_seq_length=2", "--max_query_seq_length=2: must be at least 3"),
            (
                f"--document_prompt={'the-' * 9}",
                "has 18 tokens, and a document may have 16 with its prompt",
            ),
            ("--columns=anchor=a", "run_embeddings and mine_hard_negatives have --anchor_column"),
            (
                "--positive_column=b",
                "--positive_column=b: ",
                "no such column, only anchor, positive",
            ),
            (
                "--loss=triplet",
                "--loss=triplet needs an anchor, a positive and a negative text in each example",
            ),
            ("--loss=mse", "--loss=mse: needs a --teacher"),
            ("--vectors=a.npy", "--vectors: goes with --do_eval and --dev_file only"),
            (
                "--scale=5 --loss=mse --teacher=t",
                "--scale=5.0: has no effect without --loss=multiple_negatives",
            ),
            (
                "--vectors=a.npy --nodo_train --do_eval --dev_file=d.tsv",
                "has no effect with --vectors, which are evaluated as they are; leave one of the "
                "two out",
            ),
        )
    ),
    *(
        row(
            f"reranker {given}",
            lambda folder, given=given: reranker(folder, *given.split()),
            *says,
        )
        for given, *says in (
            ("--loss=hinge", "--loss=hinge"),
            ("--list_size=1", "--list_size=1: must be at least 2"),
            ("--positive_weight=0", "--positive_weight=0"),
            ("--activation=tanh", "--activation=tanh"),
            ("--main_metric=recall --do_eval", "--main_metric=recall"),
            ("--main_metric=map", "--main_metric=map: has no effect without --do_eval"),
            (
                "--loss=mse --num_negatives=3",
                "--num_negatives=3: has no effect without --loss=multiple_negatives_ranking",
            ),
            ("--teacher=t", "--teacher=t: has no effect without --loss=margin_mse|mse|list_net"),
            ("--loss=mse --teacher=absent", "--teacher=absent: absent: holds no model"),
            ("--positive_column=b", "--positive_column=b: ", "no such column, only query"),
            ("--positive_column=", "train.tsv: line 2: has a query and no document; name the"),
        )
    ),
    *(
        row(
            f"reranker on {says}",
            lambda folder, rows=rows, loss=loss: reranker(folder, f"--loss={loss}", rows=rows),
            says,
        )
        for rows, loss, says in (
            (DOCUMENTS + "a\tb\t3\n", "binary_cross_entropy", "line 2: has the label 3, but"),
            (DOCUMENTS + "a\tb\tgood\n", "mse", "line 2: the label 'good' is no number"),
            (DOCUMENTS + "a\tb\t1 2 3\n", "mse", "line 2: the label has 3 numbers, and the row"),
            (DOCUMENTS + "a\tb\t1\na\tc\t1\n", "mse", "line 2: all documents have the label 1"),
            (DOCUMENTS + "a\tb\t1\nc\td\t0\n", "rank_net", "documents with different labels"),
            (DOCUMENTS + "a\tb\t1\nc\td\t0\n", "margin_mse", "has two documents; check"),
            (
                DOCUMENTS + "a\tb\t0\n",
                "multiple_negatives_ranking",
                "no document of the training set has a label above 0",
            ),
        )
    ),
    row(
        "evaluation of a reranker without wrong documents",
        lambda folder: reranker(
            folder,
            "--nodo_train",
            "--do_eval",
            rows=DOCUMENTS + "a\tb\t1\n",
            dev_file="reranking/train.tsv",
        ),
        "train.tsv: line 2: no query has a document with a label above 0 and another one",
    ),
    row(
        "calibration of a model in another folder",
        lambda folder: classifier(folder, "--calibrate", "--do_eval"),
        "--calibrate: writes into the folder of a model; give --do_train, or its --output_dir",
    ),
    *(
        row(
            f"new word: {says}",
            lambda folder, words=words: growth(folder, words),
            f"words.txt: line {says}",
        )
        for words, says in (
            (
                "sea\nNew York\n",
                "2: 'New York' is 2 words for the tokenizer; write one on each line",
            ),
            ("\u5317\u4eac\n", "1: '\u5317\u4eac' is 2 words"),
            ("[E1]\n", "1: '[E1]' is 3 words"),
            ("\0\n", "1: '\\x00' is 0 words"),
            ("a" * 201, f"1: '{'a' * 40}' is a word that is too long"),
        )
    ),
    row(
        "no new word",
        lambda folder: growth(folder, "cat\n"),
        "words.txt: has no word that the vocabulary lacks",
    ),
    row(
        "words into a full folder",
        lambda folder: growth(folder, "sea", "classification"),
        "ion: must be a new folder",
    ),
    *(
        row(
            f"module: {says}",
            lambda folder, text=text, name=name: module(folder, text, name),
            "--task_name=hostile_",
            says,
            leaves=("__pycache__/*",),
        )
        for text, name, says in (
            ("class Mine(:\n", "Mine", ".py, line 1"),
            (RAISES, "NeedsMore", "making the task fails (TypeError"),
            (RAISES, "Raises", "KeyError"),
        )
    ),
    row(
        "scores of pairs that the loss does not read",
        lambda folder: embeddings(folder, train_file="embedding/dev.tsv"),
        "dev.tsv: line 2: has the label",
        "--loss=multiple_negatives_ranking takes each pair",
    ),
    row(
        "a table of pairs for single texts",
        lambda folder: table_of(folder, PAIRS),
        "the column Sentence2 is a second text; name it, --text_b_column=Sentence2",
    ),
    row(
        "table with one label",
        lambda folder: table_of(folder, ONE_LABEL),
        "all examples have the label 'yes'",
    ),
    row(
        "table with a column name twice",
        lambda folder: table_of(folder, NAMED_TWICE, "--text_a_column=x"),
        "--text_a_column=x: ",
        "several columns of this name",
    ),
]


@table(ROWS)
def test_flags(row, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    check(row, folder)


@pytest.mark.parametrize(
    ("text", "settings", "label"),
    [
        ("good\tyes\nbad\tno\n", {"labels": ["no", "yes"]}, "yes"),
        ("good\t1.5\n", {"label_type": "score"}, "1.5"),
    ],
)
def test_an_example_taken_for_the_header_is_warned_of(tmp_path, caplog, text, settings, label):
    (tmp_path / "train.tsv").write_text(f"{text}fine\t{label}\n")
    processor = TextProcessor.from_settings(
        ClassificationSettings.from_values(
            {"do_train": False, "label_column": "1", "labels": None, **settings}
        )
    )
    processor.get_train_examples(str(tmp_path))
    warned = (
        "train.tsv: line 1 is read as the names of the columns, but the column of the labels would "
        f"be called '{label}'"
    )
    assert warned in caplog.text


def test_a_tpu_that_does_not_answer_is_waited_for_with_a_limit(folder, monkeypatch):
    """Its address accepts connections and never answers."""
    monkeypatch.setattr(distribution, "TPU_LIMIT_SECS", 0.3)
    distribution.cached_strategy.cache_clear()
    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", lambda **flags: flags["tpu"]
    )
    monkeypatch.setattr("official_bert.io.processes.FIRST_MESSAGE_SECS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def connect(resolver):
            with socket.create_connection(address) as connection:
                connection.recv(1)

        monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", connect)
        tpu = f"{address[0]}:{address[1]}"
        ended = end_of(*train(folder, "--use_tpu", f"--tpu_name={tpu}"))
    assert ended.status == 1
    assert (
        f"--tpu_name={tpu}: no TPU system answers there (no answer within 0.3 s)" in ended.sentence
    )
    assert f"waiting for the TPU {tpu}" in ended.log


def failing(monkeypatch, error: Exception) -> list[str]:
    """The command of a script whose work raises an error."""

    def fail(name):
        raise error

    monkeypatch.setattr("tests.scripts.load", fail)
    return ["create_pretraining_data.py", "--input_file=a", "--output_file=b", "--vocab_file=c"]


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("ours"),
        tf.errors.AlreadyExistsError(None, None, "Graph execution error:\n\na variable"),
    ],
)
def test_a_defect_is_no_fault_of_the_user(monkeypatch, error):
    with pytest.raises(type(error)):
        end_of(*failing(monkeypatch, error))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            tf.errors.NotFoundError(None, None, "a.ckpt; gone\nmore"),
            "NotFoundError: a.ckpt; gone; check the",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM"),
            "ResourceExhaustedError: OOM; make room",
        ),
        (
            tf.errors.UnavailableError(None, None, "socket"),
            "UnavailableError: socket; check the network",
        ),
        (
            MemoryError("Unable to allocate 8 TiB"),
            "memory is full (Unable to allocate 8 TiB); give smaller",
        ),
        (OSError(28, "No space left on device", "a"), "a: No space left on device; make room"),
    ],
)
def test_errors_from_outside_are_one_sentence(monkeypatch, error, says):
    ended = end_of(*failing(monkeypatch, error))
    assert ended.status == 1
    assert "\n" not in ended.sentence
    assert says in ended.sentence


def test_a_deleted_working_folder_is_named(monkeypatch):
    def getcwd():
        raise FileNotFoundError(2, "No such file or directory")

    command = failing(monkeypatch, FileNotFoundError(2, "No such file or directory"))
    assert "input or output: No such file" in end_of(*command).sentence
    monkeypatch.setattr(os, "getcwd", getcwd)
    assert (
        "the working folder of this run was deleted; change to another one"
        in end_of(*command).sentence
    )
