"""Pre-training and its evaluation from the flags to the results: the skeleton of
run_pretraining.py.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import tensorflow as tf
from absl import logging

from official_bert import model_dir
from official_bert.data.records.record_files import (
    check_records_vocabulary,
    for_each,
    sizes_and_times,
)
from official_bert.fine_tuning.plugin import TrainingRun, make_plugin
from official_bert.io.errors import InputError
from official_bert.model_source import resolve
from official_bert.options.training import OF_EACH_PASS, OF_OWN_FILES, PretrainingOptions
from official_bert.tasks import registry
from official_bert.tasks.base import DataFiles
from official_bert.tasks.pretraining.objective import perplexity
from official_bert.tasks.pretraining.task import PretrainingTask, RecordSet
from official_bert.tokenization import FullTokenizer, load_vocab
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.training import distribution, loop, reporting, run_log, starting_point
from official_bert.training.batches import HostBatches, RecordBatches
from official_bert.training.calls import Ramp
from official_bert.training.plan import TrainPlan
from official_bert.training.trainer import Trainer
from official_bert.training.workers import Workers, output_folder

_EVALUATION_SEED = 12345  # of the masks, so that evaluations of different runs compare
_MOST_EXCESS = 0.05  # of the records of one worker over those of another
_ROUNDING = 1e-9  # of a share of updates
_FEW_FILES = 16  # of more, the first four are different ones in 94 % of all runs


def pretrain(options: PretrainingOptions):
    typed_options = options
    source = resolve(options)
    options = source.options
    if not (options.do_train or options.do_eval):
        raise InputError("nothing to do: give --do_train or --do_eval")
    starting_point.check_output_dir(source)
    ramp = _ramp(options)
    strategy = distribution.make_strategy(options)
    # Both are checked first, so that a wrong evaluation batch size does not waste a training run.
    for batch_size, flag, is_used, num_micro_batches in (
        (
            options.train_batch_size,
            "train_batch_size",
            options.do_train,
            options.num_accumulation_steps,
        ),
        (options.eval_batch_size, "eval_batch_size", options.do_eval, 1),
    ):
        if is_used:
            distribution.check_divides(
                batch_size, strategy.num_replicas_in_sync, flag, num_micro_batches
            )
    task = registry.find("pretraining").make(vars(options))
    config = source.config
    plugin = make_plugin("pretraining", options, config, task)
    data_files = DataFiles(named={"train": options.input_file, "dev": options.eval_input_file})
    train, dev = (
        task.encode(task.read(data_files, name)[""], None, options.max_seq_length, name)
        for name in ("train", "dev")
    )
    records = [*train.files, *(dev.files if options.do_eval else ())]
    vocabulary = source.vocabulary(records) if options.do_train else ()
    if options.vocab_file and not options.do_train:
        check_records_vocabulary(dev.files, options.vocab_file, load_vocab(options.vocab_file))
    if options.do_eval:
        dev.check(config)
    file_stats = sizes_and_times(train.files)
    contents = {
        "bert_config_file": config.to_dict(),
        "input_file": {name: size for name, (size, _) in file_stats.items()},
    }
    with output_folder(typed_options, Workers(strategy), contents) as folder:
        worker_options = dataclasses.replace(options, output_dir=folder)
        facts = {"records": starting_point.facts_of(file_stats)}
        if options.do_train:
            run = TrainingRun(
                options=worker_options,
                config=config,
                task=task,
                strategy=strategy,
                training_set=train,
                make_tokenizer=functools.partial(_make_tokenizer, *vocabulary),
            )
            facts |= plugin.prepare(run)
        on_tpu = distribution.is_tpu(strategy)
        plan = TrainPlan(
            run_dir=options.output_dir,
            build_model=lambda: plugin.adapt_model(
                task.build_model(config, use_one_hot_embeddings=on_tpu)
            ),
            num_train_steps=options.num_train_steps,
            num_warmup_steps=options.num_warmup_steps,
            weights=plugin.weight_plan(),
            max_train_hours=options.max_train_hours,
            has_own_input=options.file_order in OF_OWN_FILES,
        )
        trainer = Trainer(worker_options, strategy, config, plan)
        plugin.check_weights(trainer)
        if trainer.workers.is_chief and options.do_train and trainer.global_step:
            starting_point.warn_of_other_records(options, trainer.global_step, file_stats)
        if options.do_train:  # nothing is written before a record of each file has been looked at
            with train.explaining_errors(config):
                batches = _batches(worker_options, trainer, train)
        run_log.write_start(folder, options, trainer.seed, strategy, trainer.facts | facts)
        if options.do_train:
            record = model_dir.TaskRecord("pretraining", "pretraining", task.settings())
            vocab_file, tokenizer_config = vocabulary
            model_dir.write(folder, config, vocab_file, tokenizer_config, record)
            objective = plugin.wrap_objective(task.objective(trainer.model))
            with train.explaining_errors(config):
                trainer.fit(objective, batches, ramp=ramp)
            plugin.finish(trainer)
        if options.do_eval:
            _evaluate(worker_options, trainer, task, dev)


def _ramp(options: PretrainingOptions) -> Ramp:
    """Reads --train_batch_size_ramp."""
    names, multiples, starts = options.train_batch_size_ramp or [], [1], [0]
    for name in names:
        size, _, share = name.partition(":")
        try:
            multiple, remainder = divmod(int(size), options.train_batch_size)
            start = math.ceil(float(share) * options.num_train_steps - _ROUNDING)
        except (ValueError, OverflowError):
            multiple, remainder, start = 0, 0, 0
        if (
            remainder
            or multiple <= multiples[-1]
            or not starts[-1] < start < options.num_train_steps
        ):
            raise InputError(
                f"--train_batch_size_ramp={','.join(names)}: {name!r} must be a larger multiple of "
                f"--train_batch_size, here {options.train_batch_size}, than the one before, and "
                "behind a colon the share of the updates after which it begins, at least an update "
                "later and before the end, as 256:0.1,1024:0.6"
            )
        multiples.append(multiple)
        starts.append(start)
    return Ramp(tuple(starts), tuple(multiples))


def _make_tokenizer(
    vocab_file: str | None, settings: TokenizerConfig | None
) -> FullTokenizer | None:
    """Makes the tokenizer of the records; None if nothing says which vocabulary they have."""
    if vocab_file is None:
        return None
    return FullTokenizer(vocab_file, settings.do_lower_case, strip_accents=settings.strip_accents)


def _batches(
    options: PretrainingOptions, trainer: Trainer, records: RecordSet
) -> RecordBatches | HostBatches:
    """Logs the input of a training, and returns its batches.

    With --file_order=own they are those of this worker's files; on a TPU slice, each host reads its
    files.
    """
    strategy, batch_size = trainer.strategy, options.train_batch_size
    each_pass = options.file_order in OF_EACH_PASS
    splits_files = options.file_order in OF_OWN_FILES
    _log_input("Running training", batch_size, records)
    hosts = [*dict.fromkeys(distribution.hosts_of_replicas(strategy))] if splits_files else []
    if splits_files:
        names, count = records.files, len(hosts) or trainer.workers.count
        if len(names) < count:
            raise InputError(
                f"--file_order=own: {len(names)} input files are too few for {count} "
                f"{'hosts' if hosts else 'workers'}; leave the flag out, or make more files"
            )
        shares = [dataclasses.replace(records, files=names[index::count]) for index in range(count)]
        records = shares[trainer.workers.index]
        # Of one machine or of workers there are none.
        host_records = dict(zip(hosts, shares, strict=False))
        _check_shares(_counts(host_records) if hosts else trainer.workers.gather(records.count()))
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


def _counts(host_records: Mapping[str, RecordSet]) -> list[int]:
    """Returns the numbers of records of the hosts' files, which each host counts, at the same
    time as the others.
    """
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


def _check_shares(counts: Sequence[int]):
    """Validates that the workers' files hold about equally many records, int[workers], for each
    reads its own.
    """
    least, most = min(counts), max(counts)
    excess = most / max(1, least) - 1
    sentence = (
        f"--file_order=own: the files of one worker hold {least} records and those of another "
        f"{most}, so that some records are read {excess:.1%} more often than others"
    )
    if excess > _MOST_EXCESS:
        raise InputError(
            f"{sentence}; make files of equal size, whose number is a multiple of {len(counts)}"
        )
    if excess:
        logging.warning("%s", sentence)


def _log_input(title: str, batch_size: int, records: RecordSet):
    for line in (f"***** {title} *****", f"  Batch size = {batch_size}", "*** Input Files ***"):
        logging.info(line)
    for name in records.files:
        logging.info("  %s", name)


def _evaluate(
    options: PretrainingOptions, trainer: Trainer, task: PretrainingTask, records: RecordSet
):
    strategy, batch_size, num_steps = (
        trainer.strategy,
        options.eval_batch_size,
        options.max_eval_steps,
    )
    _log_input("Running evaluation", batch_size, records)
    dataset = records.evaluation(trainer.config, batch_size, _EVALUATION_SEED, repeat=num_steps > 0)
    objective = task.objective(trainer.model, batch_size)
    with records.explaining_errors(trainer.config):
        if num_steps:
            sums = loop.evaluate(strategy, objective, _per_replica(strategy, dataset), num_steps)
            results = objective.metrics(sums, num_steps)
        else:
            num_records = records.count()
            logging.info("  Num examples = %d", num_records)
            sums = _sum_all_records(strategy, objective, dataset, num_records)
            results = objective.metrics_of_all(sums, num_records)
    # The original's file has no perplexity, and programs read its lines.
    reporting.write_eval_results(
        options.output_dir, results, trainer.global_step, further=perplexity(results)
    )


def _sum_all_records(strategy, objective, dataset, num_records: int) -> loop.Sums:
    """Sums the objective's values over every record once.

    The replicas share the full batches. A smaller last one may not divide among them, so one device
    has it.
    """
    num_full, num_rest = divmod(num_records, objective.batch_size)
    batches = iter(dataset)
    sums = loop.evaluate(strategy, objective, _per_replica(strategy, batches), num_full)
    if num_rest:
        rest_sums = loop.evaluate(tf.distribute.get_strategy(), objective, batches, 1)
        sums = {name: sums.get(name, 0.0) + value for name, value in rest_sums.items()}
    return sums


def _per_replica(strategy: tf.distribute.Strategy, dataset: tf.data.Dataset):
    for batch in dataset:
        yield distribution.split_over_replicas(strategy, batch, axis=0)
