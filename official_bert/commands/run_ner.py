"""Fine-tuning, evaluation and prediction of tags: the runner of run_ner.py.

In: CoNLL's column files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: the files of a fine-tuning
run, and predictions.conll.
"""

from official_bert.fine_tuning.finetuner import Score
from official_bert.fine_tuning.run import fine_tune
from official_bert.options.fine_tuning import TaggingOptions


def run(options: TaggingOptions) -> Score | None:
    """Trains, evaluates and predicts, in this order, or runs a search over such runs.

    Returns:
        The score on the dev set, if it was evaluated.

    Raises:
        InputError: an option or a file cannot be used.
    """
    return fine_tune(options, "ner", "run_ner")
