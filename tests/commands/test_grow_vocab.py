"""official-bert grow_vocab: where the words go, what their vectors are, and that nothing else
changes, in every format.
"""

import json

import numpy as np
import pytest
import safetensors.numpy

from official_bert import (
    BertClassifier,
    BertConfig,
    BertPretrainer,
    FullTokenizer,
    Predictor,
    model_dir,
)
from official_bert.checkpoints import huggingface, open_checkpoint, tf1
from official_bert.commands import grow_vocab
from official_bert.io.errors import InputError
from official_bert.options.serving import GrowthOptions
from official_bert.tokenizer_config import TokenizerConfig
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights, with_training_state
from tests.hostile.rows import edit_json

_PIECES = (
    "[PAD] [unused0] [unused1] [UNK] [CLS] [SEP] [MASK] the cat play ##ing ##er foot ##ball s ##e "
    "##a x"
)
PIECES = _PIECES.split()
WORDS = "Playing\n\nfootball\nplayer\n playing \ncat\nSEA\nfooter\n\u00c9t\u00e9\nETE\r\n"
# The new words by line: two in place of [unused], two in the spare rows of the table, two in new
# rows.
PIECES_OF = {
    1: "play ##ing",
    2: "foot ##ball",
    18: "play ##er",
    19: "s ##e ##a",
    20: "foot ##er",
    21: "[UNK]",
}
GROWN = [
    PIECES[0],
    "playing",
    "football",
    *PIECES[3:],
    "player",
    "sea",
    "footer",
    "ete",
]
TABLE = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"


def write_tf1(folder, weights):
    tensors = weights | {"mine/kernel": np.float32([1.0])}
    tf1.write(str(folder / "model.ckpt-3"), with_training_state(tensors, 3))
    config = CONFIG.to_dict() | {"ours": 7}
    (folder / "bert_config.json").write_text(json.dumps(config))


def write_huggingface(folder, weights):
    """In shards of float16, with the copies of tied weights, and a head that is in no table."""
    huggingface.write(str(folder), weights, CONFIG)
    edit_json(folder / "config.json", problem_type="regression")
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    tensors["mine.weight"] = np.ones(3)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    (folder / "model.safetensors").unlink()
    shards = {}
    for number, name in enumerate(tensors):
        shards[name] = f"model-0000{number % 2}.safetensors"
    for shard in set(shards.values()):
        names = [name for name in tensors if shards[name] == shard]
        shard_tensors = {name: np.float16(tensors[name]) for name in names}
        safetensors.numpy.save_file(shard_tensors, folder / shard)
    index = json.dumps({"weight_map": shards})
    (folder / "model.safetensors.index.json").write_text(index)


def grown(folder) -> str:
    """The new folder, made of a folder."""
    words_file = folder.parent / "words.txt"
    words_file.write_text(WORDS)
    new = str(folder.parent / "new")
    options = GrowthOptions(
        model=str(folder),
        words=str(words_file),
        output_dir=new,
    )
    grow_vocab.run(options)
    return new


@pytest.fixture
def folder(tmp_path):
    """A folder of a model without its weights and its configuration."""
    folder = tmp_path / "old"
    folder.mkdir()
    tokenizer_config = TokenizerConfig(True, None, 16)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (folder / "tokenizer_config.json").write_text(tokenizer_config.to_json_string())
    (folder / "tokenizer.json").write_text("{}")
    return folder


def grown_rows(values: np.ndarray) -> np.ndarray:
    """The table or the biases of the new vocabulary, from those of the old one."""
    rows = np.concatenate([values, np.zeros_like(values[:2])])
    for row, pieces in PIECES_OF.items():
        piece_values = [values[PIECES.index(piece)] for piece in pieces.split()]
        rows[row] = np.mean(piece_values, axis=0)
    return rows


