"""A corpus, a vocabulary and a model so small that tests can contain the expected values.

The text and the vocabulary are those of the original's recordings, whose numbers the tests contain.
"""

import json
import pathlib

_PIECES = """
[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat it was a sun ##ny day in park child ##ren were play ##ing foot
##ball train left station at noon no ##body board driver wave ##d his hand rain start ##ed fall soon after one
single line document here .
"""
VOCABULARY = _PIECES.split()

TEXT = """\
The cat sat on the mat.
It was a sunny day in the park.
Children were playing football.

A train left the station at noon.
Nobody was on board.
The driver waved his hand.
Rain started falling soon after.

One single line document here.
"""

BERT_CONFIG = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def write_vocabulary(folder: pathlib.Path, pieces=VOCABULARY) -> str:
    """Writes a vocabulary file, one WordPiece on each line, and returns its path."""
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return str(path)


def write_text(folder: pathlib.Path, text: str = TEXT, name: str = "text.txt") -> str:
    """Writes a text file, and returns its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def make_bert_base_dir(folder: pathlib.Path, num_hidden_layers: int = 1, **fields) -> pathlib.Path:
    """Makes a small released model: vocab.txt, bert_config.json and bert_model.ckpt with random
    weights.

    The checkpoint has the pre-training heads, as the released checkpoints do. `fields` are
    further fields of the configuration.
    """
    # Imported late because they load TensorFlow, which most users of this file do not need.
    from official_bert.checkpoints import named_variables, tf1
    from official_bert.config import BertConfig
    from official_bert.modeling import BertPretrainer
    from official_bert.training.starting_point import seed_initial_weights

    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(folder)
    fields = {"num_hidden_layers": num_hidden_layers} | fields
    config = BertConfig.from_dict(BERT_CONFIG | fields)
    (folder / "bert_config.json").write_text(config.to_json_string(), encoding="utf-8")
    seed_initial_weights(12345)
    variables = named_variables(BertPretrainer(config))
    tf1.write(
        str(folder / "bert_model.ckpt"),
        {name: variable.numpy() for name, variable in variables.items()},
    )
    return folder


def write_sentence_modules(folder: pathlib.Path) -> pathlib.Path:
    """Makes the folder of a model one of sentence-transformers, whose vectors are means."""
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    listed = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder
