"""Fine-tuning, evaluation and prediction of choices: the job of run_swag.py.

In: files of SWAG or CODAH, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every training job
leaves, eval_results.txt, test_results.tsv.
"""

from __future__ import annotations

import os

from official_bert import files
from official_bert.jobs.fine_tuning import (
    FineTuning,
    Score,
    check_task_flags,
    evaluates_during_training,
    log_prediction,
    read_model_files,
    set_path,
)
from official_bert.jobs.search import search
from official_bert.options.choice import ChoiceOptions
from official_bert.tasks.choice.examples import TASKS, EncodedChoices, encoded_choices
from official_bert.tasks.choice.task import ChoiceTask
from official_bert.training import distribution


def run(options: ChoiceOptions) -> Score | None:
    """Trains, evaluates and predicts, in this order; or makes a search of such runs.

    Returns:
        The score on the dev set, if it was evaluated.

    Raises:
        InputError: options or files that cannot be used.
    """
    if options.search:
        return search(options, run, {"do_eval": True, "do_predict": False})
    check_task_flags(options)
    strategy = distribution.make_strategy(options)
    config, tokenizer = read_model_files(options, options.max_seq_length)
    files.make_folder(options.output_dir)
    names = TASKS[options.task_name]

    def encoded(set_name: str) -> EncodedChoices:
        path = set_path(options, set_name, names.path)
        examples = names.read(path, set_name, set_name != "test")
        return encoded_choices(examples, options.max_seq_length, tokenizer)

    # All files are read before the training that they could stop in vain.
    train_set = encoded("train") if options.do_train else None
    evaluates = options.do_eval or evaluates_during_training(options)
    dev_set = encoded("dev") if evaluates else None
    test_set = encoded("test") if options.do_predict else None
    task = ChoiceTask()
    num_examples = len(train_set) if train_set else 0
    fine_tuning = FineTuning(
        options, config, strategy, task, num_examples, options.max_seq_length, "run_swag"
    )
    if train_set:
        fine_tuning.train(
            train_set,
            options.shuffle_buffer_size or 0,
            dev_set=lambda: dev_set,
            eval_batch_size=options.eval_batch_size,
        )
    if options.do_eval:
        fine_tuning.evaluate(dev_set, options.eval_batch_size)
    if options.do_predict:
        log_prediction(len(test_set), options.predict_batch_size)
        outputs = fine_tuning.outputs(test_set, options.predict_batch_size)
        task.write_predictions(os.path.join(options.output_dir, "test_results.tsv"), outputs)
    fine_tuning.export(options.task_name)
    return fine_tuning.score
