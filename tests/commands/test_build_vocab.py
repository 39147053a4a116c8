"""official-bert build_vocab makes a vocabulary that fits the text, and the same one in another
process.
"""

import pytest

from official_bert.commands import build_vocab
from official_bert.options.data_tools import VocabularyOptions
from official_bert.tokenization import FullTokenizer, load_vocab
from tests import toy
from tests.scripts import command_line, end_of, flag_list, run_here, run_interpreter
from tests.shared import ROOT

TEXT = toy.TEXT + "Élan, naïveté: 북한 and 北京!\n" * 3


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """Folder with a text, its vocabulary of 200 lines, and the log."""
    folder = tmp_path_factory.mktemp("vocabulary")
    toy.write_text(folder, TEXT, "one.txt")
    toy.write_text(folder, "Rain fell on the mat.\n", "two.txt")
    log = run_here(
        "build_vocab",
        *flag_list(input_file=folder / "*.txt", output_file=folder / "vocab", vocab_size=200),
        "--strip_accents",
    ).stderr
    return folder, log


def test_has_exactly_the_lines_asked_for_special_tokens_first_and_knows_every_word(learnt):
    folder, log = learnt
    content = (folder / "vocab").read_text(encoding="utf-8")
    lines = content.removesuffix("\n").split("\n")
    assert content.endswith("\n")
    assert len(lines) == len(set(lines)) == 200
    assert lines[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    num_unused = sum(line.startswith("[unused") for line in lines)
    assert lines[-num_unused:] == [f"[unused{number}]" for number in range(num_unused)]
    assert f"200 lines, {195 - num_unused} of them learnt" in log
    assert "the" in lines
    tokenizer = FullTokenizer(str(folder / "vocab"))
    pieces = tokenizer.tokenize(TEXT)
    assert "[UNK]" not in pieces
    words = tokenizer.basic_tokenizer.tokenize(TEXT)
    assert "".join(pieces).replace("##", "") == "".join(words)


def test_digits_and_punctuation_that_the_text_lacks_are_no_unknown_words(learnt):
    folder, _ = learnt
    tokenizer = FullTokenizer(str(folder / "vocab"))
    invoice = "Invoice 3804/7 (paid) costs 59$ & more: q@x.z {~`|^<=>_%#*+;[]}"
    assert "[UNK]" not in tokenizer.tokenize(invoice)
    lines = (folder / "vocab").read_text(encoding="utf-8").splitlines()
    assert {"A", "##A", "##$"}.isdisjoint(lines)


def test_a_character_that_is_left_out_is_named(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    text = toy.write_text(tmp_path, "one day the cat sat \n" * 200 + "Ωmega 7\n")
    output = str(tmp_path / "vocab.txt")
    options = VocabularyOptions(
        input_file=[text], output_file=output, vocab_size=200, character_coverage=0.99
    )
    build_vocab.run(options)
    assert "Characters of the text that become [UNK]: ω; a higher --char" in caplog.text
    pieces = load_vocab(output)
    assert "7" in pieces
    assert "ω" not in pieces
    assert build_vocab._list_characters("b" + "a" * 60) == " ".join("a" * 50) + " and 11 others"


def test_the_same_text_gives_the_same_bytes(learnt):
    folder, _ = learnt
    # The files in another order, as a list, and another order of hashes.
    inputs = f"{folder / 'two.txt'},{folder / 'one.txt'}"
    finished = run_interpreter(
        *command_line("build_vocab"),
        *flag_list(input_file=inputs, output_file=folder / "again", vocab_size=200),
        PYTHONHASHSEED="77",
    )
    assert (folder / "again").read_bytes() == (folder / "vocab").read_bytes()
    assert "build_vocab.py" in finished.stderr
    assert "port.cc" not in finished.stderr, "TensorFlow's messages at its import are hidden"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"do_lower_case": False}, {"Été", "북한"}),
        ({"strip_accents": False}, {"été", "북한"}),
        ({"do_lower_case": False, "strip_accents": True}, {"Ete"}),
    ],
)
def test_case_and_accents_are_kept_when_told(tmp_path, flags, words):
    text = toy.write_text(tmp_path, "Été Été 북한 북한\n")
    output = str(tmp_path / "vocab.txt")
    build_vocab.run(
        VocabularyOptions(input_file=[text], output_file=output, vocab_size=30, **flags)
    )
    assert words <= load_vocab(output).keys()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"vocab_size": 20}, "--vocab_size=20 does not hold"),
        (
            {"output_file": "no/such/folder/vocab.txt"},
            "no/such/folder/vocab.txt: cannot be written",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, changes, sentence):
    output = tmp_path / "vocab.txt"
    flags = {
        "input_file": toy.write_text(tmp_path),
        "output_file": output,
        "vocab_size": 200,
    } | changes
    ended = end_of("build_vocab", *flag_list(**flags))
    assert ended.status == 1
    assert sentence in ended.sentence
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_without_tensorflow_text_the_remedy_is_said(tmp_path):
    (tmp_path / "tensorflow_text.py").write_text("raise ImportError('it is not here')\n")
    flags = flag_list(
        input_file=toy.write_text(tmp_path), output_file=tmp_path / "vocab.txt", vocab_size=200
    )
    ended = run_interpreter(
        *command_line("build_vocab"), *flags, status=1, PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    assert ended.stderr.endswith(
        "which cannot be imported (it is not here); run pip install tensorflow-text, "
        "or run this command on Linux or macOS, since the package does not exist for Windows\n"
    )
