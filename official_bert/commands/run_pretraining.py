"""Pre-training and its evaluation: the runner of run_pretraining.py.

In: TFRecords of create_pretraining_data.py, a configuration, optionally a checkpoint. Out, in output_dir: the files of
a training, and eval_results.txt.
"""

from official_bert.fine_tuning.pretrain import pretrain
from official_bert.options.training import PretrainingOptions


def run(options: PretrainingOptions):
    """Trains, evaluates, or both.

    Raises:
        InputError: an option or a file cannot be used.
    """
    pretrain(options)
