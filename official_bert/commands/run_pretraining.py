"""Pre-training and its evaluation: the runner of run_pretraining.py.

In: TFRecords of create_pretraining_data.py, a configuration, optionally a checkpoint. Out, in output_dir: the files of
a training job, and eval_results.txt.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import model_dir
from official_bert.config import LEFT_TO_RIGHT, BertConfig, read_config
from official_bert.data.pretraining.masks import DynamicMasks
from official_bert.data.pretraining.settings import InstanceSettings, InstanceVocabulary, masking_settings
from official_bert.data.records import pretraining_input
from official_bert.data.records.record_files import expand_records
from official_bert.features import pretraining_features, unmasked_features
from official_bert.io.errors import InputError
from official_bert.model_source import read_vocabulary, resolved
from official_bert.modeling import BertPretrainer
from official_bert.modeling.encoder import set_packing
from official_bert.options.shared import MaskingOptions
from official_bert.options.training import OF_EACH_PASS, OF_OWN_FILES, PretrainingOptions
from official_bert.tasks.pretraining.objective import LeftToRightObjective, PretrainingObjective
from official_bert.tokenization import load_vocab
from official_bert.training import distribution, loop, reporting, run_log, workers
from official_bert.training.batches import TrainingBatches
from official_bert.training.model_card import write_model_card
from official_bert.training.output_folder import own_folder
from official_bert.training.trainer import TrainingJob, log_input_files

_EVALUATION_SEED = 12345  # of the masks, so that evaluations of different runs compare
_FEW_FILES = 16  # of more, the first four are different ones in 94 % of all runs
UNSHOWN_WHILE_TRAINING = (
    "masked_lm_loss",
    "masked_lm_perplexity",
    "next_sentence_loss",
    "next_token_loss",
    "next_token_perplexity",
)


def run(options: PretrainingOptions):
    """Trains, evaluates, or both.

    Raises:
        InputError: an option or a file cannot be used.
    """
    options = resolved(options)
    if not (options.do_train or options.do_eval):
        raise InputError("nothing to do: give --do_train or --do_eval")
    strategy = distribution.make_strategy(options)
    # Both are checked first, so that a wrong evaluation batch size does not waste a training run.
    for batch_size, flag, is_used, num_parts in (
        (options.train_batch_size, "train_batch_size", options.do_train, options.num_accumulation_steps),
        (options.eval_batch_size, "eval_batch_size", options.do_eval, 1),
    ):
        if is_used:
            distribution.check_divides(batch_size, strategy.num_replicas_in_sync, flag, num_parts)
    _check_masking(options)
    config = read_config(options.bert_config_file, options.max_seq_length)
    train_files = expand_records(options.input_file, "input_file")
    eval_files = (
        expand_records(options.eval_input_file, "eval_input_file") if options.eval_input_file else train_files
    )
    vocabulary = read_vocabulary(options, config) if options.do_train else ()
    with own_folder(options.output_dir, strategy) as folder:
        own = dataclasses.replace(options, output_dir=folder)
        job = TrainingJob(
            own,
            options.output_dir,
            strategy,
            config,
            functools.partial(_build_model, options, config, strategy),
            options.num_train_steps,
            options.num_warmup_steps,
            has_own_input=options.file_order in OF_OWN_FILES,
        )
        run_log.write_run_record(
            folder,
            "run_pretraining",
            options,
            job.seed,
            strategy,
            job.num_updates,
            job.facts,
        )
        pretraining = Pretraining(own, job)
        if options.do_train:
            lengths = {name: getattr(options, name) for name in ("max_seq_length", "max_predictions_per_seq")}
            record = model_dir.TaskRecord("pretraining", "pretraining", lengths)
            model_dir.write(folder, config, *vocabulary, record)
            pretraining.train(train_files)
        if options.do_eval:
            pretraining.evaluate(eval_files)
        write_model_card(folder, "masked words and next sentences", options)


def _build_model(
    options: PretrainingOptions, config: BertConfig, strategy: tf.distribute.Strategy
) -> BertPretrainer:
    on_tpu = distribution.is_tpu(strategy)
    if options.packed_sequences and (on_tpu or options.jit_compile):
        other = "a TPU" if on_tpu else "--jit_compile"
        raise InputError(
            f"--packed_sequences: does not go with {other}, which compiles a step for one number of tokens; leave one "
            "of them out"
        )
    if config.num_layers_on_top:
        raise InputError(
            f"{options.bert_config_file}: has num_bilstm_layers={config.num_layers_on_top}, which is for fine-tuning; "
            "remove the field"
        )
    model = BertPretrainer(config, use_one_hot_embeddings=on_tpu)
    set_packing(model, options.packed_sequences)
    return model


class Pretraining:
    """Training and evaluation on record files."""

    def __init__(self, options: PretrainingOptions, job: TrainingJob):
        self.options, self.job = options, job
        self.features = pretraining_features(options.max_seq_length, options.max_predictions_per_seq)
        limits = pretraining_input.pretraining_limits(
            job.config.vocab_size, job.config.type_vocab_size, options.max_seq_length
        )
        if options.dynamic_masking:
            self.features = unmasked_features(options.max_seq_length)
        self.limits = {feature.name: limits[feature.name] for feature in self.features}

    def masks(self, seed: int) -> DynamicMasks | None:
        """Returns what masks the batches, None for records with masks."""
        options = self.options
        if not options.dynamic_masking:
            return None
        settings = InstanceSettings(
            max_seq_length=options.max_seq_length,
            dupe_factor=1,
            short_seq_prob=0.0,
            masked_lm_prob=options.masked_lm_prob,
            max_predictions_per_seq=options.max_predictions_per_seq,
            do_whole_word_mask=options.do_whole_word_mask,
        )
        vocabulary = InstanceVocabulary.of(load_vocab(options.vocab_file))
        return DynamicMasks(vocabulary, settings, masking_settings(options), seed)

    def objective(self, batch_size: int) -> PretrainingObjective | LeftToRightObjective:
        """Returns the objective that the direction of the model's attention allows."""
        if self.job.config.direction == LEFT_TO_RIGHT:
            return LeftToRightObjective(self.job.model, batch_size)
        return PretrainingObjective(self.job.model, batch_size, self.options.use_next_sentence)

    def train(self, train_files: list[str]):
        """Trains to `num_train_steps`."""
        job, batch_size = self.job, self.options.train_batch_size
        logging.info("***** Running training *****")
        logging.info("  Batch size = %d", batch_size)
        log_input_files(train_files)
        if self.options.file_order in OF_OWN_FILES:
            train_files, batch_size = _share_of_worker(train_files, batch_size, job.strategy)
        each_pass = self.options.file_order in OF_EACH_PASS
        _warn_of_files_read_twice(len(train_files), each_pass)
        dataset = pretraining_input.training_dataset(
            train_files,
            self.features,
            batch_size,
            job.seed,
            self.limits,
            self.masks(job.seed),
            shuffles_each_pass=each_pass,
        )
        key = pretraining_input.reading_key(train_files, self.features, batch_size, each_pass)
        objective = self.objective(self.options.train_batch_size)

        def metrics(sums, num_steps):
            found = objective.metrics(sums, num_steps)
            return found | perplexity(found)

        with pretraining_input.explaining_input_errors(train_files, self.features, self.limits):
            batches = TrainingBatches(
                dataset,
                job.strategy,
                job.steps_per_loop,
                job.seed,
                key,
                self.options.file_order in OF_OWN_FILES,
            )
            job.train(objective, batches, metrics, unshown=UNSHOWN_WHILE_TRAINING)

    def evaluate(self, eval_files: list[str]):
        """Evaluates the current weights and writes eval_results.txt."""
        options, strategy, batch_size = self.options, self.job.strategy, self.options.eval_batch_size
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", batch_size)
        log_input_files(eval_files)
        dataset = pretraining_input.evaluation_dataset(
            eval_files,
            self.features,
            batch_size,
            self.limits,
            repeat=options.max_eval_steps > 0,
            masks=self.masks(_EVALUATION_SEED),
        )
        objective = self.objective(batch_size)
        with pretraining_input.explaining_input_errors(eval_files, self.features, self.limits):
            if options.max_eval_steps:
                batches = _per_replica(strategy, dataset)
                sums = loop.evaluate(strategy, objective, batches, options.max_eval_steps)
                results = objective.metrics(sums, options.max_eval_steps)
            else:
                num_records = pretraining_input.count_records(eval_files)
                logging.info("  Num examples = %d", num_records)
                sums = _sums_of_all(strategy, objective, dataset, num_records)
                results = objective.metrics_of_all(sums, num_records)
        # The original's file has no perplexity, and programs read its lines.
        reporting.write_eval_results(
            options.output_dir, results, self.job.global_step, further=perplexity(results)
        )


