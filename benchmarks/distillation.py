#!/usr/bin/env python3
"""Measures what a teacher gives a student of half its layers: fine-tuned alone, and with general
and task distillation.

In: a folder of real data and a Hugging Face encoder of at least three layers. Out: tables, and a
line of JSON in --output for each finished run. Runs that this file already contains are not
repeated; each is a process of its own.

    python benchmarks/distillation.py --data=data --model=minilm --work_dir=work --output=distillation.jsonl

First `official-bert create_student` keeps three layers, which then learn the hidden states and
attention relations of the encoder on Wikipedia, for --general_updates of 32 x 128 tokens; a run
that was stopped goes on. `teacher` is the encoder fine-tuned on a task, `plain` the three layers
without any teacher, `distilled` those that learned on Wikipedia, with the teacher of the same seed.
All sides of a task have the same flags, but for those that `--students` gives the three layers,
with which they have rows of their own. `--sides general` is a fourth one: the layers that learned
on Wikipedia, without a teacher of the task.

`--tasks vectors` is about sentence vectors, which the encoder must make: `plain` are the three
layers as they are, `distilled` those that learned its vectors of the different sentences of the
corpus of six words or more, by --loss=mse. `--sides peer --peer=FILE.onnx` is another model in
onnxruntime with the same vocabulary, whose vectors are the means over its tokens.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import finetuning_tasks as tasks

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIDES, PEER = ("teacher", "plain", "distilled"), "peer"
ALL, SAME = (*SIDES, "general", PEER), "{}"
TASKS = ("SST-2", "STS-B", "CoLA", "SQuAD 1.1")
VECTORS, VECTOR_SETS = "vectors", ("STS12", "STS13", "STS15", "STS-B")
NUM_STUDENT_LAYERS, LENGTH, BATCH_SIZE, GENERAL_RATE = 3, 128, 32, 4e-4
VECTOR_EPOCHS, VECTOR_BATCH_SIZE, VECTOR_RATE = 2, 64, 3e-4


def script(name: str, **flags):
    typed_flags = [f"--{flag}={value}" for flag, value in flags.items()]
    subprocess.run([sys.executable, "-m", "official_bert", name, *typed_flags], check=True)


def make_students(flags, is_general: bool = True) -> None:
    """Makes the folders `plain` and, unless it is not needed, `general` of the working folder."""
    plain, general = flags.work_dir / "plain", flags.work_dir / "general"
    if not plain.exists():
        script("create_student", model=flags.model, num_layers=NUM_STUDENT_LAYERS, output_dir=plain)
    if not is_general:
        return
    records = flags.work_dir / "wiki.tfrecord"
    if not records.exists():
        script(
            "create_pretraining_data",
            model=flags.model,
            input_file=flags.data / "corpus" / "wiki_0?.txt",
            output_file=f"{records}.new",
            max_seq_length=LENGTH,
            dupe_factor=1,
            random_seed=1,
        )
        pathlib.Path(f"{records}.new").rename(records)
    script(
        "run_pretraining",
        model=plain,
        teacher=flags.model,
        distillation="hidden,attention_relations",
        distillation_weight=1,
        input_file=records,
        do_train=True,
        max_seq_length=LENGTH,
        train_batch_size=BATCH_SIZE,
        num_train_steps=flags.general_updates,
        num_warmup_steps=flags.general_updates // 10,
        learning_rate=GENERAL_RATE,
        save_checkpoints_steps=200,
        random_seed=1,
        output_dir=general,
    )


def one_run(flags, name: str, side: str, seed: int) -> dict:
    from finetuning import device_name

    row = (vectors_run if name == VECTORS else task_run)(flags, name, side, seed)
    where = {"num_threads": len(os.sched_getaffinity(0)), "device": device_name()}
    return {"task": name, "side": side, "seed": seed} | row | where


def vectors_run(flags, name: str, side: str, seed: int) -> dict:
    """Returns the Spearman correlations times 100 of the vectors of a side."""
    import embeddings
    import embeddings_data

    from official_bert import SentenceEncoder

    folder, secs = flags.work_dir / ("general" if side == "general" else "plain"), 0.0
    model = flags.model if side == "teacher" else folder
    if side == "distilled":
        model = flags.work_dir / "models" / f"vectors-{seed}"
        shutil.rmtree(model, ignore_errors=True)
        model.parent.mkdir(exist_ok=True)
        lines = (
            line
            for path in sorted(flags.data.glob("corpus/wiki_*.txt"))
            for line in path.open(encoding="utf-8")
        )
        texts = sorted(
            {line.strip() for line in lines if len(line.split()) >= embeddings_data.FEWEST_WORDS}
        )
        file = flags.work_dir / f"sentences-{seed}.jsonl"
        embeddings_data.write_lines(file, [{"text": text} for text in texts])
        begun = time.perf_counter()
        script(
            "run_embeddings",
            model=flags.work_dir / "plain",
            teacher=flags.model,
            loss="mse",
            train_file=file,
            do_train=True,
            max_seq_length=LENGTH,
            num_train_epochs=VECTOR_EPOCHS,
            train_batch_size=VECTOR_BATCH_SIZE,
            learning_rate=VECTOR_RATE,
            save_checkpoints_steps=1_000_000,
            random_seed=seed,
            output_dir=model,
        )
        secs = time.perf_counter() - begun
    encode = peer_encoder(flags) if side == PEER else SentenceEncoder(str(model)).encode
    correlations = {
        one: 100 * embeddings.compute_spearman(encode, embeddings_data.test_pairs(flags.data, one))
        for one in VECTOR_SETS
    }
    return {"train_secs": secs, "results": correlations}


def peer_encoder(flags):
    """Returns a function from texts to the vectors of the model of --peer."""
    import numpy as np
    import onnxruntime

    from official_bert.tokenization import FullTokenizer

    session = onnxruntime.InferenceSession(str(flags.peer))
    (output_name,) = (one.name for one in session.get_outputs() if len(one.shape) == 3)
    tokenizer = FullTokenizer.from_pretrained(str(flags.model))

    def vector(text: str) -> np.ndarray:
        pieces = ["[CLS]", *tokenizer.tokenize(text)[: LENGTH - 2], "[SEP]"]
        ids = np.array([tokenizer.convert_tokens_to_ids(pieces)], np.int64)
        (token_vectors,) = session.run(
            [output_name], {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        )
        return token_vectors[0].mean(0)

    return lambda texts: np.stack([vector(text) for text in texts])


def model_folder(flags, name: str, side: str, seed: int) -> pathlib.Path:
    return flags.work_dir / "models" / f"{name.replace(' ', '-')}-{side}-{seed}"


def task_run(flags, name: str, side: str, seed: int) -> dict:
    from finetuning import our_run

    benchmark = tasks.BENCHMARKS[name]
    folder = model_folder(flags, name, side, seed)
    shutil.rmtree(folder, ignore_errors=True)
    start = {"teacher": flags.model, "plain": flags.work_dir / "plain"}.get(
        side, flags.work_dir / "general"
    )
    more = {"random_seed": seed} | ({} if side == "teacher" else json.loads(flags.students))
    if side == "distilled":
        more["teacher"] = str(model_folder(flags, name, "teacher", seed))
    options = tasks.make_options(benchmark, flags.work_dir / "data", flags.model, folder, **more)
    if side != "teacher":
        student_options = {
            "vocab_file": None,
            "bert_config_file": None,
            "init_checkpoint": None,
            "model": str(start),
        }
        options = type(options)(**vars(options) | student_options)
    row = our_run(benchmark, options)
    if side != "teacher":
        shutil.rmtree(folder)
    students = {} if side == "teacher" or flags.students == SAME else {"students": flags.students}
    return {"general_updates": flags.general_updates} | students | row


def print_tables(rows: list[dict]):
    print_tasks(rows)
    print_vectors(rows)


def print_vectors(rows: list[dict]):
    """Prints the means over the seeds, and of all sets the share of the encoder's mean."""
    side_results = {
        side: [row["results"] for row in rows if (row["task"], row["side"]) == (VECTORS, side)]
        for side in ALL
    }
    if not side_results[SIDES[0]]:
        return
    print(
        f"\n| vectors | {' | '.join(VECTOR_SETS)} | mean | share of the teacher "
        f"|\n|---{'|--:' * 6}|"
    )
    means = {}
    for side, seed_results in side_results.items():
        if seed_results:
            set_means = [statistics.mean(each[one] for each in seed_results) for one in VECTOR_SETS]
            means[side] = statistics.mean(set_means)
            cells = [f"{value:.1f}" for value in (*set_means, means[side])]
            print(
                f"| {side}, {len(seed_results)} | {' | '.join(cells)} | "
                f"{means[side] / means['teacher']:.1%} |"
            )


