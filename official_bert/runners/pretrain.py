"""Pre-training and its evaluation: the job of run_pretraining.py.

In: TFRecords of create_pretraining_data.py, a configuration, maybe a checkpoint. Out, in output_dir: checkpoints
under the original's names, eval_results.txt, TensorBoard events, and a record of the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from official_bert import files
from official_bert.checkpoints import (
    CheckpointManager,
    load_checkpoint,
    log_trainable_variables,
    named_variables,
)
from official_bert.config import BertConfig
from official_bert.data import pretraining_input
from official_bert.errors import InputError
from official_bert.features import pretraining_features
from official_bert.modeling import BertPretrainer
from official_bert.optimization import EXCLUDED_FROM_DECAY, AdamWeightDecayOptimizer, WarmupLinearDecay
from official_bert.options.pretraining import PretrainingOptions
from official_bert.tasks.pretraining import PretrainingObjective
from official_bert.training import distribution, loop, reporting, rng
from official_bert.training.batches import TrainingBatches
from official_bert.training.step import TrainingStep

WEIGHT_DECAY_RATE = 0.01
SHOWN_WHILE_TRAINING = ("loss", "masked_lm_accuracy", "next_sentence_accuracy")


def run(options: PretrainingOptions):
    """Trains, evaluates, or both.

    Raises:
        InputError: options or files that cannot be used.
    """
    if not (options.do_train or options.do_eval):
        raise InputError("at least one of --do_train and --do_eval must be True")
    strategy = distribution.make_strategy(options)
    config = BertConfig.from_json_file(options.bert_config_file)
    if options.max_seq_length > config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={options.max_seq_length}: the model of {options.bert_config_file} was made for "
            f"sequences up to max_position_embeddings={config.max_position_embeddings}"
        )
    train_files = files.expand(options.input_file, "input_file")
    eval_files = (
        files.expand(options.eval_input_file, "eval_input_file") if options.eval_input_file else train_files
    )
    files.make_folder(options.output_dir)

    job = Pretraining(options, config, strategy)
    reporting.write_run_record(options.output_dir, "run_pretraining", options, job.seed, strategy)
    if options.do_train:
        job.train(train_files)
    if options.do_eval:
        job.evaluate(eval_files)


class Pretraining:
    """A model with its optimizer and checkpoints, ready to train or to be evaluated."""

    def __init__(self, options: PretrainingOptions, config: BertConfig, strategy: tf.distribute.Strategy):
        """Builds everything in the strategy's scope and goes to the newest checkpoint, if there is one.

        Args:
            options: of the script.
            config: of the model.
            strategy: whose replicas share each batch.
        """
        self.options, self.config, self.strategy = options, config, strategy
        self.features = pretraining_features(options.max_seq_length, options.max_predictions_per_seq)
        self.limits = pretraining_input.pretraining_limits(
            config.vocab_size, config.type_vocab_size, options.max_seq_length
        )
        self.manager = CheckpointManager(options.output_dir, {}, options.keep_checkpoint_max)
        self.seed = self._choose_seed()
        rng.seed_initial_weights(self.seed)
        with strategy.scope():
            self.model = BertPretrainer(config, use_one_hot_embeddings=options.use_tpu)
            self.weights = {name: v.value for name, v in named_variables(self.model).items()}
            schedule = WarmupLinearDecay(
                options.learning_rate, options.num_train_steps, options.num_warmup_steps
            )
            self.optimizer = AdamWeightDecayOptimizer(
                schedule,
                weight_decay_rate=WEIGHT_DECAY_RATE,
                exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
            )
            self.optimizer.build(self.weights.items())
        step_count = {"global_step": self.optimizer.global_step}
        self.manager.variables = self.weights | self.optimizer.slots | step_count
        self._load_initial_weights()

    def train(self, train_files: list[str]):
        """Trains to `num_train_steps`, going on where the newest checkpoint of output_dir stopped."""
        options = self.options
        batches = self._resumed_batches(train_files)
        first_step = int(self.optimizer.global_step.numpy())
        if first_step >= options.num_train_steps:
            logging.info(
                "Skipping training: %s already holds step %d, and --num_train_steps=%d is the total",
                options.output_dir,
                first_step,
                options.num_train_steps,
            )
            return
        logging.info("***** Running training *****")
        logging.info("  Batch size = %d", options.train_batch_size)
        _log_files(train_files)
        with files.replacing(os.path.join(options.output_dir, "bert_config.json")) as file:
            file.write(self.config.to_json_string())

        objective = PretrainingObjective(self.model, options.train_batch_size)
        with self.strategy.scope():
            weights = list(self.weights.values())
            step = TrainingStep(objective, weights, self.optimizer, self.seed, options.jit_compile)
        reporter = reporting.ProgressReporter(
            options.output_dir, options.num_train_steps, options.train_batch_size, first_step
        )

        def report(step_number, num_steps, sums):
            metrics = objective.metrics(sums, num_steps)
            shown = {name: metrics[name] for name in SHOWN_WHILE_TRAINING}
            reporter.report(step_number, shown | {"learning_rate": float(self.optimizer.current_rate())})

        def save(step_number):
            self.manager.save(step_number, batches.state)

        if self.manager.latest is None:
            save(first_step)
        with pretraining_input.explaining_input_errors(train_files, self.features, self.limits):
            loop.train(
                run_steps=reporter.watching(loop.compiled_steps(self.strategy, step)),
                draw=batches.draw,
                first_step=first_step,
                num_train_steps=options.num_train_steps,
                steps_per_loop=self._steps_per_loop(),
                log_every_steps=options.log_every_steps,
                save_every_steps=options.save_checkpoints_steps,
                report=report,
                save=save,
            )

    def _resumed_batches(self, train_files: list[str]) -> TrainingBatches:
        """The training batches; they and every variable are where the newest checkpoint left them."""
        batch_size = self.options.train_batch_size
        distribution.check_divides(batch_size, self.strategy.num_replicas_in_sync, "train_batch_size")
        key = pretraining_input.reading_key(train_files, self.features, batch_size)
        batches = TrainingBatches(
            pretraining_input.training_dataset(
                train_files, self.features, batch_size, self.seed, self.limits
            ),
            self.strategy,
            self._steps_per_loop(),
            self.seed,
            key,
        )
        fits = self.manager.saved_input_value("key") in (None, key)
        if not fits:
            logging.warning("Other input files, lengths or batch size than before: the input starts anew")
        self.manager.restore(batches.state if fits else None)
        return batches

    def evaluate(self, eval_files: list[str]):
        """Evaluates the weights as they are and writes eval_results.txt."""
        options, batch_size = self.options, self.options.eval_batch_size
        distribution.check_divides(batch_size, self.strategy.num_replicas_in_sync, "eval_batch_size")
        dataset = pretraining_input.evaluation_dataset(eval_files, self.features, batch_size, self.limits)
        logging.info("***** Running evaluation *****")
        logging.info("  Batch size = %d", batch_size)
        _log_files(eval_files)
        objective = PretrainingObjective(self.model, batch_size)
        batches = self._per_replica(iter(dataset))
        with pretraining_input.explaining_input_errors(eval_files, self.features, self.limits):
            sums = loop.evaluate(self.strategy, objective, batches, options.max_eval_steps)
        results = objective.metrics(sums, options.max_eval_steps)
        step = int(self.optimizer.global_step.numpy())
        reporting.write_eval_results(options.output_dir, results, step)

    def _per_replica(self, host_batches: Iterator[dict]) -> Iterator[dict]:
        for batch in host_batches:
            yield distribution.split_over_replicas(self.strategy, batch, axis=0)

    def _steps_per_loop(self) -> int:
        """The most updates that one call into TensorFlow makes."""
        options = self.options
        on_tpu = distribution.strategy_name(options) == "tpu"
        wanted = options.iterations_per_loop if on_tpu else options.steps_per_loop
        return min(wanted, options.log_every_steps, options.save_checkpoints_steps, options.num_train_steps)

    def _choose_seed(self) -> int:
        saved = self.manager.saved_input_value("seed")
        if saved is not None and self.options.random_seed not in (None, saved):
            logging.warning(
                "--random_seed=%d is not used: the run goes on with its seed", self.options.random_seed
            )
        seed = rng.choose_seed(self.options.random_seed) if saved is None else saved
        logging.info("Random seed = %d", seed)
        return seed

    def _load_initial_weights(self):
        """A checkpoint in output_dir beats --init_checkpoint, as in the original."""
        options, initialized = self.options, []
        source = self.manager.latest or options.init_checkpoint
        if source:
            initialized = load_checkpoint(self.model, source).matched
        if self.manager.latest:
            if options.init_checkpoint:
                logging.info("--init_checkpoint is not used: %s goes on from %s", options.output_dir, source)
            self.optimizer.global_step.assign(self.manager.latest_step())
        log_trainable_variables(self.model, initialized)


def _log_files(names: list[str]):
    logging.info("*** Input Files ***")
    for name in names:
        logging.info("  %s", name)