@pytest.mark.parametrize("form", ["tf1", "float16"])
def test_words_get_lines_and_rows_and_all_else_stays(folder, form, caplog):
    weights = random_weights(pretraining_shapes(CONFIG))
    caplog.set_level("INFO", "absl")
    if form == "tf1":
        write_tf1(folder, weights)
    else:
        write_huggingface(folder, weights)
    new = grown(folder)
    new_folder = folder.parent / "new"
    assert "6 new words; left out, since they are pieces already: 1" in caplog.text
    assert "2 words replace [unusedN], 4 get new lines" in caplog.text
    assert ("slots are left out: 95 tensors" in caplog.text) == (form == "tf1")
    assert ("not copied there: tokenizer.json\n" in caplog.text) == (form == "tf1")
    if form == "float16":
        assert "not copied there: model.safetensors.index.json\n" in caplog.text
        stored = safetensors.numpy.load_file(f"{new}/model.safetensors")
        np.testing.assert_array_equal(
            stored["cls.predictions.decoder.bias"],
            stored["cls.predictions.bias"],
        )
    names = {path.name for path in new_folder.iterdir()}
    format_names = {"config.json", "model.safetensors", "tokenizer.json"}
    if form == "tf1":
        format_names = {
            "bert_config.json",
            "bert_model.ckpt.index",
            "bert_model.ckpt.data-00000-of-00001",
        }
    assert names == {"vocab.txt", "tokenizer_config.json"} | format_names
    assert (new_folder / "vocab.txt").read_text().splitlines() == GROWN
    if form == "float16":
        tokenizer = json.loads((new_folder / "tokenizer.json").read_text())
        assert list(tokenizer["model"]["vocab"]) == GROWN
    name = "bert_config.json" if form == "tf1" else "config.json"
    fields = json.loads((folder / name).read_text())
    new_fields = json.loads((new_folder / name).read_text())
    assert new_fields == fields | {"vocab_size": 22}

    # The weights: all of them stay, and the rows of the vocabulary grow.
    dtype = "float32" if form == "tf1" else "float16"
    old = open_checkpoint(str(folder))
    made = open_checkpoint(new)
    kept = [name for name in old.shapes if not name.endswith(("adam_m", "adam_v", "global_step"))]
    assert list(made.shapes) == kept
    for name in kept:
        assert made.dtypes[name] == old.dtypes[name] == dtype
        expected = old.read(name)
        tolerance = 1e-6
        if name in (TABLE, BIAS):
            expected = grown_rows(expected)
            tolerance = 2e-3 if form == "float16" else 1e-6
        np.testing.assert_allclose(made.read(name), expected, atol=tolerance)

    # Texts without new words have the same tokens and the same logits.
    first = FullTokenizer.from_pretrained(str(folder))
    second = FullTokenizer.from_pretrained(new)
    assert second.tokenize("Playing, the football-SEA \u00e9t\u00e9!") == [
        "playing",
        "[UNK]",
        "the",
        "football",
        "[UNK]",
        "sea",
        "ete",
        "[UNK]",
    ]
    tokens = first("the cat play foot unheard")
    new_tokens = second("the cat play foot unheard")
    for name, values in tokens.items():
        np.testing.assert_array_equal(new_tokens[name], values)
    replaced = [row for row in PIECES_OF if row < 20]

    def kept_logits(path: str) -> np.ndarray:
        outputs = BertPretrainer.from_pretrained(path)(tokens)
        old_pieces = outputs.masked_lm_logits.numpy()[..., :20]
        return np.delete(old_pieces, replaced, -1)

    np.testing.assert_allclose(kept_logits(str(folder)), kept_logits(new), atol=1e-5)


def test_a_trained_classifier_keeps_its_task_and_its_answers(folder):
    (folder / "tokenizer.json").unlink()
    config = BertConfig.from_dict(CONFIG.to_dict())
    model = BertClassifier(config, 3)
    model.output_weights.assign(np.random.default_rng(5).normal(size=(3, 8)))
    model.save_pretrained(
        str(folder),
        "huggingface",
        tokenizer=FullTokenizer.from_pretrained(str(folder)),
        labels=["no", "yes", "perhaps"],
    )
    record = model_dir.TaskRecord("tsv", "classification", {"max_seq_length": 9})
    model_dir.write_record(str(folder), record)
    old = Predictor(folder)
    new = Predictor(grown(folder))
    assert new.explain("sea")["words"][0]["attribution"] != 0
    text = "the cat sat on a mat"
    assert new(text)["probabilities"] == pytest.approx(old(text)["probabilities"], abs=1e-6)
    assert new.model.max_seq_length == 9


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        pytest.param(
            {BIAS: np.zeros(5, np.float32)},
            "output_bias has not 20 rows; restore",
            id="other number of rows",
        ),
        pytest.param(
            {TABLE: np.zeros((20, 8), np.int8)},
            "word_embeddings has the type int8",
            id="whole numbers",
        ),
        pytest.param(
            {TABLE: np.full((20, 8), np.nan, np.float32)},
            "word_embeddings holds nan",
            id="no numbers",
        ),
    ],
)
def test_a_table_that_fits_no_model_is_refused(folder, weight, message):
    write_tf1(folder, random_weights(pretraining_shapes(CONFIG)) | weight)
    with pytest.raises(InputError, match=message):
        grown(folder)
    assert not (folder.parent / "new").exists()
