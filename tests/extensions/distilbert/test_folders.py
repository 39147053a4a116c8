"""Folders of DistilBERT give the outputs of PyTorch's classes, in commands that read a model."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from official_bert import (
    BertChoice,
    BertClassifier,
    BertModel,
    BertPretrainer,
    BertSpans,
    BertTagger,
    FullTokenizer,
    Predictor,
)
from official_bert.checkpoints import open_checkpoint
from official_bert.commands import convert_checkpoint, grow_vocab
from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.options.serving import ConversionOptions, GrowthOptions
from tests.extensions.distilbert.folders import make_tensors, write_folder
from tests.extensions.distilbert.record_outputs import CLASSES, LABELS, OUTPUTS, record
from tests.fine_tuning_runs import needs_family
from tests.golden.record_transformers import PAIRS, TEXTS
from tests.scripts import run_here

MASKED_LM = "DistilBertForMaskedLM"
CLASSIFIER = "DistilBertForSequenceClassification"
TAGGER = "DistilBertForTokenClassification"
SEGMENTS = "bert/embeddings/token_type_embeddings"


@pytest.fixture(scope="module")
def recorded():
    return dict(np.load(OUTPUTS))


@pytest.fixture(scope="module")
def folders(tmp_path_factory, recorded):
    """A folder with the folder of each class."""
    parent = tmp_path_factory.mktemp("distilbert")
    for name in CLASSES:
        write_folder(parent / name, name, make_tensors(name, recorded))
    return parent


def compute_outputs(name: str, folder: str) -> dict[str, np.ndarray]:
    """Compute the recorded outputs of a class with the weights in a folder."""
    batch = FullTokenizer.from_pretrained(folder)(TEXTS, PAIRS, padding=True, return_tensors="tf")
    if name == "DistilBertModel":
        return {"last_hidden_state": BertModel.from_pretrained(folder)(batch).sequence_output}
    if name == MASKED_LM:
        return {"logits": BertPretrainer.from_pretrained(folder)(batch).masked_lm_logits}
    if name == "DistilBertForQuestionAnswering":
        start, end = BertSpans.from_pretrained(folder)(batch)
        return {"start_logits": start, "end_logits": end}
    if name == "DistilBertForMultipleChoice":
        batch = {key: value[None] for key, value in batch.items()}
        return {"logits": BertChoice.from_pretrained(folder)(batch)}
    model_class = BertClassifier if name == CLASSIFIER else BertTagger
    return {"logits": model_class.from_pretrained(folder)(batch)}


def check_outputs(name: str, folder: str, expected):
    outputs = compute_outputs(name, folder)
    assert outputs.keys() == set(CLASSES[name])
    for output, values in outputs.items():
        np.testing.assert_allclose(values, expected[f"{name}.{output}"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CLASSES)
def test_the_outputs_are_those_of_pytorch(name, folders, recorded):
    check_outputs(name, str(folders / name), recorded)


@pytest.mark.needs_extra("torch", "transformers")
def test_the_outputs_are_those_of_the_installed_classes(tmp_path):
    file = tmp_path / "outputs.npz"
    record(tmp_path, file)
    for name in CLASSES:
        check_outputs(name, str(tmp_path / name), dict(np.load(file)))


def test_half_precision_and_names_with_the_prefix(tmp_path, folders, recorded):
    """A file of transformers' DistilBertModel has no prefix, and those of the other classes do."""
    tensors = {}
    for name, value in make_tensors("DistilBertModel", recorded).items():
        tensors[f"distilbert.{name}"] = value.astype(np.float16)
    folder = write_folder(tmp_path / "half", "DistilBertModel", tensors)
    checkpoint = open_checkpoint(str(folder))
    whole = open_checkpoint(str(folders / "DistilBertModel"))
    assert checkpoint.shapes == whole.shapes
    for name in whole.shapes:
        np.testing.assert_array_equal(
            checkpoint.read(name),
            whole.read(name).astype(np.float16).astype(np.float32),
        )


def test_the_segments_are_zero_and_both_are_there(folders):
    checkpoint = open_checkpoint(str(folders / MASKED_LM))
    assert checkpoint.shapes[SEGMENTS] == (2, 32)
    np.testing.assert_array_equal(checkpoint.read(SEGMENTS), np.zeros((2, 32)))


def test_only_what_distilbert_lacks_is_random(folders, caplog):
    """The pooler of an encoder is named; a masked LM needs none."""
    BertPretrainer.from_pretrained(str(folders / MASKED_LM))
    assert "WARNING" not in {record.levelname for record in caplog.records}
    BertModel.from_pretrained(str(folders / "DistilBertModel"))
    assert "initialised: bert/pooler/dense/kernel, bert/pooler/dense/bias" in caplog.text


