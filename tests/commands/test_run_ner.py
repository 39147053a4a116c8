"""run_ner.py: entities that can be learnt, long sentences and documents among them, and what is
refused.
"""

import numpy as np
import pytest

from official_bert.data.tables import read_conll
from official_bert.metrics.entities import entity_scores
from official_bert.tasks.tagging.windows import encoded_words
from official_bert.tokenization import FullTokenizer
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here
from tests.serving.answers import answers

FILLERS = [
    "sat",
    "on",
    "mat",
    "was",
    "a",
    "sunny",
    "day",
    "in",
    "park",
    "at",
    "noon",
]
ENTITIES = [
    (["cat"], "ANIMAL"),
    (["train", "station"], "VEHICLE"),
    (["driver"], "PERSON"),
]


def write_conll(folder):
    """Entities that their words tell; train stands for an entity only where station follows."""
    draws = np.random.default_rng(1)
    for name, count in (("train", 240), ("dev", 60), ("test", 40)):
        lines = ["-DOCSTART- -X- O", ""]
        for _ in range(count):
            tagged = [(word, "O") for word in draws.choice(FILLERS, draws.integers(3, 9))]
            for pick in draws.integers(len(ENTITIES), size=draws.integers(1, 3)):
                words, kind = ENTITIES[pick]
                tags = ["B-" + kind] + ["I-" + kind] * (len(words) - 1)
                place = draws.choice(
                    [
                        k
                        for k in range(len(tagged) + 1)
                        if tagged[k : k + 1] != [("station", "I-VEHICLE")]
                    ]
                )
                tagged[place:place] = zip(words, tags, strict=True)
            lines += [f"{word} X {tag}" for word, tag in tagged] + [""]
        (folder / f"{name}.conll").write_text("\n".join(lines))


def test_entities_are_learnt_evaluated_and_predicted(base, tmp_path):
    write_conll(tmp_path)
    model = flag_list(
        vocab_file=base / "vocab.txt",
        bert_config_file=base / "bert_config.json",
        max_seq_length=24,
        document_context=True,
    )
    trained = tmp_path / "trained"
    again = tmp_path / "again"
    run_here(
        "run_ner.py",
        *model,
        *flag_list(
            data_dir=tmp_path,
            output_dir=trained,
            do_train=True,
            do_eval=True,
            do_predict=True,
            num_train_epochs=8,
            train_batch_size=16,
            learning_rate=3e-3,
            random_seed=1,
        ),
    )
    run_here("export_saved_model", *flag_list(model=trained, export_dir=tmp_path / "exports"))
    results = figures(trained)
    assert {"eval_precision", "eval_recall", "eval_f1", "eval_accuracy", "eval_loss"} <= set(
        results
    )
    assert results["eval_f1"] > 0.9
    assert results["eval_loss"] < 0.3  # ln 7 = 1.95 is what guessing gives
    assert results["global_step"] == 120  # 240 / 16 * 8
    kinds = ["ANIMAL", "PERSON", "VEHICLE"]
    labels = ["O", *(f"{mark}-{kind}" for kind in kinds for mark in "BI")]
    assert (trained / "labels.txt").read_text().split() == labels

    source = read_conll(str(tmp_path / "test.conll"))
    predicted = read_conll(str(trained / "predictions.conll"))
    assert [s.words for s in predicted.sentences] == [s.words for s in source.sentences]
    scores = entity_scores(
        [s.tags for s in source.sentences], [s.tags for s in predicted.sentences]
    )
    assert scores["f1"] > 0.9

    tokenizer = FullTokenizer(str(base / "vocab.txt"))
    words = encoded_words(source, labels, 24, tokenizer, document_context=True)
    features = words.features(np.arange(len(words)), 24)
    encoded = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    exported = words.select_words(
        answers(tmp_path / "exports" / "1", "serving_default", encoded)["tags"]
    )
    in_the_file = [columns[-1] for sentence in predicted.sentences for columns in sentence.columns]
    assert [tag.decode() for tag in exported] == in_the_file

    # The checkpoint alone, files by their names, other batches: the labels lie beside it.
    run_here(
        "run_ner.py",
        *model,
        *flag_list(
            dev_file=tmp_path / "dev.conll",
            test_file=tmp_path / "test.conll",
            output_dir=again,
            init_checkpoint=trained,
            do_eval=True,
            do_predict=True,
            predict_batch_size=7,
            eval_batch_size=5,
        ),
    )
    assert (again / "predictions.conll").read_text() == (trained / "predictions.conll").read_text()
    repeated = {name: value for name, value in figures(again).items() if name.startswith("eval_")}
    assert repeated == pytest.approx({name: results[name] for name in repeated}, rel=1e-4)