def _check_masking(options: PretrainingOptions):
    """Refuses flags of masks that have no effect, and dynamic masks without a vocabulary."""
    if options.dynamic_masking:
        masking_settings(options)
        if options.vocab_file is None:
            raise InputError(
                "--dynamic_masking: needs the vocabulary that the records were made with; give --vocab_file"
            )
        return
    for field in dataclasses.fields(MaskingOptions):
        if getattr(options, field.name) != field.default:
            raise InputError(
                f"--{field.name}: the records have their masks; give --dynamic_masking with records that have none, or "
                "give the flag to create_pretraining_data.py"
            )


def _warn_of_files_read_twice(num_files: int, shuffles_each_pass: bool):
    """Warns where the original's order of files probably fills batches with the same records."""
    if 1 < num_files <= _FEW_FILES and not shuffles_each_pass:
        logging.warning(
            "In the original's order, of %d input files one may be read twice at the same time, so that batches hold "
            "records twice; --file_order=each_pass reads each record once in a pass",
            num_files,
        )


def _share_of_worker(
    train_files: list[str], batch_size: int, strategy: tf.distribute.Strategy
) -> tuple[list[str], int]:
    """Returns the files that this worker reads, and the number of its examples in a batch."""
    count = workers.num_workers(strategy)
    if len(train_files) < count:
        raise InputError(
            f"--file_order=own: {len(train_files)} input files are too few for {count} workers; leave the flag out, "
            "or make more files"
        )
    return train_files[workers.worker_index(strategy) :: count], batch_size // count


def perplexity(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the perplexity of the masked words or of the next tokens, the exponential of their mean loss."""
    return {
        f"{words}_perplexity": float(np.exp(metrics[f"{words}_loss"]))
        for words in ("masked_lm", "next_token")
        if f"{words}_loss" in metrics
    }


def _sums_of_all(strategy, objective, dataset, num_records: int) -> loop.Sums:
    """Sums the objective's values over every record once.

    The replicas share the full batches. A smaller last one may not divide among them, so one device has it.
    """
    num_full, num_left = divmod(num_records, objective.batch_size)
    batches = iter(dataset)
    sums = loop.evaluate(strategy, objective, _per_replica(strategy, batches), num_full)
    if num_left:
        of_rest = loop.evaluate(tf.distribute.get_strategy(), objective, batches, 1)
        sums = {name: sums.get(name, 0.0) + value for name, value in of_rest.items()}
    return sums


def _per_replica(strategy: tf.distribute.Strategy, dataset: tf.data.Dataset):
    for batch in dataset:
        yield distribution.split_over_replicas(strategy, batch, axis=0)
