"""Fine-tuning, evaluation and prediction of tags: the job of run_ner.py.

In: CoNLL's column files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every training job
leaves, labels.txt, eval_results.txt, predictions.conll.
"""

from __future__ import annotations

import os

from official_bert import files
from official_bert.data.conll import ConllFile, read_conll, write_predictions
from official_bert.errors import InputError
from official_bert.jobs.fine_tuning import (
    FineTuning,
    Score,
    check_task_flags,
    evaluates_during_training,
    log_prediction,
    read_model_files,
    set_path,
)
from official_bert.jobs.labels import LABELS_FILE, check_labels, read_labels, write_labels
from official_bert.jobs.search import search
from official_bert.options.tagging import TaggingOptions
from official_bert.tasks.tagging.task import EncodedSentences, TaggingTask
from official_bert.tasks.tagging.windows import conll_path, encoded_words, labels_of
from official_bert.training import distribution


def run(options: TaggingOptions) -> Score | None:
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

    train_file = _read(options, "train") if options.do_train else None
    labels = labels_of(train_file.sentences) if train_file else read_labels(options)
    if labels is None:
        raise InputError(
            f"no {LABELS_FILE} beside the checkpoint: give the --output_dir of a training run of this script as "
            "--init_checkpoint, or --do_train"
        )
    check_labels(options, labels)
    task = TaggingTask(labels)

    def encoded(source: ConllFile) -> EncodedSentences:
        arguments = (labels, options.max_seq_length, tokenizer, options.document_context)
        return EncodedSentences(source, encoded_words(source, *arguments))

    # All files are read before the training that they could stop in vain.
    train_set = encoded(train_file) if train_file else None
    evaluates = options.do_eval or evaluates_during_training(options)
    dev_set = encoded(_read(options, "dev")) if evaluates else None
    test_set = encoded(_read(options, "test")) if options.do_predict else None
    num_windows = len(train_set.words) if train_set else 0
    fine_tuning = FineTuning(options, config, strategy, task, num_windows, options.max_seq_length, "run_ner")
    if train_set:
        write_labels(options, labels)
        fine_tuning.train(
            train_set,
            options.shuffle_buffer_size or 0,
            dev_set=lambda: dev_set,
            eval_batch_size=options.eval_batch_size,
        )
    if options.do_eval:
        fine_tuning.evaluate(dev_set, options.eval_batch_size)
    if options.do_predict:
        log_prediction(len(test_set.words), options.predict_batch_size)
        outputs = fine_tuning.outputs(test_set, options.predict_batch_size)
        path = os.path.join(options.output_dir, "predictions.conll")
        write_predictions(path, test_set.source, task.predictions(test_set, outputs))
    fine_tuning.export("ner")
    return fine_tuning.score


def _read(options: TaggingOptions, set_name: str) -> ConllFile:
    return read_conll(set_path(options, set_name, conll_path), set_name != "test")
