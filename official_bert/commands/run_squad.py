"""Fine-tuning and prediction on SQuAD: the runner of run_squad.py.

In: SQuAD files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: the files of a fine-tuning run,
predictions.json, nbest_predictions.json, null_odds.json, logits.npz, eval_results.txt.
"""

from official_bert.fine_tuning.finetuner import Score
from official_bert.fine_tuning.run import fine_tune
from official_bert.options.fine_tuning import SquadOptions


def run(options: SquadOptions) -> Score | None:
    """Trains and predicts, in this order, or runs a search over such runs.

    Returns:
        The score on --predict_file, if it has answers.

    Raises:
        InputError: an option or a file cannot be used.
    """
    return fine_tune(options, "squad", "run_squad")
