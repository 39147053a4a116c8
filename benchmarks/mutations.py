#!/usr/bin/env python3
"""Changes one important line of the package at a time, and tells whether a test notices.

In: the table below. Out: a JSON line for each change, with the first test that failed, then the
share of the changes that were caught, and a table of the survivors. A change whose result is in the
file is not tried again. The tests run in copies of the tracked files, as they were at the start;
first see that `make test` passes.
"""

import argparse
import compileall
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "mutations.jsonl"
LIMIT_SECS = 600
PYTEST = shlex.split(
    "-x -rfE -m 'not long' -p no:cacheprovider --timeout=300 --timeout-method=signal"
)
# The tests of a change run in a process of their own, forked from one that has loaded what takes
# seconds.
PROCESSES = multiprocessing.get_context("forkserver")
LOADED = ["tensorflow", "tensorflow_text", "keras", "pytest"]

# A file of official_bert/, and what pytest is given of tests/; below them changes, "old -> new", of
# a text that is once in the file, in which a blank matches the end of a line, too. A change without
# effect has no place here.
TABLE = r"""
optimization/adam.py: optimization/test_adam.py
    "layer_norm", "bias") -> "layer_norm")
    CLIP_NORM = 1.0 -> CLIP_NORM = 2.0
    epsilon: float = 1e-6 -> epsilon: float = 1e-8
    m / (tf.sqrt(v) + epsilon), moments -> m / tf.sqrt(v + epsilon), moments
    (1.0 - beta_2) * tf.square(gradient) -> (1.0 - beta_1) * tf.square(gradient)
    self.global_step + 1, tf.float32) -> self.global_step, tf.float32)
    not any(re.search( -> not any(re.match(
    (1.0 + step) / (10.0 + step) -> (1.0 + step) / (100.0 + step)
optimization/schedules.py: optimization/test_schedules.py
    step < self.num_warmup_steps, -> step <= self.num_warmup_steps,
    self.peak * step / -> self.peak * (step + 1) /
    WSD_DECAY_PROPORTION = 0.1 -> WSD_DECAY_PROPORTION = 0.2
options/training.py: test_original_flags.py optimization
    1e-6, check=POSITIVE, changes_training -> 1e-8, check=POSITIVE, changes_training
    0.01, -> 0.1,
options/fine_tuning.py: test_original_flags.py
    30, check=LENGTH, help="The -> 40, check=LENGTH, help="The
    0.1, -> 0.2,
options/data_tools.py: test_original_flags.py
    random_seed: int = option( 12345, -> random_seed: int = option( 1234,
modeling/layers.py: modeling/test_layers.py modeling/test_bert.py
    LAYER_NORM_EPSILON = 1e-12 -> LAYER_NORM_EPSILON = 1e-6
    TruncatedNormal(stddev=initializer_range) -> RandomNormal(stddev=initializer_range)
    initializer_range: float = 0.02 -> initializer_range: float = 0.2
    x * (1.0 / (1.0 - rate)) -> x
modeling/layers.py: training/test_step.py
    (6.0 * 0.044715 -> (3.0 * 0.044715
modeling/cpu_layers.py: modeling/test_cpu_layers.py
    (_float32(product) + bias) * scale -> (_float32(product) + bias)
    (upstream_x - mean) -> (upstream_x + mean)
    >= MIN_ELEMENTS -> < MIN_ELEMENTS
modeling/dropout_masks.py: modeling/test_dropout_masks.py
    _to_uint32(index) * stride -> stride
    rows += _first_row(seed, num_rows) -> rows += 0
    columns ^ column_key -> columns ^ row_key
    round(rate * 2**32) -> round(rate * 2**31)
modeling/attention.py: modeling/test_bert.py modeling/test_attention.py
    MASKED = -10000.0 -> MASKED = -10.0
    self.head_size**-0.5 -> self.head_size**-1.0
    ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3)) -> ops.matmul(weights, value)
    position[None, :] > position[:, None] -> position[None, :] >= position[:, None]
modeling/encoder.py: modeling/test_layers.py modeling/test_bert.py
    _DROPOUTS_PER_LAYER = 3 -> _DROPOUTS_PER_LAYER = 2
modeling/bert.py: modeling/test_bert.py
    input_mask = ops.ones_like(input_ids) -> input_mask = ops.cast(input_ids > 5, "int32")
    not training or not any(rates) -> not training and not any(rates)
modeling/heads.py: modeling/test_task_models.py modeling/test_pretrainer.py
    CLASSIFIER_DROPOUT = 0.1 -> CLASSIFIER_DROPOUT = 0.2
    HEAD_INITIALIZER_RANGE = 0.02 -> HEAD_INITIALIZER_RANGE = 0.2
    ops.sum(vectors * is_token, axis=1) -> ops.sum(vectors, axis=1)
    vectors, -float("inf")) -> vectors, 0.0)
    ops.sqrt(ops.sum(is_token, axis=1)) -> ops.sum(is_token, axis=1)
checkpoints/dense_module.py: checkpoints/test_dense_module.py
    if settings.get("use_residual") -> if False
extensions/embeddings/sentence_encoder.py: extensions/embeddings/test_sentence_encoder.py
    ("", "SentenceEncoder") -> ("SentenceEncoder",)
extensions/embeddings/sentence_folder.py: extensions/embeddings/test_sentence_folder.py
    Dense(kernel.T, bias), *layers -> *layers, Dense(kernel.T, bias)
    ours == modules.pooling -> ours != modules.pooling
extensions/distillation/losses.py: extensions/distillation/test_pretraining.py
    return temperature**2 * ops.sum( -> return temperature * ops.sum(
modeling/losses.py: modeling/test_pretrainer.py tasks/pretraining/test_objective.py
    MASKED_LM_EPSILON = 1e-5 -> MASKED_LM_EPSILON = 1e-1
modeling/losses.py: extensions/embeddings/test_losses.py
    ops.where(is_positive, candidate_anchors, -1) -> candidate_anchors
    (1, 0, *further_axes) -> (0, 1, *further_axes)
modeling/vocabulary_loss.py: modeling/test_vocabulary_loss.py
    sums.total * tf.exp(sums.largest - largest) -> sums.total
    tf.exp(block.shift - shift) * rate -> rate
    label_logits >= largest -> label_logits > largest
    columns < products.shape[1] -> columns <= products.shape[1]
    tensor_scatter_nd_add(bias_gradient -> tensor_scatter_nd_sub(bias_gradient
    tf.where(is_label, -math.inf, -> tf.where(is_label, 0.0,
characters.py: test_tokenization.py
    \u3400-\u4dbf -> \u3401-\u4dbf
    in ("Cc", "Cf") -> in ("Cc",)
    unicodedata.category(char) == "Mn" -> unicodedata.category(char)[0] == "M"
    if char in "\0\ufffd" -> if char in "\0"
tokenization.py: test_tokenization.py
    len(word) > self.max_input_chars_per_word -> len(word) >= self.max_input_chars_per_word
    self.strip_accents = do_lower_case if strip_accents is None else strip_accents -> self.strip_accents = do_lower_case
    normalize("NFD" -> normalize("NFKD"
    release < "2019" -> release < "2018_11_03"
tokenizer_call.py: test_tokenization.py
    [row, num_first : len(ids)] -> [row, num_first - 1 : len(ids)]
extensions/huggingface_api/tokenizer_inputs.py: extensions/huggingface_api/test_tokenizer.py
    range(0, len(tokens) - stride, size - stride) -> range(0, len(tokens), size - stride)
    lengths[0] > lengths[1] -> lengths[0] >= lengths[1]
    origins[begin + width - 1] + 1 -> origins[begin] + width
tokenizer_config.py: test_tokenization.py test_tokenizer_json.py data/test_model_inputs.py
    len(tokens_a) > len(tokens_b) -> len(tokens_a) >= len(tokens_b)
added_tokens.py: extensions/late_interaction/test_added_markers.py
    markers.setdefault(word, number) != number -> markers.setdefault(word, number) < 0
    not in _MARKER_CLASSES -> is None
tokenization.py: extensions/late_interaction/test_added_markers.py
    lines[number] = marker -> lines[number - 1] = marker
extensions/late_interaction/token_features.py: extensions/late_interaction/test_token_features.py
    [first, marker, others] -> [marker, first, others]
data/pretraining/exact.py: compat/test_training_instances.py
    2 + randbelow(max_num_tokens - 1, getrandbits) -> 2 + randbelow(max_num_tokens, getrandbits)
data/pretraining/exact.py: commands/test_create_pretraining_data.py
    first = middle  # -> first = end  #
    if a_length > b_length -> if a_length >= b_length
    if draw() < 0.8 -> if draw() < 0.801
    len(chosen) + len(word) <= count -> len(chosen) + len(word) < count
    shuffle(order, rng.getrandbits) -> pass
    round(length * masked_lm_prob) -> int(length * masked_lm_prob)
data/pretraining/one_shard.py: data/pretraining/test_pairs.py data/pretraining/test_one_shard.py
    other += other >= runs.document -> other += other > runs.document
    max_num_tokens - max_num_tokens // 2  # -> max_num_tokens // 2  #
    stream(config.random_seed, number, _PAIRS) -> stream(config.random_seed, _PAIRS)
    _CUT_B = 1 << 40 -> _CUT_B = 1 << 8
data/pretraining/masks.py: data/pretraining/test_masks.py
    np.clip(counts, 1, max_predictions_per_seq) -> np.clip(counts, 0, max_predictions_per_seq)
    starts = candidates & ~self._continues[input_ids] -> starts = candidates
    starts[:, 1] |= candidates[:, 1] -> pass
    (keys_left & _SIZE) > room[:, None] -> (keys_left & _SIZE) >= room[:, None]
    candidates &= ids != special -> pass
    stream(self._seed, passes, records) -> stream(self._seed, records)
data/pretraining/documents.py: data/pretraining/test_documents.py
    held[num_documents % num_shards] -> held[(num_documents + 1) % num_shards]
data/pretraining/vocabulary.py: data/pretraining/test_vocabulary.py
    longer[:num_free] -> longer[: num_free - 1]
data/pretraining/shards.py: data/pretraining/test_shards.py
    if files.exists(job.manifest_file): -> if False:
    if report.get("key") == key and -> if
data/records/framing.py: data/records/test_framing.py data/records/test_examples.py
    0xA282EAD8 -> 0xA282EAD9
    framed[(k - self.num_written) % -> framed[k %
    if _read(file, _CHECKSUM.size) != _checksum(data): -> if not _read(file, _CHECKSUM.size):
    fileobj=file, mtime=0) -> fileobj=file)
data/records/pretraining_input.py: data/records/test_pretraining_input.py
    RECORDS_SHUFFLED = 100 -> RECORDS_SHUFFLED = 10
    dataset.shuffle(RECORDS_SHUFFLED, seed=seed) -> dataset.shuffle(RECORDS_SHUFFLED, seed=0)
    (parsed[name] < limit.below) -> (parsed[name] <= limit.below)
    key += ("shuffles each pass",) -> pass
data/tables.py: data/test_tables.py
    text.removeprefix("\ufeff") -> text
data/tag_schemes.py: data/test_tag_schemes.py data/test_tables.py
    tag[0] == old_mark and _begins_chunk(before, tag) -> tag[0] == old_mark
    before == OUTSIDE or tag[1:] != before[1:] -> tag[1:] != before[1:]
    "I": "I", "L": "I", "U": "B" -> "I": "I", "L": "B", "U": "B"
data/column_roles.py: data/test_column_roles.py
    [fold_name(name) == fold_name(column) for name in names] -> [False for name in names]
    len(free) > 1 and not role.is_list -> len(free) > 2 and not role.is_list
    if number not in assignments] -> ]
checkpoints/names.py: checkpoints/test_names.py checkpoints/test_huggingface.py
    {huggingface}.weight", transposed=True) -> {huggingface}.weight")
    or tf1.rpartition("/")[2] in (*SLOTS, AVERAGE) -> or False
checkpoints/huggingface.py: checkpoints/test_huggingface.py
    np.ascontiguousarray(tensor.T) if entry.transposed -> np.ascontiguousarray(tensor) if entry.transposed
    tensor = tensor.T if entry.transposed else tensor -> pass
    {"format": "pt"} -> {"format": "tf"}
extensions/distilbert/model_type.py: extensions/distilbert/test_model_type.py extensions/distilbert/test_folders.py
    "q_lin": "self.query" -> "q_lin": "self.key"
    bert_fields["pooler_act"] = "relu" -> bert_fields["pooler_act"] = "tanh"
checkpoints/tf1.py: checkpoints/test_tf1.py
    if checksum != zlib.crc32(content[: -_CHECKSUM.size]): -> if False:
    LARGEST_WEIGHT = 1e6 -> LARGEST_WEIGHT = 1e30
    listdir(folder), key=lambda name: name -> listdir(folder), key=lambda name: not name
    key=lambda name: not name.endswith(".index") -> key=lambda name: name.endswith(".index")
checkpoints/manager.py: checkpoints/test_manager.py
    self._check_inputs(self._read_step(checkpoint)) -> pass
    tf1.append_checksum(temporary) -> pass
    self._workers.wait()  # -> pass  #
    self._workers.any_worker(invalid is not None) -> invalid is not None
checkpoints/folder.py: checkpoints/test_manager.py
    key=lambda name: name != STATE_NAME) -> key=lambda name: name == STATE_NAME)
checkpoints/loading.py: checkpoints/test_loading.py
    not in variables and not names.is_training_state(name) -> not in variables
    name.startswith(names.ENCODER)] -> name.startswith("cls")]
io/writing.py: io/test_files.py checkpoints/test_manager.py
    temporary = None if files.is_special(path) else _temporary(target, removes_left) -> temporary = None
io/processes.py: io/test_processes.py
    signal.raise_signal(arrived[0]) -> pass
tasks/squad/answers.py: tasks/squad/test_answers.py
    (num_tokens <= rules.max_answer_length) -> (num_tokens < rules.max_answer_length)
    null_odds[qas_id] > null_score_diff_threshold -> null_odds[qas_id] >= null_score_diff_threshold
    if text in seen: -> if False:
    return min( nulls, key= -> return max( nulls, key=
    CERTAINLY_NO_ANSWER = 1000000.0 -> CERTAINLY_NO_ANSWER = 0.0
    kind="stable")[:n_best_size] -> kind="stable")[: n_best_size - 1]
tasks/squad/windows.py: tasks/squad/test_windows.py
    is_better = score > best[window] -> is_better = score >= best[window]
    max_seq_length - len(query) - 3 -> max_seq_length - len(query) - 4
    answer[1] >= start + length -> answer[1] > start + length
    end - len(answer) + 2) -> end - len(answer) + 1)
    if example.end_position < len(example.doc_tokens) - 1: -> if example.end_position < len(example.doc_tokens) - 2:
tasks/squad/graph_answers.py: tasks/squad/test_graph_answers.py
    odds <= rules.null_score_diff_threshold -> odds < rules.null_score_diff_threshold
    unsorted_segment_min(scores, texts -> unsorted_segment_max(scores, texts
tasks/squad/examples.py: tasks/squad/test_examples.py
    [^ \t\r\n\u202f]+ -> [^ \t\r\n]+
    end = start + len(text) - 1 -> end = start + len(text)
metrics/calibration.py: metrics/test_calibration.py
    if slope < 0: -> if slope > 0:
    np.ceil(confidences * num_bins).astype(int) - 1 -> np.floor(confidences * num_bins).astype(int)
metrics/classification.py: metrics/test_classification.py
    np.cumsum(counts) - (counts - 1) / 2 -> np.cumsum(counts)
    targets.astype(np.int64) * num_labels + predictions -> predictions.astype(np.int64) * num_labels + targets
metrics/embeddings.py: metrics/test_embeddings.py
    np.append(scores[1:] != scores[:-1], True) -> np.append(scores[1:] == scores[1:], True)
    np.append(num_others, num_others + 2 -> np.append(0, num_others + 2
    np.where(middles == below, scores, middles) -> middles
    np.mean(with_positive > with_negative) -> np.mean(with_positive >= with_negative)
    if len(rows) and not np.array_equal(rows, ranked_rows[number]) -> if len(rows)
    min(_DEPTH, num_relevant) -> num_relevant
    _DISCOUNTS[:num_relevant].sum() -> _DISCOUNTS.sum()
    np.where(others < rows[:, None], -> np.where(others > rows[:, None],
    block, relevant_rows[first:] -> block, relevant_rows
    rows=rows, most=_DEPTH -> rows=rows, most=_SHALLOW
metrics/cosines.py: metrics/test_embeddings.py
    np.argsort(-scores, kind="stable")[:most] -> np.argsort(-scores)[:most]
    return (unit_vectors(queries) @ unit_vectors(corpus).T) -> return (queries @ corpus.T)
extensions/probing/metrics.py: extensions/probing/test_metrics.py
    default_rng([seed, num_shots, draw]) -> default_rng([seed, draw])
    num_shots, replace=False) -> num_shots)
    np.std(accuracies, ddof=1) -> np.std(accuracies)
    random_state=seed -> random_state=0
metrics/squad.py: metrics/test_squad.py
    \b(a|an|the)\b -> \b(a|the)\b
    null_odds[qas_id] > null_odds_threshold -> null_odds[qas_id] >= null_odds_threshold
metrics/entities.py: metrics/test_entities.py
    before in "BI" and type_ == type_before -> before in "BI"
tasks/classification/glue.py: tasks/classification/test_glue.py
    labelled = Layout(text_a=3, label=1, has_header=False) -> labelled = Layout(text_a=3, label=1)
    _NLI_LABELS = ("contradiction", "entailment", "neutral") -> _NLI_LABELS = ("entailment", "contradiction", "neutral")
    _HIGHEST_SCORE = 5.0 -> _HIGHEST_SCORE = 10.0
    "contradictory": "contradiction" -> "contradictory": "neutral"
tasks/classification/task.py: tasks/classification/test_task.py
    real * ops.take(weights -> real + ops.take(weights
tasks/classification/text.py: tasks/classification/test_text.py
    sorted(distinct_labels, key=lambda label: (int(label), label)) -> sorted(distinct_labels)
tasks/classification/windows.py: tasks/classification/test_windows.py
    return np.cumsum(counts) - counts -> return np.cumsum(counts) - 1
tasks/tagging/windows.py: tasks/tagging/test_windows.py
    start + room, side="right") -> start + room, side="left")
    for mark in "BI" -> for mark in "IB"
tasks/choice/examples.py: tasks/choice/test_choice.py
    f"{start} {ending}" -> f"{ending} {start}"
tasks/pretraining/objective.py: tasks/pretraining/test_objective.py
    if self.use_next_sentence_loss else 0.0 -> if not self.use_next_sentence_loss else 0.0
extensions/distillation/pretraining.py: extensions/distillation/test_pretraining.py -k formula
    theirs[number * last // count] -> theirs[number]
    parts.shape[-1] ** -0.5 + bias -> parts.shape[-1] ** -0.5
    self._weight * sum(shares.values()) -> sum(shares.values())
training/batches.py: training/test_example_batches.py
    credits[number] -= total -> pass
    LENGTH_MULTIPLE = 8 -> LENGTH_MULTIPLE = 4
    default_rng([seed, epoch]) -> default_rng([seed])
    assign_add(num_batches * self._batch_size) -> assign_add(num_batches)
training/calls.py: training/test_loop.py
    FIRST_LOG_STEPS = 10 -> FIRST_LOG_STEPS = 5
    step == self.num_train_steps or any( -> any(
training/precision.py: training/test_precision.py -k scale_is
    GROWTH_UPDATES = 2000 -> GROWTH_UPDATES = 1000
    self._scale * 0.5 -> self._scale * 0.25
    tf.where(is_applied, self._num_good + 1, 0) -> self._num_good + 1
training/step.py: training/test_step.py
    gradient_scale = clip_scale(norm) -> pass
training/step.py: commands/test_run_pretraining.py
    seed[2] + index * num_examples -> seed[2]
training/step.py: test_replicas.py
    part_seed(seed, replica * num_examples, num_examples) -> part_seed(seed, 0, num_examples)
training/whole_batch.py: training/test_whole_batch.py
    vectors - tf.stop_gradient(vectors) -> 0.0 * vectors
    return self._objective.vectors(one, seeds[index]) -> return self._objective.vectors(one, None)
    losses = tf.repeat(loss / -> losses = tf.repeat(loss +
extensions/embeddings/losses.py: extensions/embeddings/test_losses.py
    logits = ops.where(find_false_negatives(features["text_ids"]), _EXCLUDED, logits) -> pass
    right))) / 2.0 -> right)))
    similarities[:, None] - similarities[None, :] -> similarities[None, :] - similarities[:, None]
    scores[:, None] < scores[None, :] -> scores[:, None] <= scores[None, :]
    near - far + self.triplet_margin -> near - far
    is_nearer = teacher_cosines > right_cosines[:, None] -> is_nearer = teacher_cosines < -2
    is_excluded = ops.logical_and(is_false_negative, ~is_right) -> is_excluded = is_false_negative
    negative_terms = (1.0 - labels) * ops.square(gaps) -> negative_terms = ops.square(gaps)
    is_hard_negative = ops.logical_and(is_negative, distances < upper_limit) -> is_hard_negative = is_negative
    if self._loss.learns_targets: -> if "targets" in features:
serving/shared_encoder.py: serving/test_shared_encoder.py
    if tf.compat.v1.get_default_graph() is self._graph: -> if True:
    if not self._calls: -> if True:
    if all(value is other for value, other in -> if all(False for value, other in
    pooled = pooled_vectors(vectors, features[1], layer.config.direction) -> pooled = vectors[:, -1]
modeling/layers.py: serving/test_shared_encoder.py
    token = _OVERRIDES.set((compute, *_OVERRIDES.get())) -> token = _OVERRIDES.set((compute,))
extensions/many_heads/shared_outputs.py: extensions/many_heads/test_predictor.py
    if key not in self._rows: -> if True:
    self._rows[first,] = row -> pass
extensions/many_heads/head_model.py: extensions/many_heads/test_predictor.py
    if shared is None or not pads_to_longest: -> if True:
    self._targets = {each: name if self._has_signature -> self._targets = {each: name if False
extensions/many_heads/head_records.py: extensions/many_heads/test_predictor.py
    if record.labels != summarize_labels(labels): -> if False:
extensions/many_heads/client.py: extensions/many_heads/test_predictor.py
    answer = {**answer, CUT: True} -> pass
    return texts[: len(predictor.columns)] -> return texts
extensions/serve/hosted_models.py: extensions/serve/test_heads.py
    predictors[f"{name}/{head}"] = head_predictor -> pass
extensions/serve/tensor_requests.py: extensions/serve/test_heads.py
    if signature in model.predictor.heads: -> if False:
extensions/multitask/folders.py: extensions/multitask/test_lora.py
    if adapters := checkpoint.read_adapters(weight_name): -> if adapters := []:
extensions/runtimes/tflite_metadata.py: extensions/runtimes/test_mediapipe.py
    builder.Prep(_ALIGNMENT, len(model)) -> pass
extensions/runtimes/parts.py: extensions/runtimes/test_parts.py
    widest = max( -> widest = min(
    max_rows = max(1, limit // row_tokens) -> max_rows = max(1, limit)
extensions/runtimes/litert.py: extensions/runtimes/test_parts.py
    @split_batches -> # not split
extensions/runtimes/mediapipe_file.py: extensions/runtimes/test_mediapipe.py
    if not tokenizer.basic_tokenizer.do_lower_case: -> if False:
extensions/many_heads/heads.py: extensions/many_heads/test_export.py
    if _find_difference(group[0], head) is None: -> if False:
extensions/multitask/joint_set.py: extensions/multitask/test_joint_set.py
    joined[:, :length] += ids -> joined[:, :length] = ids
    order = example_order(sizes[number], seed + number, set_buffer) -> order = example_order(sizes[number], seed + number, 0)
extensions/serve/batching.py: extensions/serve/test_batching.py
    if num_padded_tokens > max_tokens: -> if num_tokens > max_tokens:
    num_secs <= 0 or self._is_closed: -> self._is_closed:
    if len(rows) > 1: -> if False:
extensions/onnx_files/onnx_products.py: extensions/onnx_files/test_onnx_writer.py extensions/onnx_files/test_onnx_text.py -k "8_bits or windows"
    integers, scales = _round(kernel, largest / _MAX_INTEGER) -> integers, scales = _round(kernel, largest / 63)
    key = (graph.block, x) -> key = ("", x)
extensions/onnx_files/onnx_translator.py: extensions/onnx_files/test_onnx_operations.py -k loops
    if tensor is not body.inputs[index]: -> if index == 0:
extensions/onnx_files/onnx_ragged.py: extensions/onnx_files/test_onnx_operations.py -k Ragged
    rows = self.add(num_begun, -1) -> rows = num_begun
    index = self.where(is_value, index, -1) -> index = self.where(is_value, index, 0)
extensions/onnx_files/onnx_ragged_operations.py: extensions/onnx_files/test_onnx_operations.py
    multiple = graph.node("Sub", a, graph.node("Mod", a, b)) -> multiple = a
    graph.node("Max", counts, ragged.number(1)) -> graph.node("Max", counts, ragged.number(0))
extensions/onnx_files/onnx_tokenizer.py: extensions/onnx_files/test_onnx_text.py -k "words_and_offsets"
    texts = characters.parts if is_each_alone else characters.rows -> texts = characters.rows
    is_same_part = self.is_above(next_positions, 0) -> is_same_part = self.is_above(next_positions, -1)
    piece_lengths = self.where(is_unknown, all_lengths, lengths) -> piece_lengths = lengths
graph_text/vocabulary_tree.py: graph_text/test_vocabulary_tree.py extensions/onnx_files/test_onnx_text.py -k "tree or code_point"
    state = REST_ROOT -> state = WORD_ROOT
extensions/multitask/sampling.py: extensions/multitask/test_joint_set.py
    fall = 1.0 - _LAST_EXPONENT -> fall = 1.0
    last_epoch = max(1, num_epochs - 1) -> last_epoch = max(1, num_epochs)
extensions/multitask/objective.py: extensions/multitask/test_command.py
    tf.switch_case(features[TASK_NUMBER][0], branches) -> branches[0]()
data/joined_sets.py: extensions/mixtures/test_mixed_set.py extensions/multitask/test_joint_set.py
    set_rows = rows[places] - self._starts[number] -> set_rows = rows[places]
extensions/mixtures/mixed_set.py: extensions/mixtures/test_mixed_set.py
    weights = [1] * len(sizes) -> pass
    yield start + index -> yield index
    example_order(size, seed + number, buffer_size) -> example_order(size, number, buffer_size)
extensions/mixtures/task.py: extensions/mixtures/test_command.py
    tf.switch_case(features[SET_NUMBER][0], branches) -> branches[0]()
data/text_examples.py: data/test_text_examples.py
    for positive in example.positives -> for positive in example.positives[:1]
    min((count for count in counts if count), default=0) -> max((count for count in counts if count), default=0)
    if len(example.negatives) < num_negatives: -> if not example.negatives:
data/text_tables.py: data/test_text_tables.py
    is_list=name == NEGATIVE -> is_list=False
extensions/embeddings/evaluation.py: extensions/embeddings/test_evaluation.py extensions/embeddings/test_command.py
    right and right != candidates: -> right:
    example.score() > 0 -> True
    scored = [example for example in examples if example.label] -> scored = examples
training/trainer.py: training/test_trainer.py training/test_fit.py
    checkpoints.restore_input(batches.state) -> pass
    self.finish_saving(if_ended=True) return False -> return False
    saves_in_background=True, -> saves_in_background=False,
training/distribution.py: training/test_distribution.py
    slice(replica * size, (replica + 1) * size) -> slice(0, size)
training/workers.py: training/test_workers.py
    0 <= index < len(hosts[role]) -> 0 <= index <= len(hosts[role])
training/periodic_evaluation.py: training/test_periodic_evaluation.py
    self.finish_saving() -> pass
    evaluated > best_step -> evaluated >= best_step
    line["step"] <= self.first_step -> line["step"] < self.first_step
training/reporting.py: training/test_reporting.py
    self._sums[GRADIENT_NORM] / self._num_steps -> self._sums[GRADIENT_NORM]
training/run_log.py: training/test_run_log.py
    b"\n" * is_half + line -> line
graph_text/tokenizer.py: graph_text/test_tokenizer.py
    is_after & ~is_before -> is_after
    characters.parts + stripped, source -> characters.parts, source
    tokens.lengths > self._max_word_chars -> tokens.lengths >= self._max_word_chars
    lengths <= rest[:, None] -> lengths <= rest[:, None] + 1
graph_text/graph_tokenizer.py: graph_text/test_tokenizer.py
    is_exact = spans == -> is_exact = spans >=
graph_text/text_reader.py: graph_text/test_text_reader.py
    has_next = behind < text_lengths[:, None] -> has_next = behind <= text_lengths[:, None]
    segments[0].row_lengths() + 2 -> segments[0].row_lengths() + 1
    0.01 * tf.cast( -> -0.01 * tf.cast(
serving/signatures.py: serving/test_signatures.py
    (lowest >= 0) & (highest < limit) -> (lowest >= 0) & (highest <= limit)
    lengths % num_choices == 0 -> lengths % num_choices >= 0
serving/export.py: serving/test_export.py
    default=0) + 1) -> default=0) + 2)
    _gfile.rmtree(temporary) -> pass
extensions/experiments/planner.py: extensions/experiments/test_plan.py
    if any(phase.get(name) -> if all(phase.get(name)
    (phase_flags | row.pretraining).get( -> phase_flags.get(
    start += int(phase.continued.root.flag(_STOP_FLAG)) -> start += 0
    flags |= phase_flags | row_flags | {"random_seed" -> flags |= row_flags | phase_flags | {"random_seed"
    if "use_next_sentence" in phase_flags: -> if "next_sentence" in phase_flags:
extensions/experiments/table.py: extensions/experiments/test_table.py
    NOISE_ERRORS = 2.0 -> NOISE_ERRORS = 1.0
metrics/summaries.py: metrics/test_summaries.py
    statistics.stdev(values) -> statistics.pstdev(values)
extensions/experiments/execution.py: extensions/experiments/test_execution.py
    return pending[::-1] -> return pending
extensions/distillation/fine_tuning.py: extensions/distillation/test_fine_tuning.py -k "squad or tagging or refused"
    pads_to_longest and not reads_padding -> pads_to_longest
    outputs = self._teacher_outputs[rows] -> outputs = self._teacher_outputs[: len(rows)]
    if labels != teacher_labels: -> if len(labels) != len(teacher_labels):
extensions/distillation/create_student.py: extensions/distillation/test_create_student.py
    (num_layers - 1) // max(count - 1, 1) -> num_layers // count
fine_tuning/search.py: fine_tuning/test_search.py
    range(first_seed, first_seed + restarts) -> range(restarts)
    return bool(metric), -math.inf -> return bool(metric), math.inf
fine_tuning/finetuner.py: fine_tuning/test_finetuner.py training/test_trainer.py
    int(num_train_steps * options.warmup_proportion) -> round(num_train_steps * options.warmup_proportion)
extensions/adaptation/plugin.py: extensions/adaptation/test_plugin.py
    range(flags.freeze_layers or 0) -> range(flags.freeze_layers or 1)
    int(layer[1]) + 1 -> int(layer[1])
commands/launch.py: commands/test_launch.py
    {"type": "worker", "index": index} -> {"type": "worker", "index": 0}
    if all(status == 1 for status in statuses) -> if any(status == 1 for status in statuses)
compat/input_functions.py: compat/test_input_functions.py
    dataset.repeat().shuffle(_BUFFER_SIZE) -> dataset.shuffle(_BUFFER_SIZE).repeat()
io/operating_system.py: io/test_operating_system.py
    _LOCKED_BYTE = 1 << 20 -> _LOCKED_BYTE = 0
    if not waits: raise -> if waits: raise
    if not _HAS_GROUPS: return True -> if not _HAS_GROUPS: return False
config.py: test_config.py
    "gelu": "gelu_new", "gelu_erf": "gelu" -> "gelu": "gelu", "gelu_erf": "gelu_new"
    0 <= value < 1 -> 0 <= value <= 1
cli/flags.py: cli/test_flags.py
    lambda value: value is not None, sentence -> lambda value: True, sentence
"""


