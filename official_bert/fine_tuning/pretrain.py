"""Pre-training and its evaluation, from the flags to the results, for run_pretraining.py."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from official_bert import model_dir
from official_bert.config import BertConfig
from official_bert.data.records.record_files import (
    check_records_vocabulary,
    for_each,
    sizes_and_times,
)
from official_bert.fine_tuning.plugin import TrainingPlugin, TrainingRun, make_plugin
from official_bert.io.errors import InputError
from official_bert.model_source import resolve
from official_bert.options.fields import format_flag, list_typed_flags
from official_bert.options.former_flags import is_former_ramp, upgrade_flags
from official_bert.options.training import EACH_PASS_ORDERS, WORKER_ORDERS, PretrainingOptions
from official_bert.tasks import registry
from official_bert.tasks.base import DataFiles
from official_bert.tasks.pretraining.baselines import Baselines
from official_bert.tasks.pretraining.objective import (
    LeftToRightObjective,
    PretrainingObjective,
    perplexity,
)
from official_bert.tasks.pretraining.task import PretrainingTask, RecordSet
from official_bert.tokenization import FullTokenizer, load_vocab
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.training import distribution, loop, reporting, run_log, starting_point
from official_bert.training.batches import HostBatches, RecordBatches
from official_bert.training.calls import Ramp
from official_bert.training.flops import training_flops
from official_bert.training.plan import TrainPlan
from official_bert.training.trainer import Trainer
from official_bert.training.workers import Workers, output_folder

_EVALUATION_SEED = 12345  # the seed of the masks, so that evaluations of different runs compare
_MAX_EXCESS = 0.05  # the largest excess of one worker's number of records over another's
_ROUNDING = 1e-9  # the error of a share of the updates as a decimal number
_FEW_FILES = 16  # with more files, the first four are different ones in 94 % of all runs


def pretrain(options: PretrainingOptions) -> None:
    """Pre-trains and evaluates a model, as the flags say.

    Args:
        options: the flags of run_pretraining.py.

    Raises:
        InputError: the flags do not fit each other or the files.
    """
    # Resolve the flags, and check them before anything is read.
    typed_options = options
    source = resolve(options)
    options = source.options
    if not (options.do_train or options.do_eval):
        raise InputError("nothing to do: give --do_train or --do_eval")
    starting_point.check_output_dir(source)
    _check_stop(options)
    ramp = _ramp(options)
    strategy = distribution.make_strategy(options)
    _check_batch_sizes(options, strategy.num_replicas_in_sync)
    task = registry.find("pretraining").make(vars(options))
    assert isinstance(task, PretrainingTask)
    config = source.config
    plugin = make_plugin("pretraining", options, config, task)

    # Open the record files.
    data_files = DataFiles(named={"train": options.input_file, "dev": options.eval_input_file})
    train, dev = (_open_records(task, data_files, name, options) for name in ("train", "dev"))
    records = [*train.files, *(dev.files if options.do_eval else ())]
    vocab_file = tokenizer_config = None
    if options.do_train:
        vocab_file, tokenizer_config = source.vocabulary(records)
    if options.vocab_file and not options.do_train:
        check_records_vocabulary(dev.files, options.vocab_file, load_vocab(options.vocab_file))
    if options.do_eval:
        _check_evaluation(options, config, train, dev)
    file_stats = sizes_and_times(train.files)
    contents = {
        "bert_config_file": config.to_dict(),
        "input_file": {name: size for name, (size, _) in file_stats.items()},
    }
    with output_folder(typed_options, Workers(strategy), contents) as folder:
        # Build the model.
        worker_options = dataclasses.replace(options, output_dir=folder)
        metadata: dict[str, object] = {
            run_log.TYPED_FLAGS: list_typed_flags(typed_options),
            "records": starting_point.record_statistics(file_stats),
        }
        if options.do_train:
            run = TrainingRun(
                options=worker_options,
                config=config,
                task=task,
                strategy=strategy,
                training_set=train,
                make_tokenizer=functools.partial(_make_tokenizer, vocab_file, tokenizer_config),
            )
            metadata.update(plugin.prepare(run))
        trainer = _make_trainer(worker_options, options.output_dir, strategy, config, task, plugin)
        if trainer.workers.is_chief and options.do_train and trainer.global_step:
            starting_point.warn_of_other_records(options, trainer.global_step, file_stats)

        # Train. Nothing is written before a record of each file has been read.
        batches = None
        if options.do_train:
            with train.explaining_errors(config):
                batches = record_batches(worker_options, trainer, train)
        metadata = trainer.run_metadata | metadata
        run_log.write_start(folder, options, trainer.seed, strategy, metadata)
        if batches is not None:
            record = model_dir.TaskRecord("pretraining", "pretraining", task.settings())
            model_dir.write(folder, config, vocab_file, tokenizer_config, record)
            objective = plugin.wrap_objective(task.objective(trainer.model))
            with train.explaining_errors(config):
                trainer.fit(objective, batches, ramp=ramp)
            plugin.finish(trainer)

        _evaluate_and_end(worker_options, trainer, task, dev, plugin)


def _evaluate_and_end(
    options: PretrainingOptions,
    trainer: Trainer,
    task: PretrainingTask,
    records: RecordSet,
    plugin: TrainingPlugin,
):
    """Evaluates with --do_eval. The chief then lets the extensions finish."""
    if options.do_eval:
        _evaluate(options, trainer, task, records)
    if trainer.workers.is_chief:
        plugin.end(options.output_dir)


def _check_stop(options: PretrainingOptions):
    if options.stop_at_step is not None and options.stop_at_step > options.num_train_steps:
        raise InputError(
            f"--stop_at_step={options.stop_at_step}: the training ends earlier, after "
            f"--num_train_steps={options.num_train_steps}; lower the first or raise the second"
        )


def _check_batch_sizes(options: PretrainingOptions, num_replicas: int):
    """Validates both batch sizes, so that a wrong one does not waste a training run."""
    if options.do_train:
        distribution.check_divides(
            options.train_batch_size,
            num_replicas,
            "train_batch_size",
            options.num_accumulation_steps,
        )
    if options.do_eval:
        distribution.check_divides(options.eval_batch_size, num_replicas, "eval_batch_size")


def _open_records(
    task: PretrainingTask, data_files: DataFiles, name: str, options: PretrainingOptions
) -> RecordSet:
    """Returns the record files of a set."""
    files = task.read(data_files, name)[""]
    return task.encode(files, None, options.max_seq_length, name)


def _make_trainer(
    options: PretrainingOptions,
    run_dir: str,
    strategy: tf.distribute.Strategy,
    config: BertConfig,
    task: PretrainingTask,
    plugin: TrainingPlugin,
) -> Trainer:
    """Builds the model and loads its weights."""
    is_on_tpu = distribution.is_tpu(strategy)

    def build_model() -> keras.Model:
        return plugin.adapt_model(task.build_model(config, use_one_hot_embeddings=is_on_tpu))

    plan = TrainPlan(
        run_dir=run_dir,
        build_model=build_model,
        num_train_steps=options.num_train_steps,
        num_warmup_steps=options.num_warmup_steps,
        weights=plugin.weight_plan(),
        stop_at_step=options.stop_at_step,
        example_flops=training_flops(
            config, 1, options.max_seq_length, options.max_predictions_per_seq
        ),
        max_train_hours=options.max_train_hours,
        reads_worker_files=options.file_order in WORKER_ORDERS,
    )
    trainer = Trainer(options, strategy, config, plan)
    plugin.check_weights(trainer)
    return trainer


def _ramp(options: PretrainingOptions) -> Ramp:
    """Reads --train_batch_size_ramp and --train_batch_size_boundaries."""
    sizes = options.train_batch_size_ramp or []
    shares = options.train_batch_size_boundaries or []
    ramp_flag = format_flag("train_batch_size_ramp", sizes)
    if is_former_ramp(sizes):
        flags = upgrade_flags({"train_batch_size_ramp": sizes})
        replacement = " ".join(format_flag(name, value) for name, value in flags.items())
        raise InputError(f"{ramp_flag}: the sizes and their boundaries are now {replacement}")
    if len(shares) != len(sizes):
        raise InputError(
            f"{ramp_flag}: has {len(sizes)} sizes, and --train_batch_size_boundaries "
            f"{len(shares)} shares; give each size the share of the updates after which it begins"
        )
    multiples = [1]
    starts = [0]
    for size, share in zip(sizes, shares, strict=True):
        multiple = _find_multiple(size, options.train_batch_size)
        start = _find_start(share, options.num_train_steps)
        is_later = starts[-1] < start < options.num_train_steps
        if multiple <= multiples[-1]:
            raise InputError(
                f"{ramp_flag}: {size!r} must be a larger multiple of --train_batch_size, here "
                f"{options.train_batch_size}, than the size before"
            )
        if not is_later:
            raise InputError(
                f"{format_flag('train_batch_size_boundaries', shares)}: {share!r} must be a share "
                "of the updates, at least an update after the one before and before the end"
            )
        multiples.append(multiple)
        starts.append(start)
    return Ramp(tuple(starts), tuple(multiples))


def _find_multiple(size: str, batch_size: int) -> int:
    """Returns how many batches a larger batch has; 0 if it is no multiple or no number."""
    try:
        multiple, remainder = divmod(int(size), batch_size)
    except ValueError:
        return 0
    return 0 if remainder else multiple


def _find_start(share: str, num_train_steps: int) -> int:
    """Returns the update after a share of all updates; 0 if the share is no number."""
    try:
        return math.ceil(float(share) * num_train_steps - _ROUNDING)
    except (ValueError, OverflowError):
        return 0


def _make_tokenizer(
    vocab_file: str | None, settings: TokenizerConfig | None
) -> FullTokenizer | None:
    """Makes the tokenizer of the records; None if nothing says which vocabulary they have."""
    if vocab_file is None:
        return None
    assert settings is not None  # they come with the vocabulary
    # The case of records is unknown (None) if they do not say whether text was lower-cased.
    do_lower_case = settings.do_lower_case
    return FullTokenizer(vocab_file, do_lower_case, strip_accents=settings.strip_accents)


def record_batches(
    options: PretrainingOptions, trainer: Trainer, records: RecordSet
) -> RecordBatches | HostBatches:
    """Logs the input of a training, and returns its batches.

    With a --file_order in which workers read separate files, they are the batches of this worker's
    files; on a TPU slice, each host reads its files.

    Args:
        options: the flags of the run.
        trainer: the trainer, for its devices, workers, seed and configuration of the model.
        records: the training records of all workers.

    Raises:
        InputError: workers read separate files, and there are too few of these, their sizes are too
            unequal, or the hosts of a TPU slice would have to draw masks.
    """
    strategy = trainer.strategy
    batch_size = options.train_batch_size
    each_pass = options.file_order in EACH_PASS_ORDERS
    splits_files = options.file_order in WORKER_ORDERS
    _log_input("Running training", batch_size, records)
    hosts = []
    host_records = {}
    if splits_files:
        hosts = list(dict.fromkeys(distribution.replica_hosts(strategy)))
        names = records.files
        count = len(hosts) or trainer.workers.count
        if len(names) < count:
            raise InputError(
                f"--file_order={options.file_order}: {len(names)} input files are too few for "
                f"{count} {'hosts' if hosts else 'workers'}; leave the flag out, or make more files"
            )
        shares = [dataclasses.replace(records, files=names[index::count]) for index in range(count)]
        records = shares[trainer.workers.index]
        # Without a TPU slice there are no hosts.
        host_records = dict(zip(hosts, shares, strict=False))
        check_shares(_count_shares(trainer.workers, records, host_records))
        batch_size //= count
    if 1 < len(records.files) <= _FEW_FILES and not each_pass:
        logging.warning(
            "In the original's order, of %d input files one may be read twice at the same time, so "
            "that batches hold records twice; --file_order=%seach_pass reads each record once in a "
            "pass",
            len(records.files),
            "own_" * splits_files,
        )
    settings = trainer.config, batch_size, trainer.seed, each_pass
    if hosts:
        readers = {
            host: functools.partial(share.training, *settings)
            for host, share in host_records.items()
        }
        return HostBatches(readers, strategy, trainer.seed)
    dataset, key = records.training(*settings)
    return RecordBatches(dataset, strategy, trainer.seed, key, splits_files)


def _count_shares(
    workers: Workers, records: RecordSet, host_records: Mapping[str, RecordSet]
) -> list[int]:
    """Returns the numbers of records of the hosts' files or, without hosts, of the workers' files.

    All of them count at the same time.
    """
    if not host_records:
        return workers.gather(records.count()).tolist()
    if any(records.masks for records in host_records.values()):
        raise InputError(
            "--dynamic_masking: the hosts of a TPU slice that read files of their own cannot draw "
            "masks, for which they would need Python; leave out --file_order, or make records with "
            "masks"
        )

    def count(host: str) -> int:
        with tf.device(host):
            return host_records[host].count()

    return for_each(count, list(host_records))


def check_shares(counts: Sequence[int]) -> None:
    """Validates that the files of all workers have about equally many records.

    Each worker reads only its files. A small difference is only a warning.

    Args:
        counts: the number of records of the files of each worker or, on a TPU slice, of each host.

    Raises:
        InputError: the numbers differ too much.
    """
    smallest = min(counts)
    largest = max(counts)
    excess = largest / max(1, smallest) - 1
    sentence = (
        f"--file_order: the files of one worker have {smallest} records and those of another "
        f"{largest}, so that some records are read {excess:.1%} more often than others"
    )
    if excess > _MAX_EXCESS:
        raise InputError(
            f"{sentence}; make files of equal size, whose number is a multiple of {len(counts)}"
        )
    if excess:
        logging.warning("%s", sentence)


def _log_input(title: str, batch_size: int, records: RecordSet):
    logging.info("***** %s *****", title)
    logging.info("  Batch size = %d", batch_size)
    logging.info("*** Input Files ***")
    for name in records.files:
        logging.info("  %s", name)


def _evaluate(
    options: PretrainingOptions, trainer: Trainer, task: PretrainingTask, records: RecordSet
):
    strategy = trainer.strategy
    batch_size = options.eval_batch_size
    num_steps = options.max_eval_steps
    _log_input("Running evaluation", batch_size, records)
    dataset = records.evaluation(trainer.config, batch_size, _EVALUATION_SEED, repeat=num_steps > 0)
    objective = task.objective(trainer.model, batch_size)
    is_left_to_right = isinstance(objective, LeftToRightObjective)
    baselines = Baselines(trainer.config.vocab_size, is_left_to_right)
    batches = baselines.count(dataset)
    with records.explaining_errors(trainer.config):
        if num_steps:
            sums = loop.evaluate(strategy, objective, _per_replica(strategy, batches), num_steps)
            results = objective.metrics(sums, num_steps)
        else:
            num_records = records.count()
            logging.info("  Num examples = %d", num_records)
            sums = _sum_all_records(strategy, objective, batches, num_records)
            results = objective.set_metrics(sums, num_records)
    # The original's file has no perplexity, and programs read its lines.
    reporting.write_eval_results(
        options.output_dir, results, trainer.global_step, further=perplexity(results)
    )
    logging.info("%s", baselines.describe())


def _check_evaluation(
    options: PretrainingOptions, config: BertConfig, train: RecordSet, dev: RecordSet
):
    """Validates the records of an evaluation.

    A warning says if the model is trained on them, now or earlier.
    """
    dev.check(config)
    is_trained = options.do_train and not set(train.files).isdisjoint(dev.files)
    if not options.do_train:
        evaluated = options.eval_input_file or options.input_file
        for line in run_log.trainings(options.output_dir):
            flags = line.get("flags") or {}
            is_trained |= not set(evaluated).isdisjoint(flags.get("input_file") or ())
    if is_trained:
        logging.warning(
            "The evaluation reads the records of the training, so its metrics are too good; give "
            "--eval_input_file with other records"
        )


def _sum_all_records(
    strategy: tf.distribute.Strategy,
    objective: PretrainingObjective | LeftToRightObjective,
    batches: Iterator[dict],
    num_records: int,
) -> loop.Sums:
    """Sums the objective's values over every record once.

    The replicas share the full batches. A smaller last batch may not divide among them, so one
    device computes it.
    """
    num_full, num_rest = divmod(num_records, objective.batch_size)
    sums = loop.evaluate(strategy, objective, _per_replica(strategy, batches), num_full)
    if num_rest:
        rest_sums = loop.evaluate(tf.distribute.get_strategy(), objective, batches, 1)
        sums = {name: sums.get(name, 0.0) + value for name, value in rest_sums.items()}
    return sums


def _per_replica(strategy: tf.distribute.Strategy, batches: Iterator[dict]) -> Iterator[dict]:
    for batch in batches:
        yield distribution.split_over_replicas(strategy, batch, axis=0)
