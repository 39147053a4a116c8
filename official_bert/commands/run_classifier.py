"""Fine-tuning, evaluation and prediction of a text classifier or of a user's task: the runner of run_classifier.py.

In: a task's files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: the files of a fine-tuning run, and
test_results.tsv or the prediction files of the user's task.
"""

from official_bert.fine_tuning.finetuner import Score
from official_bert.fine_tuning.run import fine_tune
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.tasks import registry


def run(options: ClassificationOptions) -> Score | None:
    """Trains, evaluates and predicts, in this order, or runs a search over such runs.

    Returns:
        The score on the first dev set, if it was evaluated.

    Raises:
        InputError: an option or a file cannot be used.
    """
    return fine_tune(options, options.task_name, "run_classifier", family=registry.CLASSIFICATION)