def print_tasks(rows: list[dict]):
    for students in dict.fromkeys(row.get("students", SAME) for row in rows):
        print_students(
            [
                row
                for row in rows
                if row["side"] == "teacher" or row.get("students", SAME) == students
            ]
        )


def print_students(rows: list[dict]):
    """Prints a line for each task that has at least two runs of each side."""
    print(
        "\n| task | metric | seeds | teacher, 6 layers | plain, 3 layers | distilled, 3 layers ",
        end="",
    )
    print(
        "| share of the teacher | above plain, standard errors |\n|---|---|--:|--:|--:|--:|--:|--:|"
    )
    for name in TASKS:
        benchmark = tasks.BENCHMARKS[name]
        scale = 1.0 if benchmark.is_percentage else 100.0
        values = {
            side: [
                scale * row["results"][benchmark.metric]
                for row in rows
                if (row["task"], row["side"]) == (name, side)
            ]
            for side in SIDES
        }
        if min(map(len, values.values())) < 2:
            continue
        means = {side: statistics.mean(side_values) for side, side_values in values.items()}
        error = (
            sum(statistics.variance(values[side]) / len(values[side]) for side in SIDES[1:]) ** 0.5
        )
        cells = [f"{means[side]:.1f} ± {statistics.stdev(values[side]):.1f}" for side in SIDES]
        cells += [
            f"{means['distilled'] / means['teacher']:.1%}",
            f"{(means['distilled'] - means['plain']) / error:+.1f}",
        ]
        print(
            f"| {name} | {benchmark.metric.removeprefix('eval_')} | {len(values['teacher'])} | "
            f"{' | '.join(cells)} |"
        )
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, help="folder with corpus, glue and squad"
    )
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="Hugging Face folder of an encoder"
    )
    parser.add_argument(
        "--work_dir", type=pathlib.Path, required=True, help="folder for models and prepared data"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, required=True, help="JSON lines file of the runs"
    )
    parser.add_argument(
        "--general_updates", type=int, default=2000, help="of the distillation on Wikipedia"
    )
    parser.add_argument("--tasks", nargs="+", choices=(*TASKS, VECTORS), default=TASKS)
    parser.add_argument("--sides", nargs="+", choices=ALL, default=SIDES)
    parser.add_argument(
        "--students", default=SAME, help="flags of the three layers on the tasks, as JSON"
    )
    parser.add_argument("--peer", type=pathlib.Path, help="an .onnx file")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if flags.one:
        print(
            json.dumps(one_run(flags, flags.tasks[0], flags.sides[0], flags.seeds[0])), flush=True
        )
        return
    flags.work_dir.mkdir(parents=True, exist_ok=True)
    tasks.prepare_data(flags.data, flags.work_dir / "data")
    make_students(flags, is_general=flags.tasks != [VECTORS] or "general" in flags.sides)
    lines = flags.output.read_text(encoding="utf-8").splitlines() if flags.output.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["task"], row["side"], row["seed"], row.get("students", SAME)) for row in rows}
    for name in flags.tasks:
        for seed in flags.seeds:
            for side in flags.sides:
                is_same = side == "teacher" or name == VECTORS
                is_done = (name, side, seed, SAME if is_same else flags.students) in done
                is_needed = side == "teacher" and name != VECTORS and "distilled" in flags.sides
                if is_done and not (
                    is_needed and not model_folder(flags, name, side, seed).exists()
                ):
                    continue
                command = [sys.executable, __file__, *sys.argv[1:], "--one", "--tasks", name]
                command += ["--sides", side, "--seeds", str(seed)]
                ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                print(ran.stdout.splitlines()[-1], flush=True)
                if not is_done:
                    rows.append(json.loads(ran.stdout.splitlines()[-1]))
                    with flags.output.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
    print_tables(rows)


if __name__ == "__main__":
    main()
