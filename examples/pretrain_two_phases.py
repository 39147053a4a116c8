#!/usr/bin/env python3
"""Pre-trains as the paper does: 90 % of the updates on sequences of 128 tokens, the rest on 512,
with one command.

In: a text, a vocabulary and a configuration. Out, in --output_dir: `records-128` and `records-512`,
the training of the first phase in `phase1`, and that of the second, which starts from its weights,
in `phase2`.

    python examples/pretrain_two_phases.py --input_file='corpus/*.txt' --vocab_file=vocab.txt \\
      --bert_config_file=bert_config.json --output_dir=model [--num_train_steps=100000] \\
      [--FLAG_OF_run_pretraining=...]

Attention to 512 tokens costs four times as much a token as to 128, and only the position embeddings
need it (Devlin et al., 2019, appendix A.2). The script prints every command before it runs it. The
same command again continues after a stop: it keeps records that are complete, and each phase
resumes from its newest checkpoint. Flags that the script does not have, such as --dtype or
--distribution_strategy, go to both trainings.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_SHARE = 0.9
WARMUP_SHARE = 0.1  # of each phase: the original's 10,000 of 100,000 updates
PREDICTIONS_SHARE = 0.15625  # 20 of 128 tokens and 80 of 512; about 15 % of them are masked


def main():
    arguments, others = parse_arguments()
    check_positions(arguments)
    output = pathlib.Path(arguments.output_dir)
    first_steps = round(FIRST_SHARE * arguments.num_train_steps)
    phases = (
        (
            "phase1",
            arguments.max_seq_length,
            arguments.train_batch_size,
            first_steps,
            arguments.learning_rate,
        ),
        (
            "phase2",
            arguments.phase2_max_seq_length,
            arguments.phase2_train_batch_size or arguments.train_batch_size,
            arguments.num_train_steps - first_steps,
            arguments.phase2_learning_rate or arguments.learning_rate,
        ),
    )
    for _, length, *_ in phases:  # both before the first phase, which may take weeks
        make_records(arguments, output / f"records-{length}", length)
    start = []
    for name, length, batch_size, num_steps, rate in phases:
        run(
            "run_pretraining.py",
            f"--input_file={output}/records-{length}/train-?????-of-?????",
            f"--output_dir={output / name}",
            f"--bert_config_file={arguments.bert_config_file}",
            f"--vocab_file={arguments.vocab_file}",
            "--do_train=True",
            # Of few files, the original's order may read one twice at the same time.
            "--file_order=each_pass",
            f"--max_seq_length={length}",
            f"--max_predictions_per_seq={predictions(length)}",
            f"--train_batch_size={batch_size}",
            f"--num_train_steps={num_steps}",
            f"--num_warmup_steps={round(WARMUP_SHARE * num_steps)}",
            f"--learning_rate={rate}",
            *start,
            *others,
        )
        start = [f"--init_checkpoint={output / name}"]
    print(f"\nThe model is in {output}/phase2.")


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Returns the arguments of this script, and the flags for run_pretraining.py."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add("--input_file", required=True, help="the text: files or patterns, separated by commas")
    add("--vocab_file", required=True)
    add("--bert_config_file", required=True)
    add("--output_dir", required=True)
    add("--num_train_steps", type=int, default=100000, help="the updates of both phases together")
    add("--train_batch_size", type=int, default=256)
    add("--phase2_train_batch_size", type=int, help="default: --train_batch_size")
    add("--learning_rate", type=float, default=1e-4)
    add("--phase2_learning_rate", type=float, help="default: --learning_rate")
    add("--max_seq_length", type=int, default=128)
    add("--phase2_max_seq_length", type=int, default=512)
    add(
        "--dupe_factor", type=int, default=5, help="the passes over the text, each with other masks"
    )
    add("--num_workers", type=int, default=1, help="the processes that make the records")
    arguments, others = parser.parse_known_args()
    if arguments.num_train_steps < 10:
        parser.error("--num_train_steps: give at least 10, so that each phase has an update")
    if arguments.max_seq_length == arguments.phase2_max_seq_length:
        parser.error("--phase2_max_seq_length: must differ from --max_seq_length")
    return arguments, others


def check_positions(arguments: argparse.Namespace):
    """Refuses, before the first phase, a configuration whose position table is too short for the
    second.
    """
    config = json.loads(pathlib.Path(arguments.bert_config_file).read_text(encoding="utf-8"))
    positions = config.get("max_position_embeddings", 512)
    longest = max(arguments.max_seq_length, arguments.phase2_max_seq_length)
    if positions < longest:
        sys.exit(
            f"{sys.argv[0]}: {arguments.bert_config_file}: max_position_embeddings is {positions}, "
            f"and the sequences have up to {longest} tokens; raise it, or give a shorter "
            "--phase2_max_seq_length"
        )


def predictions(length: int) -> int:
    """Returns the number of masked positions that a sequence has room for."""
    return max(1, round(PREDICTIONS_SHARE * length))


def make_records(arguments: argparse.Namespace, folder: pathlib.Path, length: int):
    """Makes the records of a phase, unless they are complete, which their manifest says."""
    if (folder / "train.manifest.json").exists():
        print(f"{folder} holds the records already; delete it to make them of another text.")
        return
    folder.mkdir(parents=True, exist_ok=True)
    run(
        "create_pretraining_data.py",
        "--generator=sharded",
        f"--input_file={arguments.input_file}",
        f"--output_file={folder}/train",
        f"--vocab_file={arguments.vocab_file}",
        f"--max_seq_length={length}",
        f"--max_predictions_per_seq={predictions(length)}",
        f"--dupe_factor={arguments.dupe_factor}",
        f"--num_workers={arguments.num_workers}",
    )


def run(script: str, *flags: str):
    """Prints a command as a user would type it, runs it, and exits with its status if it fails."""
    print("\n$ python " + " \\\n    ".join([script, *map(shlex.quote, flags)]), flush=True)
    status = subprocess.run([sys.executable, str(ROOT / script), *flags]).returncode
    if status:
        sys.exit(status)


if __name__ == "__main__":
    main()
