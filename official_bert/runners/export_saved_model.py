"""Exports of checkpoints for servers: the job of export_saved_model.py.

In: a checkpoint with its configuration, vocabulary and labels. Out: the next version in export_dir.
"""

from __future__ import annotations

import dataclasses

from absl import logging

from official_bert.checkpoints import load_checkpoint, open_checkpoint
from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.jobs.fine_tuning import read_model_files
from official_bert.jobs.labels import LABELS_FILE, read_labels
from official_bert.options.classification import ClassificationOptions
from official_bert.options.export import ExportOptions
from official_bert.serving.saved_model import export_model
from official_bert.tasks import registry
from official_bert.tasks.base import Task
from official_bert.tasks.choice import examples
from official_bert.tasks.choice.task import ChoiceTask
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.tasks.squad.task import AnswerRules, SquadTask, TextRules
from official_bert.tasks.tagging.task import TaggingTask
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint


def run(options: ExportOptions):
    """Exports a checkpoint.

    Raises:
        InputError: options or files that cannot be used, or a checkpoint without the weights of the task.
    """
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    config, tokenizer = read_model_files(options, options.max_seq_length)
    task = _task(options, config, tokenizer)
    model = task.build_model(config, use_one_hot_embeddings=False)
    report = load_checkpoint(model, options.init_checkpoint)
    lacking = [name for name in report.missing if not name.startswith(task.untrained or ("-",))]
    if lacking:
        raise InputError(
            f"{report.path}: lacks {', '.join(lacking)}, which --task_name={options.task_name} needs; give a "
            "checkpoint that was trained on the task"
        )
    export_model(options, options.task_name, task, model, config)


def _task(options: ExportOptions, config: BertConfig, tokenizer: FullTokenizer) -> Task | PretrainingTask:
    name = options.task_name.lower()
    if name == "squad":
        return _squad(options)
    if name in examples.TASKS:
        return ChoiceTask()
    if name == "pretraining":
        return _pretrained(options, config, tokenizer)
    if registry.is_outside(options.task_name):
        outside = registry.load(options.task_name)
        if not isinstance(outside, DataProcessor):
            return outside
    # The classifier's options know how its processors are made and where the labels lie.
    fine_tuning = ClassificationOptions(
        data_dir="",
        output_dir="",
        task_name=options.task_name,
        bert_config_file=options.bert_config_file,
        vocab_file=options.vocab_file,
        init_checkpoint=options.init_checkpoint,
        labels=options.labels,
        multi_label=options.multi_label,
        regression=options.regression,
        text_b_column="1",  # whether the examples of tsv were pairs is not known: they may have been
    )
    labels = options.labels or read_labels(fine_tuning)
    if name == "ner":
        if not labels:
            raise InputError(
                f"no {LABELS_FILE} beside the checkpoint: give the --output_dir of a training run as "
                "--init_checkpoint, or --labels"
            )
        return TaggingTask(labels)
    if not options.regression:
        fine_tuning = dataclasses.replace(fine_tuning, labels=labels)
    processor = registry.make_processor(fine_tuning)
    known = processor.get_labels()
    if labels and list(known or ()) != labels:
        raise InputError(
            f"--task_name={options.task_name}: its labels are {', '.join(known or ['a score'])}, but those beside the "
            f"checkpoint are {', '.join(labels)}; name the task that it was trained on"
        )
    return ClassificationTask(processor, known)


def _squad(options: ExportOptions) -> SquadTask:
    if options.export_text and options.max_seq_length <= options.max_query_length + 3:
        raise InputError(
            f"--max_seq_length={options.max_seq_length}: must be greater than --max_query_length="
            f"{options.max_query_length} + 3"
        )
    rules = AnswerRules(
        n_best_size=options.n_best_size,
        max_answer_length=options.max_answer_length,
        do_lower_case=options.do_lower_case,
        version_2_with_negative=options.version_2_with_negative,
        strip_accents=options.strip_accents,
    )
    text_rules = TextRules(
        doc_stride=options.doc_stride,
        max_query_length=options.max_query_length,
        null_score_diff_threshold=options.null_score_diff_threshold,
        ranks_padding=not options.length_aware_batches,
    )
    return SquadTask(rules, text_rules=text_rules)


def _pretrained(options: ExportOptions, config: BertConfig, tokenizer: FullTokenizer) -> PretrainingTask:
    """A task of the heads that the checkpoint has; those that it lacks are named in the log."""
    held = open_checkpoint(options.init_checkpoint).shapes
    heads = {"bert/pooler": "pooled_output", "cls/predictions": "serving_masked"}
    has = [any(name.startswith(head) for name in held) for head in heads]
    for (head, left_out), is_there in zip(heads.items(), has, strict=True):
        if not is_there:
            logging.warning("%s has no %s: %s is left out", options.init_checkpoint, head, left_out)
    tokens = [tokenizer.inv_vocab.get(number, "") for number in range(config.vocab_size)]
    return PretrainingTask(tokens, *has)