class Change(NamedTuple):
    """A change of one place in a file of official_bert/, and the arguments of pytest that choose
    tests for it.
    """

    file: str
    old: str
    new: str
    tests: str

    @property
    def pattern(self) -> re.Pattern:
        """The pattern of `old`, in which a blank matches any space, also the end of a line."""
        return re.compile(r"\s+".join(map(re.escape, self.old.split(" "))))


def changes() -> Iterator[Change]:
    file = tests = ""
    for line in filter(None, TABLE.splitlines()):
        if line.startswith(" "):
            yield Change(file, *line.strip().split(" -> "), tests)
        else:
            file, _, named = line.partition(": ")
            are_there = ((word, (ROOT / "tests" / word).exists()) for word in named.split())
            tests = " ".join(f"tests/{word}" if is_there else word for word, is_there in are_there)


def is_in_deleted_extension(file: str) -> bool:
    """Returns whether a file was in the folder of an extension that somebody has deleted."""
    room, _, rest = file.partition("/")
    extension = rest.partition("/")[0]
    return room == "extensions" and not (ROOT / "official_bert" / room / extension).exists()


def problems() -> Iterator[str]:
    """Yields what is wrong with the table: places that are not there, or not once, and tests
    that do not exist.
    """
    for number, change in enumerate(changes(), 1):
        if is_in_deleted_extension(change.file):
            continue
        text = (ROOT / "official_bert" / change.file).read_text(encoding="utf-8")
        count = len(change.pattern.findall(text))
        if count != 1:
            yield f"row {number}: {change.file} has {change.old!r} {count} times"
        for word in change.tests.split():
            is_file = "/" in word and not word.startswith("tests/")
            if is_file and not is_in_deleted_extension(word):
                yield f"row {number}: no tests/{word}"


