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
TABLE, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"


def write_tf1(folder, weights):
    tf1.write(
        str(folder / "model.ckpt-3"),
        with_training_state(weights | {"mine/kernel": np.float32([1.0])}, 3),
    )
    (folder / "bert_config.json").write_text(json.dumps(CONFIG.to_dict() | {"ours": 7}))


def write_huggingface(folder, weights):
    """In shards of float16, with the copies of tied weights, and a head that is in no table."""
    huggingface.write(str(folder), weights, CONFIG)
    edit_json(folder / "config.json", problem_type="regression")
    tensors = safetensors.numpy.load_file(folder / "model.safetensors") | {
        "mine.weight": np.ones(3)
    }
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    (folder / "model.safetensors").unlink()
    shards = {name: f"model-0000{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for shard in set(shards.values()):
        of_shard = {
            name: np.float16(value) for name, value in tensors.items() if shards[name] == shard
        }
        safetensors.numpy.save_file(of_shard, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def grown(folder) -> str:
    """The new folder, made of a folder."""
    (folder.parent / "words.txt").write_text(WORDS)
    new = str(folder.parent / "new")
    grow_vocab.run(
        GrowthOptions(
            model=str(folder),
            words=str(folder.parent / "words.txt"),
            output_dir=new,
        )
    )
    return new


@pytest.fixture
def folder(tmp_path):
    """A folder of a model without its weights and its configuration."""
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (tmp_path / "old" / "tokenizer_config.json").write_text(
        TokenizerConfig(True, None, 16).to_json_string()
    )
    (tmp_path / "old" / "tokenizer.json").write_text("{}")
    return tmp_path / "old"


@pytest.mark.parametrize("form", ["tf1", "float16"])
def test_words_get_lines_and_rows_and_all_else_stays(folder, form, caplog):
    weights = random_weights(pretraining_shapes(CONFIG))
    caplog.set_level("INFO", "absl")
    (write_tf1 if form == "tf1" else write_huggingface)(folder, weights)
    new = grown(folder)
    assert "6 new words; left out, since they are pieces already: 1" in caplog.text
    assert "2 words replace [unusedN], 4 get new lines" in caplog.text
    assert ("slots are left out: 95 tensors" in caplog.text) == (form == "tf1")
    assert ("not copied there: tokenizer.json\n" in caplog.text) == (form == "tf1")
    if form == "float16":
        assert "not copied there: model.safetensors.index.json\n" in caplog.text
        stored = safetensors.numpy.load_file(f"{new}/model.safetensors")
        np.testing.assert_array_equal(
            stored["cls.predictions.decoder.bias"], stored["cls.predictions.bias"]
        )
    names = {path.name for path in (folder.parent / "new").iterdir()}
    of_form = {"config.json", "model.safetensors", "tokenizer.json"}
    if form == "tf1":
        of_form = {
            "bert_config.json",
            "bert_model.ckpt.index",
            "bert_model.ckpt.data-00000-of-00001",
        }
    assert names == {"vocab.txt", "tokenizer_config.json"} | of_form
    assert (folder.parent / "new" / "vocab.txt").read_text().splitlines() == GROWN
    if form == "float16":
        vocab = json.loads((folder.parent / "new" / "tokenizer.json").read_text())["model"]["vocab"]
        assert list(vocab) == GROWN
    name = "bert_config.json" if form == "tf1" else "config.json"
    fields = json.loads((folder / name).read_text())
    assert json.loads((folder.parent / "new" / name).read_text()) == fields | {"vocab_size": 22}

    old, made = open_checkpoint(str(folder)), open_checkpoint(new)
    kept = [name for name in old.shapes if not name.endswith(("adam_m", "adam_v", "global_step"))]
    assert list(made.shapes) == kept
    for name in kept:
        assert made.dtypes[name] == old.dtypes[name] == ("float32" if form == "tf1" else "float16")
        before = wanted = old.read(name)
        if name in (TABLE, BIAS):
            wanted = np.concatenate([before, np.zeros_like(before[:2])])
            for row, pieces in PIECES_OF.items():
                wanted[row] = np.mean(
                    [before[PIECES.index(piece)] for piece in pieces.split()], axis=0
                )
        tolerance = 2e-3 if name in (TABLE, BIAS) and form == "float16" else 1e-6
        np.testing.assert_allclose(
            made.read(name),
            wanted,
            atol=tolerance,
        )

    first, second = (FullTokenizer.from_pretrained(path) for path in (str(folder), new))
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
    assert all((second("the cat play foot unheard")[name] == tokens[name]).all() for name in tokens)
    logits = [
        BertPretrainer.from_pretrained(path)(tokens).masked_lm_logits.numpy()
        for path in (str(folder), new)
    ]
    replaced = [row for row in PIECES_OF if row < 20]
    np.testing.assert_allclose(
        *(np.delete(one[..., :20], replaced, -1) for one in logits), atol=1e-5
    )


def test_a_trained_classifier_keeps_its_task_and_its_answers(folder):
    (folder / "tokenizer.json").unlink()
    model, labels = (
        BertClassifier(BertConfig.from_dict(CONFIG.to_dict()), 3),
        ["no", "yes", "perhaps"],
    )
    model.output_weights.assign(np.random.default_rng(5).normal(size=(3, 8)))
    model.save_pretrained(
        str(folder),
        "huggingface",
        tokenizer=FullTokenizer.from_pretrained(str(folder)),
        labels=labels,
    )
    model_dir.write_record(
        str(folder), model_dir.TaskRecord("tsv", "classification", {"max_seq_length": 9})
    )
    old, new = Predictor(folder), Predictor(grown(folder))
    assert new.explain("sea")["words"][0]["attribution"] != 0
    text = "the cat sat on a mat"
    assert new(text)["probabilities"] == pytest.approx(old(text)["probabilities"], abs=1e-6)
    assert new.model.max_seq_length == 9


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        ({BIAS: np.zeros(5, np.float32)}, "output_bias has not 20 rows; restore"),
        ({TABLE: np.zeros((20, 8), np.int8)}, "word_embeddings has the type int8"),
        ({TABLE: np.full((20, 8), np.nan, np.float32)}, "word_embeddings holds nan"),
    ],
)
def test_a_table_that_fits_no_model_is_refused(folder, weight, says):
    write_tf1(folder, random_weights(pretraining_shapes(CONFIG)) | weight)
    with pytest.raises(InputError, match=says):
        grown(folder)
    assert not (folder.parent / "new").exists()
