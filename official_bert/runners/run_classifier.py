"""Fine-tuning, evaluation and prediction of a text classifier, or of a task of the user's own: run_classifier.py's job.

In: a task's files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every fine-tuning leaves, and
test_results.tsv, or what the user's task writes.
"""

from official_bert.jobs.fine_tune import fine_tune
from official_bert.jobs.fine_tuning import Score
from official_bert.options.classification import ClassificationOptions
from official_bert.tasks import registry


def run(options: ClassificationOptions) -> Score | None:
    """Trains, evaluates and predicts, in this order; or makes a search of such runs.

    Returns:
        The score on the first dev set, if it was evaluated.

    Raises:
        InputError: options or files that cannot be used.
    """
    return fine_tune(options, options.task_name, "run_classifier", family=registry.CLASSIFICATION)
