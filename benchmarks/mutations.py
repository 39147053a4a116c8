#!/usr/bin/env python3
"""Changes one important line of the package at a time, and tells whether a test notices.

In: the table below. Out: a JSON line for each change, with the first test that failed, then the share of the changes
that were caught, and a table of the survivors. A change whose result is in the file is not tried again. The tests run
in copies of the working tree; first make sure that `make test` passes.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "mutations.jsonl"
LIMIT_SECS = 600

# A file of official_bert/, and what pytest is given of tests/; below them its changes, "old -> new", where the old text
# stands once in the file. Text that has no equal can be cut from a line. A test that notices nothing is a defect, and so
# is a change that has no effect: replace it.
TABLE = r"""
optimization/adam.py: optimization/test_adam.py
    "layer_norm", "bias") -> "layer_norm")
    CLIP_NORM = 1.0 -> CLIP_NORM = 2.0
    epsilon: float = 1e-6 -> epsilon: float = 1e-8
    m / (tf.sqrt(v) + epsilon), m, v -> m / tf.sqrt(v + epsilon), m, v
    (1.0 - beta_2) * tf.square(gradient) -> (1.0 - beta_1) * tf.square(gradient)
    rate * (direction + decay * weight) -> rate * direction - decay * weight
    self.global_step + 1, tf.float32) -> self.global_step, tf.float32)
    1.0 - tf.pow(beta_2, step) -> 1.0 - tf.pow(beta_1, step)
    not any(re.search( -> not any(re.match(
    rate(self.global_step) if -> rate(self.global_step + 1) if
optimization/adam.py: training/test_precision.py
    tf.where(is_made, new, value) -> new
    1 if is_made is None else tf.cast(is_made, tf.int64) -> 1
optimization/lamb.py: optimization/test_adam.py
    weight_norm / tf.where(is_usable, norm, 1.0) -> norm / tf.where(is_usable, weight_norm, 1.0)
    _compiled_scaled if is_decayed else _compiled_plain -> _compiled_scaled
    direction += decay * weight -> direction += decay
optimization/schedules.py: optimization/test_schedules.py
    step < self.num_warmup_steps, -> step <= self.num_warmup_steps,
    self.peak * step / -> self.peak * (step + 1) /
    tf.minimum(step, self.num_train_steps) / -> step /
    WSD_DECAY_PROPORTION = 0.1 -> WSD_DECAY_PROPORTION = 0.2
    0.5 * (1.0 + tf.cos -> 0.5 * (1.0 - tf.cos
optimization/keras_optimizer.py: optimization/test_keras_optimizer.py
    global_clipnorm: float | None = CLIP_NORM -> global_clipnorm: float | None = None
    self.weight_decay_rate if is_one else 0.0 -> self.weight_decay_rate
    super().apply(dense_gradients(list(grads)) -> super().apply(list(grads)
options/training.py: optimization test_original_flags.py
    option(0.9, check=_DECAY_RATE -> option(0.95, check=_DECAY_RATE
    adam_epsilon: float = option(1e-6 -> adam_epsilon: float = option(1e-8
modeling/layers.py: modeling/test_layers.py modeling/test_bert.py
    LAYER_NORM_EPSILON = 1e-12 -> LAYER_NORM_EPSILON = 1e-6
    (6.0 * 0.044715 -> (3.0 * 0.044715
    TruncatedNormal(stddev=initializer_range) -> RandomNormal(stddev=initializer_range)
    initializer_range: float = 0.02 -> initializer_range: float = 0.2
    x * (1.0 / (1.0 - rate)) -> x
    round(rate * 2**16) -> round(rate * 2**15)
    (index * _STRIDE + 2**31) -> (_STRIDE + 2**31)
    [:, None] * length -> [:, None] * (length - 1)
    x * math.sqrt(0.5) -> x * math.sqrt(0.4)
modeling/attention.py: modeling/test_bert.py modeling/test_attention.py
    MASKED = -10000.0 -> MASKED = -10.0
    self.head_size**-0.5 -> self.head_size**-1.0
    return ops.transpose(x, (0, 2, 1, 3)) -> return ops.reshape(x, (-1, self.config.num_attention_heads, length, self.head_size))
    ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3)) -> ops.matmul(weights, value)
    position[None, :] > position[:, None] -> position[None, :] >= position[:, None]
    return gather_indexes(x, last) -> return x[:, 0]
    weights = dropout(weights, rate, dropout_seed, dropout_index) -> pass
modeling/encoder.py: modeling/test_layers.py modeling/test_bert.py modeling/test_pretrainer.py
    _DROPOUTS_PER_LAYER = 3 -> _DROPOUTS_PER_LAYER = 2
    config.intermediate_size, config, config.hidden_act -> config.intermediate_size, config
    self.stack[: -1 if first_token_only else None] -> self.stack
modeling/bert.py: modeling/test_bert.py
    self.config, "tanh") -> self.config, "relu")
    [: ops.shape(input_ids)[1]] -> [1 : ops.shape(input_ids)[1] + 1]
    input_mask = ops.ones_like(input_ids) -> input_mask = ops.cast(input_ids > 5, "int32")
    not training or not any(rates) -> not training and not any(rates)
    pooled = last[:, 0] if -> pooled = last[:, -1] if
modeling/heads.py: modeling/test_task_models.py modeling/test_pretrainer.py
    CLASSIFIER_DROPOUT = 0.1 -> CLASSIFIER_DROPOUT = 0.2
    HEAD_INITIALIZER_RANGE = 0.02 -> HEAD_INITIALIZER_RANGE = 0.2
    ops.sum(vectors * is_token, axis=1) -> ops.sum(vectors, axis=1)
    vectors, -float("inf")) -> vectors, 0.0)
    "cls": _first -> "cls": _mean
    self.config, self.config.hidden_act) -> self.config)
    self.norm(self.dense(x)) -> self.dense(x)
modeling/losses.py: modeling/test_layers.py modeling/test_pretrainer.py tasks/pretraining
    MASKED_LM_EPSILON = 1e-5 -> MASKED_LM_EPSILON = 1e-1
    column) - 1.0) * upstream -> column) + 1.0) * upstream
    ops.sum(example_loss * weights) -> ops.sum(example_loss)
modeling/inputs.py: modeling/test_bert.py
    "attention_mask": "input_mask", "token_type_ids": "segment_ids" -> "attention_mask": "segment_ids", "token_type_ids": "input_mask"
    length > config.max_position_embeddings -> length > config.max_position_embeddings + 1
modeling/packing.py: modeling/test_packing.py
    ops.argsort(-counts) -> ops.argsort(counts)
    ops.cumsum(lengths) - lengths  # of the sequences -> ops.cumsum(lengths)  # of the sequences
modeling/feature_based.py: modeling/test_feature_based.py
    "second_to_last": (slice(-2, -1), False) -> "second_to_last": (slice(-1, None), False)
    "weighted_sum_of_last_four": (slice(-4, None) -> "weighted_sum_of_last_four": (slice(-3, None)
modeling/task_models.py: modeling/test_task_models.py
    return logits[..., 0], logits[..., 1] -> return logits[..., 1], logits[..., 0]
modeling/flops.py: modeling/test_flops.py
    return 2 * rows * inner -> return rows * inner
    - 2 * num_sequences * num_frozen_layers -> - 3 * num_sequences * num_frozen_layers
tokenization.py: test_tokenization.py
    \u3400-\u4dbf -> \u3401-\u4dbf
    \U0002f800-\U0002fa1f -> \U0002f800-\U0002fa1e
    in ("Cc", "Cf") -> in ("Cc",)
    unicodedata.category(char) == "Mn" -> unicodedata.category(char)[0] == "M"
    max_input_chars_per_word: int = 200 -> max_input_chars_per_word: int = 100
    len(word) > self.max_input_chars_per_word -> len(word) >= self.max_input_chars_per_word
    self.strip_accents = do_lower_case if strip_accents is None else strip_accents -> self.strip_accents = do_lower_case
    normalize("NFD" -> normalize("NFKD"
    startswith("P") -> startswith(("P", "S"))
    "multilingual_L-12_H-768_A-12", -> "multilingual_L-12_H-768_A-16",
    text.decode("utf-8", "ignore") -> text.decode("utf-8", "replace")
    if char in "\0\ufffd" -> if char in "\0"
    for end in range(len(rest), joiner, -1) -> for end in range(joiner + 1, len(rest) + 1)
    [row, num_first : len(ids)] -> [row, num_first - 1 : len(ids)]
tokenizer_config.py: data/test_model_inputs.py test_tokenization.py
    len(tokens_a) > len(tokens_b) -> len(tokens_a) >= len(tokens_b)
    first[: max_seq_length - 2] -> first[: max_seq_length - 3]
data/pretraining/exact.py: commands/test_create_pretraining_data.py
    2 + randbelow(max_num_tokens - 1, getrandbits) -> 2 + randbelow(max_num_tokens, getrandbits)
    while drawn >= n -> while drawn > n
    size == 1 or rng.random() < 0.5 -> size == 1 or rng.random() < 0.4
    first = middle  # -> first = end  #
    if a_length > b_length -> if a_length >= b_length
    if draw() < 0.8 -> if draw() < 0.9
    elif draw() < 0.5 -> elif draw() < 0.4
    len(drawn) + len(word) <= count -> len(drawn) + len(word) < count
    shuffle(shuffled, rng.getrandbits) -> pass
    shuffle(order, rng.getrandbits) -> pass
    round(length * masked_lm_prob) -> int(length * masked_lm_prob)
    (position >= b_first) & (position < length), -> position >= b_first,
data/pretraining/one_shard.py: data/pretraining/test_pairs.py data/pretraining/test_one_shard.py
    other += other >= document -> other += other > document
    max_num_tokens - max_num_tokens // 2  # -> max_num_tokens // 2  #
    - (3 if config.use_next_sentence else 2) -> - 3
    _IS_RANDOM)) < 0.5 -> _IS_RANDOM)) < 0.6
    fileobj=written, mtime=0) -> fileobj=written, mtime=1)
    stream(config.random_seed, number, _PAIRS) -> stream(config.random_seed, _PAIRS)
