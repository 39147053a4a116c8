"""Fine-tuning, evaluation and prediction of multiple choice: the runner of run_swag.py.

In: files of SWAG or CODAH, a vocabulary, a configuration, a checkpoint. Out, in output_dir: the files of a fine-tuning
run, and test_results.tsv.
"""

from official_bert.fine_tuning.finetuner import Score
from official_bert.fine_tuning.run import fine_tune
from official_bert.options.fine_tuning import ChoiceOptions


def run(options: ChoiceOptions) -> Score | None:
    """Trains, evaluates and predicts, in this order, or runs a search over such runs.

    Returns:
        The score on the dev set, if it was evaluated.

    Raises:
        InputError: an option or a file cannot be used.
    """
    return fine_tune(options, options.task_name, "run_swag")
