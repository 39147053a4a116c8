"""Hostile command lines: flags that contradict each other, or whose values nothing can be done with."""

from tests.hostile.rows import Row, check, model_flags, table

ROWS = [
    Row(
        "nothing to do",
        "run_classifier.py",
        lambda folder: [
            *model_flags(folder),
            "--task_name=tsv",
            f"--data_dir={folder}",
            f"--output_dir={folder}/out",
        ],
        says=("nothing to do", "--do_train"),
    ),
    Row(
        "corpus that is not there",
        "create_pretraining_data.py",
        lambda folder: [
            f"--vocab_file={folder}/vocab.txt",
            "--input_file=no*.txt",
            f"--output_file={folder}/a.tfrecord",
        ],
        says=("--input_file", "no*.txt"),
    ),
]


@table(ROWS)
def test_flags(row, folder):
    check(row, folder)