data/pretraining/masks.py: data/pretraining/test_masks.py
    np.clip(wanted, 1, max_predictions_per_seq) -> np.clip(wanted, 0, max_predictions_per_seq)
    choice < mask_token_rate + random_token_rate -> choice < mask_token_rate + 2 * random_token_rate
    starts[:, 1] |= candidates[:, 1] -> pass
    shares = 1 / np.arange(1, longest + 1) -> shares = np.ones(longest)
    total + size_here[:, column] <= num_wanted -> total + size_here[:, column] < num_wanted
    (input_mask > 0) & ~np.isin(ids, self._special) -> input_mask > 0
    stream(self._seed, passes, records) -> stream(self._seed, records)
data/pretraining/random_streams.py: data/pretraining/test_masks.py
    0xBF58476D1CE4E5B9 -> 0xBF58476D1CE4E5B7
    _MOST_TRIALS = 1 << 12 -> _MOST_TRIALS = 1 << 6
data/pretraining/documents.py: data/pretraining/test_documents.py
    paths[num_documents % len(paths)] -> paths[(num_documents + 1) % len(paths)]
    numbers.append(count - goes_on) -> numbers.append(count)
    has_tokens = line_lengths > 0 -> has_tokens = line_lengths >= 0
data/pretraining/text_formats.py: data/pretraining/test_text_formats.py
    del paragraphs[0] -> pass
    if following.islower(): -> if False:
    return word in _MAY_END and following.isupper() -> return False