def copy_tracked(folder: pathlib.Path):
    """Copies the tracked files, with `shared` beside them, where tests look for it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        target = folder / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())


def tried(original: str, change: Change) -> dict:
    """Makes a change in a copy, runs its tests there, and returns what happened."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(original, folder, symlinks=True, dirs_exist_ok=True)
        path = pathlib.Path(folder, "tree", "official_bert", change.file)
        text = change.pattern.sub(lambda _: change.new, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        process = PROCESSES.Process(target=run_tests, args=(change.tests, folder))
        process.start()
        process.join(LIMIT_SECS)
        if timed_out := process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        output = pathlib.Path(folder, "output").read_text(encoding="utf-8", errors="replace")
    if not timed_out and process.exitcode not in (0, 1, 2):  # 2 is a module that cannot be imported
        raise RuntimeError(
            f"{change.tests}: pytest ended with status {process.exitcode}:\n{output}"
        )
    result = "timeout" if timed_out else "caught" if process.exitcode else "survived"
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", output, re.MULTILINE)
    secs = round(time.monotonic() - start, 1)
    return change._asdict() | {"result": result, "failed": failed and failed[1], "secs": secs}


def run_tests(tests: str, folder: str):
    """Runs pytest in a copy, and ends this process with its status; the output goes into a file
    beside the copy.
    """
    os.setsid()
    output = os.open(os.path.join(folder, "output"), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    tree = os.path.join(folder, "tree")
    os.chdir(tree)
    sys.path[0] = tree
    sys.exit(pytest.main([*PYTEST, *shlex.split(tests)]))


def parse_numbers(text: str) -> list[int]:
    """Returns the numbers in a list such as 3,7-20, in its order."""
    bounds = [list(map(int, part.split("-"))) for part in text.split(",")]
    return [number for part in bounds for number in range(part[0], part[-1] + 1)]


def read_results(path: pathlib.Path) -> dict[Change, dict]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {Change(*(row[name] for name in Change._fields)): row for row in map(json.loads, lines)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", help="numbers of changes, from 1, such as 3,7-20; by default all")
    parser.add_argument(
        "--results", type=pathlib.Path, default=RESULTS, help="the file that the rows are added to"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="the number of changes that are tried at a time"
    )
    parser.add_argument(
        "--check", action="store_true", help="only check that the table fits the files"
    )
    flags = parser.parse_args()

    if faults := list(problems()):
        sys.exit("\n".join(faults))
    table = list(changes())
    print(f"{len(table)} changes in {len({change.file for change in table})} files")
    if not flags.check:
        chosen = (
            [table[number - 1] for number in parse_numbers(flags.rows)] if flags.rows else table
        )
        try_all(chosen, flags.results, flags.jobs)


def try_all(chosen: list[Change], path: pathlib.Path, num_jobs: int):
    PROCESSES.set_forkserver_preload(LOADED)
    results = read_results(path)
    pool = concurrent.futures.ThreadPoolExecutor(num_jobs)
    with tempfile.TemporaryDirectory() as folder, open(path, "a", encoding="utf-8") as file:
        copy_tracked(pathlib.Path(folder))
        compileall.compile_dir(folder, quiet=1)
        todo = [pool.submit(tried, folder, change) for change in chosen if change not in results]
        try:
            for future in concurrent.futures.as_completed(todo):
                row = future.result()
                print(f"{row['result']:8}  {row['file']}: {row['old']} -> {row['new']}", flush=True)
                file.write(json.dumps(row) + "\n")
                file.flush()
        finally:
            pool.shutdown(cancel_futures=True)  # after an error, too
    results = read_results(path)
    survivors = [change for change in chosen if results[change]["result"] == "survived"]
    print(
        f"\n{len(chosen) - len(survivors)} of {len(chosen)} were caught, "
        f"{1 - len(survivors) / len(chosen):.1%}\n"
    )
    print("| file | change | tests |\n|---|---|---|")
    for file, old, new, tests in survivors:
        print(f"| {file} | `{old}` to `{new}` | {tests} |")


if __name__ == "__main__":
    main()