def test_an_output_matrix_of_its_own_is_refused(tmp_path, recorded):
    tensors = make_tensors(MASKED_LM, recorded)
    table = tensors["distilbert.embeddings.word_embeddings.weight"]
    tied = write_folder(tmp_path / "tied", MASKED_LM, tensors | {"vocab_projector.weight": table})
    check_outputs(MASKED_LM, str(tied), recorded)
    tensors["vocab_projector.weight"] = table + 1
    untied = write_folder(tmp_path / "untied", MASKED_LM, tensors)
    message = "vocab_projector.weight differs from distilbert.embeddings.word_embeddings.weight"
    with pytest.raises(InputError, match=message):
        open_checkpoint(str(untied))


def compute_softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(np.float64(logits) - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def test_a_predictor_answers_with_the_labels(folders, recorded):
    predictor = Predictor(str(folders / CLASSIFIER))
    answer = predictor.classify(TEXTS[1], PAIRS[1])
    logits = recorded[f"{CLASSIFIER}.logits"][1]
    assert answer["label"] == LABELS[CLASSIFIER][logits.argmax()]
    assert answer["score"] == pytest.approx(compute_softmax(logits).max(), abs=1e-5)

    tags = Predictor(str(folders / TAGGER))(TEXTS[0])["tags"]
    assert [word["word"] for word in tags] == ["The", "cat", "sat", "on", "the", "mat", "."]

    (best, *_) = Predictor(str(folders / MASKED_LM)).fill_mask(TEXTS[0], PAIRS[0])
    tokenizer = FullTokenizer.from_pretrained(str(folders / MASKED_LM))
    ids = np.asarray(tokenizer(TEXTS, PAIRS, padding=True)["input_ids"])[0]
    (position,) = np.flatnonzero(ids == tokenizer.vocab["[MASK]"])
    logits = recorded[f"{MASKED_LM}.logits"][0, position]
    assert best["token"] == tokenizer.inv_vocab[int(logits.argmax())]


def test_an_encoder_is_trained_as_a_classifier_and_exported(folders, tmp_path):
    """The new head has the form of DistilBERT's, and the export gives its logits."""
    rows = ["label\ttext", *["good\tThe cat sat.", "bad\tIt was rain."] * 8]
    (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
    trained = tmp_path / "trained"
    run_here(
        "run_classifier",
        "--task_name=text",
        f"--model={folders / 'DistilBertModel'}",
        f"--train_file={tmp_path / 'train.tsv'}",
        f"--output_dir={trained}",
        "--do_train",
        "--num_train_epochs=1",
        "--train_batch_size=8",
        "--max_seq_length=16",
    )
    config = BertConfig.from_json_file(str(trained / "bert_config.json"))
    assert config.pooler_act == "relu"
    checkpoint = open_checkpoint(str(trained))
    assert checkpoint.shapes["bert/pooler/dense/kernel"] == (32, 32)

    text = "The cat sat on the mat."
    features = FullTokenizer.from_pretrained(str(trained))(text)
    output = BertModel.from_pretrained(str(trained))(features)
    first_vector = output.sequence_output.numpy()[0, 0]
    kernel = checkpoint.read("bert/pooler/dense/kernel")
    pooled = np.maximum(first_vector @ kernel + checkpoint.read("bert/pooler/dense/bias"), 0)
    logits = checkpoint.read("output_weights") @ pooled + checkpoint.read("output_bias")
    labels = (trained / "labels.txt").read_text().split()
    expected = dict(zip(labels, compute_softmax(logits), strict=True))

    run_here(
        "export_saved_model",
        f"--model={trained}",
        f"--export_dir={tmp_path / 'export'}",
    )
    for model in (trained, tmp_path / "export"):
        answer = Predictor(str(model))(text)
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)


def convert(model, output_dir, output_format: str):
    options = ConversionOptions(
        model=str(model),
        output_dir=str(output_dir),
        output_format=output_format,
    )
    convert_checkpoint.run(options)


@pytest.mark.parametrize("name", [CLASSIFIER, MASKED_LM, "DistilBertForQuestionAnswering"])
def test_a_conversion_to_the_format_of_the_original(name, folders, tmp_path, recorded, caplog):
    convert(folders / name, tmp_path / "tf1", "tf1")
    check_outputs(name, str(tmp_path / "tf1"), recorded)
    is_warned = "the original BERT does not know it and computes tanh there" in caplog.text
    assert is_warned == (name == CLASSIFIER)


def test_a_conversion_to_the_bert_of_transformers(folders, tmp_path, recorded):
    """A head on the pooled output is refused, since transformers' BERT has tanh there."""
    for name in (MASKED_LM, TAGGER, "DistilBertModel"):
        convert(folders / name, tmp_path / name, "huggingface")
        check_outputs(name, str(tmp_path / name), recorded)
        content = json.loads((tmp_path / name / "config.json").read_text())
        assert content["model_type"] == "bert"
        assert content["architectures"] == [name.removeprefix("Distil")]
    message = "pooler_act: is relu, which Hugging Face's BertForSequenceClassification would not"
    with pytest.raises(InputError, match=message):
        convert(folders / CLASSIFIER, tmp_path / "classifier", "huggingface")
    assert not (tmp_path / "classifier").exists()


def test_a_saved_encoder_has_no_pooler_in_the_format_of_transformers(folders, tmp_path):
    model = BertModel.from_pretrained(str(folders / "DistilBertModel"))
    model.save_pretrained(str(tmp_path / "saved"), "huggingface")
    names = list(safetensors.numpy.load_file(tmp_path / "saved" / "model.safetensors"))
    assert "embeddings.token_type_embeddings.weight" in names
    assert not [name for name in names if "pooler" in name]


def test_a_vocabulary_grows_and_the_folder_stays_a_distilbert(folders, tmp_path, recorded):
    words = tmp_path / "words.txt"
    words.write_text("bitcoin\n")
    grown = tmp_path / "grown"
    options = GrowthOptions(
        model=str(folders / MASKED_LM),
        words=str(words),
        output_dir=str(grown),
    )
    grow_vocab.run(options)
    old_tensors = make_tensors(MASKED_LM, recorded)
    tensors = safetensors.numpy.load_file(grown / "model.safetensors")
    assert tensors.keys() == old_tensors.keys()
    assert tensors["distilbert.embeddings.word_embeddings.weight"].shape == (51, 32)
    assert tensors["vocab_projector.bias"].shape == (51,)
    logits = compute_outputs(MASKED_LM, str(grown))["logits"][..., :-1]
    expected = recorded[f"{MASKED_LM}.logits"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def write_modules(folder):
    """Write the files of sentence-transformers for a mean, a dense layer with tanh, and a norm.

    Returns:
        The kernel, [out, in], and the bias of the dense layer.
    """
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    entries = []
    for number, kind in enumerate(kinds):
        path = f"{number}_{kind}" if number else ""
        kind_name = f"sentence_transformers.models.{kind}"
        entries.append({"idx": number, "name": str(number), "path": path, "type": kind_name})
        (folder / path).mkdir(exist_ok=True)
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    dense = {
        "in_features": 32,
        "out_features": 6,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    generator = np.random.default_rng(7)
    kernel = np.float32(generator.normal(size=(6, 32)))
    bias = np.float32(generator.normal(size=6))
    safetensors.numpy.save_file(
        {"linear.weight": kernel, "linear.bias": bias},
        folder / "2_Dense" / "model.safetensors",
    )
    return kernel, bias


def test_a_folder_of_sentence_transformers(folders, tmp_path):
    """As of distiluse: mean, dense layer with tanh, norm; numpy computes them from the encoder."""
    needs_family("embedding")
    from official_bert import SentenceEncoder

    plain = str(folders / "DistilBertModel")
    folder = tmp_path / "sentences"
    shutil.copytree(plain, folder)
    kernel, bias = write_modules(folder)
    tokenizer = FullTokenizer.from_pretrained(plain)
    model = BertModel.from_pretrained(plain)
    expected = []
    for text in TEXTS:
        vectors = model(tokenizer(text)).sequence_output.numpy()[0]
        mask = np.asarray(tokenizer(text)["input_mask"])[0] == 1
        vector = np.tanh(kernel @ vectors[mask].mean(axis=0) + bias)
        expected.append(vector / np.linalg.norm(vector))
    vectors = SentenceEncoder(str(folder)).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.needs_extra("sentence_transformers")
def test_the_vectors_are_those_of_sentence_transformers(folders, tmp_path):
    import sentence_transformers

    needs_family("embedding")
    from official_bert import SentenceEncoder

    folder = tmp_path / "sentences"
    shutil.copytree(folders / "DistilBertModel", folder)
    write_modules(folder)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    expected = theirs.encode(TEXTS)
    vectors = SentenceEncoder(str(folder)).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)

    # A folder that the library has saved itself.
    theirs.save(str(tmp_path / "saved"))
    vectors = SentenceEncoder(str(tmp_path / "saved")).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