data/pretraining/vocabulary.py: data/pretraining/test_vocabulary.py
    if num_missing <= 0 -> if num_missing <= 1
    longer[:num_free] -> longer[: num_free - 1]
    len(word) <= _LONGEST_WORD -> len(word) < _LONGEST_WORD
data/pretraining/shards.py: data/pretraining/test_shards.py
    if files.exists(job.manifest_file): -> if False:
    if report["key"] == key and -> if
    sum(report["documents"] == 1 -> sum(report["documents"] == 2
data/records/framing.py: data/records/test_framing.py data/records/test_examples.py
    0xA282EAD8 -> 0xA282EAD9
    crc >> 15 | crc << 17 -> crc >> 17 | crc << 15
    framed[(k - self.num_written) % -> framed[k %
    if _read(file, _CHECKSUM.size) != _checksum(data): -> if not _read(file, _CHECKSUM.size):
    fileobj=file, mtime=0) -> fileobj=file)
    while value > 0x7F -> while value > 0x80
data/records/pretraining_input.py: data/records/test_pretraining_input.py
    RECORDS_SHUFFLED = 100 -> RECORDS_SHUFFLED = 10
    dataset.shuffle(RECORDS_SHUFFLED, seed=seed) -> dataset.shuffle(RECORDS_SHUFFLED, seed=0)
    FILES_READ_TOGETHER = 4 -> FILES_READ_TOGETHER = 1
    drop_rest=repeat -> drop_rest=True
    (parsed[name] < limit.below) -> (parsed[name] <= limit.below)
    key += ("shuffles each pass",) -> pass
features.py: data/records/test_pretraining_input.py
    "masked_lm_weights", max_predictions_per_seq, "float32" -> "masked_lm_weights", max_predictions_per_seq, "int32"
data/records/statistics.py: data/records/test_statistics.py
    (is_predicted & (seen == originals) & (seen != self._mask)) -> (is_predicted & (seen == originals))
    + (is_predicted & (originals == self._unknown)).sum() -> + 0
data/tables.py: data/test_tables.py
    text.removeprefix("\ufeff") -> text
    tag[0] == "I" and tag[1:] != before[1:] -> tag[0] == "I"
    r"(.*) \|\|\| (.*)" -> r"(.*?) \|\|\| (.*)"
data/model_inputs.py: data/test_model_inputs.py
    mask & ~_length_mask(self.num_first -> mask & _length_mask(self.num_first
    np.arange(width) < lengths[:, None] -> np.arange(width) <= lengths[:, None]
    if num_ids > vocab_size -> if num_ids > vocab_size + 1
checkpoints/names.py: checkpoints/test_names.py checkpoints/test_huggingface.py
    {huggingface}.weight", transposed=True) -> {huggingface}.weight")
    "LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias" -> "LayerNorm.gamma": "LayerNorm.bias", "LayerNorm.beta": "LayerNorm.weight"
    tf1 == GLOBAL_STEP or tf1.rpartition("/")[2] in SLOTS -> tf1 == GLOBAL_STEP
    (int(match[1]) + 1 for -> (int(match[1]) for
checkpoints/huggingface.py: checkpoints/test_huggingface.py
    np.ascontiguousarray(tensor.T) if entry.transposed -> np.ascontiguousarray(tensor) if entry.transposed
    tensor = tensor.T if entry.transposed else tensor -> pass
    {"format": "pt"} -> {"format": "tf"}
    if not np.array_equal( -> if not np.shape(
checkpoints/tf1.py: checkpoints/test_tf1.py checkpoints/test_manager.py
    if checksum != zlib.crc32(content[: -_CHECKSUM.size]): -> if False:
    LARGEST_WEIGHT = 1e6 -> LARGEST_WEIGHT = 1e30
    listdir(folder), key=lambda name: name.endswith(".index")) -> listdir(folder))
    key=lambda name: not name.endswith(".index") -> key=lambda name: name.endswith(".index")
checkpoints/manager.py: checkpoints/test_manager.py
    keep_max: int = 5 -> keep_max: int = 4
    listed[: -self.keep_max] -> listed[: 1 - self.keep_max]
    self._check_inputs(self._step(checkpoint)) -> pass
    tf1.append_checksum(temporary) -> pass
    self._wait_for_all()  # -> pass  #
checkpoints/folder.py: checkpoints/test_manager.py
    key=lambda name: name != STATE_NAME) -> key=lambda name: name == STATE_NAME)
    if last_step and not _gfile.exists(state_file): -> if False:
checkpoints/loading.py: checkpoints/test_loading.py
    not in variables and not names.is_training_state(name) -> not in variables
    if stored != built: -> if len(stored) != len(built):
    name.startswith(names.ENCODER)] -> name.startswith("cls")]
io/writing.py: io/test_files.py checkpoints/test_manager.py
    temporary = None if files.is_special(path) else _temporary(target) -> temporary = None
    return process != os.getpid() -> return True
    if before and not before.endswith(b"\n"): -> if False:
io/reading.py: io/test_reading.py
    isinstance(value, bool) or not isinstance(value, (int, kind)) -> not isinstance(value, (int, kind))
    math.isfinite(value) -> True
io/processes.py: io/test_processes.py
    signal.raise_signal(arrived[0]) -> pass
    (signal.SIGTERM, signal.SIGHUP) -> (signal.SIGTERM,)
tasks/squad/answers.py: tasks/squad/test_answers.py
    (num_tokens <= rules.max_answer_length) -> (num_tokens < rules.max_answer_length)
    is_start = in_document & dense( -> is_start = in_document | dense(
    null_odds[qas_id] > null_score_diff_threshold -> null_odds[qas_id] >= null_score_diff_threshold
    if text in seen: -> if False:
    return min(nulls, key= -> return max(nulls, key=
    pieces.replace(" ##", "") -> pieces
    if len(entries) >= n_best_size -> if len(entries) > n_best_size
    best.start_logit - best.end_logit -> best.start_logit + best.end_logit
    CERTAINLY_NO_ANSWER = 1000000.0 -> CERTAINLY_NO_ANSWER = 0.0
    kind="stable")[:n_best_size] -> kind="stable")[: n_best_size - 1]
tasks/squad/windows.py: tasks/squad/test_windows.py
    is_better = score > best[window] -> is_better = score >= best[window]
    starts[-1] + max_tokens < num_tokens -> starts[-1] + max_tokens <= num_tokens
    max_seq_length - len(query) - 3 -> max_seq_length - len(query) - 4
    answer[1] >= start + length -> answer[1] > start + length
    segment_ids[offset : end + 1] = 1 -> segment_ids[offset:end] = 1
    end - len(answer) + 2) -> end - len(answer) + 1)
    FIRST_UNIQUE_ID = 1000000000 -> FIRST_UNIQUE_ID = 1000000001
tasks/squad/in_graph.py: tasks/squad/test_in_graph.py
    (num_pieces <= rules.max_answer_length) -> (num_pieces < rules.max_answer_length)
    odds <= rules.null_score_diff_threshold -> odds < rules.null_score_diff_threshold
tasks/squad/examples.py: tasks/squad/test_examples.py
    [^ \t\r\n\u202f]+ -> [^ \t\r\n]+
    end = start + len(text) - 1 -> end = start + len(text)
tasks/squad/triviaqa.py: tasks/squad/test_triviaqa.py
    patterns.sort(key=len, reverse=True) -> patterns.sort(key=len)
    MAX_DOCUMENT_WORDS = 400 -> MAX_DOCUMENT_WORDS = 800
metrics/classification.py: metrics/test_classification.py
    np.cumsum(counts) - (counts - 1) / 2 -> np.cumsum(counts)
    _ratio(2 * num_true_positives -> _ratio(num_true_positives
    targets == 1, predictions == 1 -> targets == 0, predictions == 0
    targets.astype(np.int64) * num_labels + predictions -> predictions.astype(np.int64) * num_labels + targets
    num * num_correct -> num + num_correct
metrics/squad.py: metrics/test_squad.py
    \b(a|an|the)\b -> \b(a|the)\b
    null_odds[qas_id] > null_odds_threshold -> null_odds[qas_id] >= null_odds_threshold
    2 * precision * recall -> precision * recall
    is_last_of_equals = np.append(thresholds[1:] != thresholds[:-1], True) -> is_last_of_equals = np.full(len(thresholds), True)
metrics/entities.py: metrics/test_entities.py
    before in "BI" and type_ == type_before -> before in "BI"
    before in "BI" -> before in "BIE"
tasks/classification/glue.py: tasks/classification/test_glue.py
    labelled = Layout(text_a=3, label=1, has_header=False) -> labelled = Layout(text_a=3, label=1)
    labels = ("contradiction", "entailment", "neutral") -> labels = ("entailment", "contradiction", "neutral")
    text_a=3, text_b=4, label=5 -> text_a=4, text_b=3, label=5
    _HIGHEST_SCORE = 5.0 -> _HIGHEST_SCORE = 10.0
    "contradictory": "contradiction" -> "contradictory": "neutral"
    _TEXT_A, _TEXT_B = 0, 1, 6, 7 -> _TEXT_A, _TEXT_B = 0, 1, 7, 6
tasks/classification/task.py: tasks/classification/test_task.py
    LIKELY = 0.5 -> LIKELY = 0.6
    ops.softplus(logits) - logits * targets -> ops.softplus(logits) + logits * targets
    real * ops.take(weights -> real + ops.take(weights
tasks/classification/tsv.py: tasks/classification/test_tsv.py
    number + self._width if -> number + self._width - 1 if
    sorted(found, key=lambda label: (int(label), label)) -> sorted(found)
tasks/tagging/windows.py: tasks/tagging/test_windows.py
    start + room, side="right") -> start + room, side="left")
    for prefix in "BI" -> for prefix in "IB"
    (tokenizer.encode(word) or [unknown]) -> tokenizer.encode(word)
tasks/choice/examples.py: tasks/choice/test_choice.py
    f"{start} {ending}" -> f"{ending} {start}"
    for example in counted(examples, "examples encoded") -> for example in reversed(examples)
tasks/pretraining/objective.py: tasks/pretraining/test_objective.py modeling/test_pretrainer.py
    at_label >= ops.max( -> at_label <= ops.max(
    if self.use_next_sentence_loss else 0.0 -> if not self.use_next_sentence_loss else 0.0
    ops.reshape(ids[:, 1:], (-1,)) -> ops.reshape(ids[:, :-1], (-1,))
training/batches.py: training/test_example_batches.py
    LENGTH_MULTIPLE = 8 -> LENGTH_MULTIPLE = 4
    default_rng([seed, epoch]) -> default_rng([seed])
    if position != self._drawn: -> if False:
    held[slot] = next(upcoming) -> pass
training/loop.py: training/test_loop.py
    FIRST_LOG_STEPS = 10 -> FIRST_LOG_STEPS = 5
    step == self.num_train_steps or any( -> any(
    np.asarray(value)[: len(rows)] -> np.asarray(value)
training/precision.py: training/test_precision.py
    FIRST_SCALE = 2.0**15 -> FIRST_SCALE = 2.0**10
    GROWTH_UPDATES = 2000 -> GROWTH_UPDATES = 1000
    self._scale * 0.5 -> self._scale * 0.25
    tf.where(is_applied, self._num_good + 1, 0) -> self._num_good + 1
training/step.py: training/test_step.py
    gradients = clip_by_global_norm(gradients, norm=norm) -> pass
    tf.where(index > 0, folded, seed) -> folded
    {name: value + more_sums[name] for -> {name: value for
training/step.py: training/test_precision.py
    gradient / scale for -> gradient for
training/trainer.py: training/test_trainer.py
    self.optimizer.global_step.assign(self.checkpoints.latest_step()) -> pass
    checkpoints.restore_input(batches.state) -> pass
    -(-options.log_every_steps // loop_steps) -> (options.log_every_steps // loop_steps)
training/distribution.py: training/test_distribution.py
    slice(replica * size, (replica + 1) * size) -> slice(0, size)
    batch_size % (num_replicas * num_micro_batches) -> batch_size % num_micro_batches
training/workers.py: training/test_workers.py
    0 <= index < len(hosts[role]) -> 0 <= index <= len(hosts[role])
    if addresses.count(address) > 1 -> if False
training/periodic_evaluation.py: training/test_periodic_evaluation.py
    evaluated > best_step -> evaluated >= best_step
    line["step"] <= first_step -> line["step"] < first_step
training/reporting.py: training/test_reporting.py
    self._sums[GRADIENT_NORM] / self._num_steps -> self._sums[GRADIENT_NORM]
    if 10 * steps >= self._num_train_steps -> if 2 * steps >= self._num_train_steps
    past.steps * self._batch_size / past.secs -> past.steps / past.secs
training/run_log.py: training/test_run_log.py
    <= line["first_step"] -> < line["first_step"]
    b"\n" * is_half + line -> line
graph_text/tokenizer.py: graph_text/test_tokenizer.py
    max_bytes_per_word=4 * self._max_word_chars -> max_bytes_per_word=self._max_word_chars
    normalize_utf8(strings, "NFD") -> normalize_utf8(strings, "NFKD")
    unit="UTF8_CHAR") > self._max_word_chars -> unit="UTF8_CHAR") >= self._max_word_chars
    for _ in range(2):  # of adjacent -> for _ in range(1):  # of adjacent
graph_text/text_reader.py: graph_text/test_text_reader.py
    tf.maximum(room - b, room - room // 2) -> tf.maximum(room - b, room // 2)
    segments[0].row_lengths() + 2 -> segments[0].row_lengths() + 1
    starts + room, side="right") -> starts + room, side="left")
    0.01 * tf.cast( -> -0.01 * tf.cast(
serving/signatures.py: serving/test_signatures.py
    PADDING_ID = 0 -> PADDING_ID = 1
    (lowest >= 0) & (highest < limit) -> (lowest >= 0) & (highest <= limit)
    lengths % num_choices == 0 -> lengths % num_choices >= 0
serving/export.py: serving/test_export.py
    default=0) + 1) -> default=0) + 2)
    _gfile.rmtree(temporary) -> pass
serving/predictor.py: serving/test_predictor.py
    if len(texts) == 1 and isinstance(texts[0], list) -> if isinstance(texts[0], list)
experiments/table.py: experiments/test_table.py
    NOISE_ERRORS = 2.0 -> NOISE_ERRORS = 1.0
    statistics.stdev(values) -> statistics.pstdev(values)
    each.deviation / math.sqrt(each.count) -> each.deviation
    math.exp(loss) -> math.exp2(loss)
experiments/plan.py: experiments/test_plan.py
    return 100.0 if is_fraction -> return 1.0 if is_fraction
    "intermediate_size": 4 * hidden -> "intermediate_size": 3 * hidden
    range(1, 2 if row.ensemble else count + 1) -> range(1, count + 1)
experiments/steps.py: experiments/test_plan.py experiments/test_execution.py
    if name not in _WITHOUT_MEANING} -> }
experiments/execution.py: experiments/test_execution.py
    return pending[::-1] -> return pending
    files.remove(folder) -> pass
fine_tuning/search.py: fine_tuning/test_search.py
    range(first_seed, first_seed + restarts) -> range(restarts)
    return bool(metric), -math.inf -> return bool(metric), math.inf
    for trial in scores.keys() - {best} -> for trial in scores.keys() - {best, *scores}
fine_tuning/finetuner.py: fine_tuning/test_finetuner.py
    int(num_train_steps * options.warmup_proportion) -> round(num_train_steps * options.warmup_proportion)
    int(self._epoch_steps * options.num_train_epochs) -> int(self._epoch_steps) * int(options.num_train_epochs)
    range(options.freeze_layers) -> range(options.freeze_layers + 1)
    np.average(losses[batch], weights=weights[batch]) -> np.average(losses[batch])
options/fine_tuning.py: test_original_flags.py
    max_answer_length: int = option(30 -> max_answer_length: int = option(40
    64, -> 32,
    20, -> 10,
    fallback=384 -> fallback=512
    predict_batch_size: int = option(8 -> predict_batch_size: int = option(16
    0.1, -> 0.2,
options/data_tools.py: test_original_flags.py
    12345, check -> 1234, check
    10, -> 5,
    20, basic -> 10, basic
options/shared.py: options/test_fine_tuning.py test_original_flags.py cli/test_flags.py commands/test_create_pretraining_data.py
    "0.8,0.1" -> "0.9,0.1"
commands/launch.py: commands/test_launch.py
    {"type": "worker", "index": index} -> {"type": "worker", "index": 0}
    if all(status == 1 for status in statuses) -> if any(status == 1 for status in statuses)
    things[index * size : (index + 1) * size] -> things[:size]
commands/extract_features.py: commands/test_extract_features.py
    layers[0]] -> layers[-1]]
    _DECIMALS = 6 -> _DECIMALS = 5
    outputs.all_encoder_layers[layer] for -> outputs.all_encoder_layers[-1] for
commands/build_vocab.py: commands/test_build_vocab.py
    _MIN_FREQUENCY = 2 -> _MIN_FREQUENCY = 3
commands/plot_run.py: commands/test_plot_run.py
    name.endswith("loss") -> name == "loss"
compat/input_functions.py: compat/test_input_functions.py
    dataset.repeat().shuffle(_BUFFER_SIZE) -> dataset.shuffle(_BUFFER_SIZE).repeat()
    records.batch(params["batch_size"], drop_remainder) -> records.batch(params["batch_size"])
compat/training_instances.py: compat/test_training_instances.py
    (len(a_tokens) + 2) -> (len(a_tokens) + 1)
    positions = sorted(drawn) -> positions = drawn
config.py: test_config.py
    "base": (12, 768, 12) -> "base": (12, 768, 8)
    "gelu": "gelu_new", "gelu_erf": "gelu" -> "gelu": "gelu", "gelu_erf": "gelu_new"
    0 <= value < 1 -> 0 <= value <= 1
    _LAYER_NORM_EPSILON = 1e-12 -> _LAYER_NORM_EPSILON = 1e-5
model_source.py: test_model_source.py
    min(fallback, longest) -> longest
    if given != trained and not trained.startswith(_UNUSED_PIECE) -> if given != trained
model_dir.py: test_model_dir.py
    {"regression": "score", "multi_label": "multi"} -> {"regression": "multi", "multi_label": "score"}
"""


class Change(NamedTuple):
    """A change of one place in a file, and the arguments of pytest that choose the tests to notice it."""

    file: str
    old: str
    new: str
    tests: str

    @property
    def path(self) -> str:
        return f"official_bert/{self.file}"


def changes(table: str = TABLE) -> Iterator[Change]:
    file = tests = ""
    for line in filter(None, table.splitlines()):
        if not line.startswith(" "):
            file, _, tests = line.partition(": ")
            tests = re.sub(r"(?<!\S)(?=[\w/]+\.py)", "tests/", tests)
        else:
            old, new = line.strip().split(" -> ")
            yield Change(file, old, new, tests)


def problems() -> list[str]:
    """Returns what is wrong with the table: places that are not there, or not once, and tests that do not exist."""
    found = []
    for number, change in enumerate(changes(), 1):
        count = (ROOT / change.path).read_text(encoding="utf-8").count(change.old)
        if count != 1:
            found.append(f"row {number}: {change.path} has {change.old!r} {count} times")
        paths = [ROOT / word for word in shlex.split(change.tests) if word.endswith(".py")]
        found += [f"row {number}: no file {path}" for path in paths if not path.exists()]
        text = "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
        names = set(re.findall(r"\w+", change.tests.partition(" -k ")[2])) - {"and", "or", "not"}
        found += [f"row {number}: {change.tests}: no {name}" for name in sorted(names) if name not in text]
    return found


def copy_of_the_tree(folder: str) -> pathlib.Path:
    """Copies the tracked files, as they are now, into a folder, with `shared` beside them as the tests expect it."""
    tree = pathlib.Path(folder, "tree")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    if (ROOT.parent / "shared").exists():
        (tree.parent / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return tree


def tried(change: Change, tree: pathlib.Path) -> dict:
    """Makes a change in a copy, runs its tests, takes it back, and returns what happened."""
    path, start = tree / change.path, time.monotonic()
    before = path.read_text(encoding="utf-8")
    path.write_text(before.replace(change.old, change.new), encoding="utf-8")
    try:
        status, output = run_tests(change.tests, tree)
    finally:
        path.write_text(before, encoding="utf-8")
    if status not in (0, 1, 2, None):  # 2 is a module that cannot be imported
        raise SystemExit(f"{change.tests}: pytest ended with status {status}:\n{output[-2000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    result = "timeout" if status is None else "caught" if status else "survived"
    secs = round(time.monotonic() - start, 1)
    return change._asdict() | {"result": result, "failed": failed and failed[1], "secs": secs}


def run_tests(tests: str, tree: pathlib.Path) -> tuple[int | None, str]:
    """Returns pytest's status, None if it took too long, and its output."""
    words = ["-x", "-rfE", "-m", "not long", "-p", "no:cacheprovider", "--timeout=300", "--timeout-method=signal"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, *shlex.split(tests)],
        cwd=tree,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # a changed file may have the size and time of the old one
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_SECS)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def results_of(todo: Iterable[Change], num_jobs: int) -> Iterator[dict]:
    """Tries the changes, `num_jobs` at a time, each job in a copy of its own."""
    with tempfile.TemporaryDirectory() as folder:
        trees: queue.Queue[pathlib.Path] = queue.Queue()
        for number in range(num_jobs):
            trees.put(copy_of_the_tree(os.path.join(folder, str(number))))

        def job(change: Change) -> dict:
            tree = trees.get()
            try:
                return tried(change, tree)
            finally:
                trees.put(tree)

        with concurrent.futures.ThreadPoolExecutor(num_jobs) as pool:
            for future in concurrent.futures.as_completed([pool.submit(job, change) for change in todo]):
                yield future.result()


def numbers_of(text: str) -> set[int]:
    """Returns the numbers in a list such as 3,7-20."""
    bounds = (part.split("-") for part in text.split(","))
    return {number for first, *last in bounds for number in range(int(first), int(last[0] if last else first) + 1)}


def read_results(path: pathlib.Path) -> dict[tuple, dict]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {(row["file"], row["old"], row["new"]): row for row in map(json.loads, lines)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="numbers of the table's rows, from 1, such as 3,7-20; by default all")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="the file that the rows are added to")
    parser.add_argument("--jobs", type=int, default=1, help="changes tried at a time, each in a copy of the tree")
    parser.add_argument("--check", action="store_true", help="only check that the table fits the files")
    parser.add_argument("--unchanged", action="store_true", help="run the tests of the rows once without a change")
    flags = parser.parse_args()

    if faults := problems():
        sys.exit("\n".join(faults))
    table = list(changes())
    print(f"{len(table)} changes in {len({change.file for change in table})} files")
    if flags.check:
        return
    chosen = [table[number - 1] for number in sorted(numbers_of(flags.rows or f"1-{len(table)}"))]
    if flags.unchanged:
        once = {change.tests: change._replace(old="", new="") for change in chosen}
        for row in results_of(once.values(), flags.jobs):
            print(f"{row['secs']:6.1f} s  {row['tests']}  {row['failed'] or 'passes'}", flush=True)
        return
    known = read_results(flags.results)
    with open(flags.results, "a", encoding="utf-8") as file:
        for row in results_of([change for change in chosen if change[:3] not in known], flags.jobs):
            print(f"{row['result']}  {row['file']}: {row['old']} -> {row['new']}", flush=True)
            file.write(json.dumps(row) + "\n")
            file.flush()
    known = read_results(flags.results)
    found = [known[change[:3]] for change in chosen]
    caught = sum(row["result"] != "survived" for row in found)
    print(f"\n{caught} of {len(found)} changes were caught, {caught / len(found):.1%}\n")
    print("| file | change | tests |\n|---|---|---|")
    for row in found:
        if row["result"] == "survived":
            print(f"| {row['file']} | `{row['old']}` to `{row['new']}` | {row['tests']} |")


if __name__ == "__main__":
    main()
