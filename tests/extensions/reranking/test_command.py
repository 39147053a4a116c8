"""official-bert run_reranker: an order that is learned, measured, exported and queried."""

import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert import FullTokenizer, Predictor
from official_bert.extensions.reranking import training_sets
from official_bert.extensions.reranking.layout import read_activation
from official_bert.extensions.reranking.options import LOSSES
from tests.fine_tuning_runs import figures
from tests.scripts import flag_list, run_here
from tests.serving import exported

RIGHT = ["cat", "mat", "sunny", "park", "train"]
WRONG = ["driver", "rain", "noon", "child", "football"]
FILLERS = ["the", "sat", "on", "was", "a", "day", "in", "at"]


def write_rows(path, count: int, seed: int, num_negatives: int = 3, scale: float = 1.0):
    """Queries with a document about something right, and others."""
    draws = np.random.default_rng(seed)

    def text(thing):
        return " ".join([*draws.choice(FILLERS, 3), thing, *draws.choice(FILLERS, 2)])

    with open(path, "w") as file:
        for _ in range(count):
            record = {
                "query": text("football"),
                "positive": text(draws.choice(RIGHT)),
                "negative": [text(draws.choice(WRONG)) for _ in range(num_negatives)],
            }
            if scale != 1.0:
                record["score"] = [scale] + [0.0] * num_negatives
            file.write(json.dumps(record) + "\n")


def model_of(base) -> dict:
    return {
        "vocab_file": base / "vocab.txt",
        "bert_config_file": base / "bert_config.json",
        "max_seq_length": 24,
    }


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reranker")
    write_rows(folder / "train.jsonl", 100, 1)
    write_rows(folder / "dev.jsonl", 20, 2)
    write_rows(folder / "test.jsonl", 5, 3)
    run_here(
        "run_reranker",
        *flag_list(
            **model_of(base),
            data_dir=folder,
            output_dir=folder / "out",
            loss="rank_net",
            do_train=True,
            do_eval=True,
            do_predict=True,
            random_seed=1,
            train_batch_size=20,
            num_train_epochs=4,
            learning_rate=3e-3,
        ),
    )
    return folder


def read_scores(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "test_scores.jsonl").read_text().splitlines()]


def test_the_order_is_learned(trained):
    metrics = figures(trained / "out")
    assert metrics.keys() == {"eval_ndcg_at_10", "eval_mrr_at_10", "eval_map", "global_step"}
    assert metrics["eval_ndcg_at_10"] > 0.9
    right = [row["score"][0] > max(row["score"][1:]) for row in read_scores(trained / "out")]
    assert np.mean(right) > 0.7


def test_predictions_are_the_rows_with_a_score_for_each_document(trained):
    rows = [json.loads(line) for line in (trained / "test.jsonl").read_text().splitlines()]
    scored = read_scores(trained / "out")
    for row, record in zip(rows, scored, strict=True):
        assert record["query"] == row["query"]
        assert record["positive"] == [row["positive"]]
        assert record["negative"] == row["negative"]
        logits = np.array(record["logit"])
        np.testing.assert_allclose(record["score"], 1 / (1 + np.exp(-logits)), atol=1e-6)
        assert len(logits) == 4


@pytest.fixture(scope="module")
def text_export(trained):
    flags = flag_list(model=trained / "out", export_dir=trained / "text")
    run_here("export_saved_model", *flags, "--export_text")
    return trained / "text"


@pytest.fixture(scope="module")
def tensor_export(trained):
    run_here(
        "export_saved_model", *flag_list(model=trained / "out", export_dir=trained / "tensors")
    )
    return trained / "tensors"


def first_prediction(trained) -> tuple[str, list[str], list[float]]:
    """The query, the documents and their scores of the first row."""
    record = read_scores(trained / "out")[0]
    return record["query"], record["positive"] + record["negative"], record["score"]


@pytest.mark.parametrize("kind", ["out", "text", "tensors"])
@pytest.mark.usefixtures("text_export", "tensor_export")
def test_predictors_rank_with_the_scores_of_the_training(trained, kind):
    query, documents, scores = first_prediction(trained)
    predictor = Predictor(str(trained / kind))

    hits = predictor.rank(query, documents)

    order = np.argsort(np.negative(scores), kind="stable")
    assert [hit["row"] for hit in hits] == order.tolist()
    hit_scores = [hit["score"] for hit in hits]
    np.testing.assert_allclose(hit_scores, np.array(scores)[order], atol=2e-6)
    answers = predictor([(query, documents[row]) for row in order])
    assert answers == [{"score": score} for score in hit_scores]


def load_rank(folder):
    """The signature `rank` of an export, as TensorFlow loads it without this package."""
    loaded = tf.saved_model.load(str(folder / "1"))
    return lambda **inputs: loaded.signatures["rank"](**inputs)["scores"].numpy()


def test_the_signature_rank_reads_text(trained, text_export):
    query, documents, scores = first_prediction(trained)
    rank = load_rank(text_export)
    query = tf.constant(query)
    computed = rank(query=query, documents=tf.constant(documents))
    np.testing.assert_allclose(computed, scores, atol=2e-6)
    # Several batches.
    computed = rank(query=query, documents=tf.constant(documents * 20))
    np.testing.assert_allclose(computed, scores * 20, atol=2e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one document"):
        rank(query=query, documents=tf.constant([], tf.string))


def test_the_signature_rank_reads_ids(trained, tensor_export):
    query, documents, scores = first_prediction(trained)
    tokenizer = FullTokenizer.from_pretrained(str(trained / "out"))
    ids = [tokenizer.encode(document) for document in documents]
    computed = load_rank(tensor_export)(
        query_ids=tf.constant(tokenizer.encode(query)),
        document_ids=tf.ragged.constant(ids, dtype=tf.int32).to_tensor(),
    )
    np.testing.assert_allclose(computed, scores, atol=2e-6)


@pytest.mark.parametrize("loss", sorted(set(LOSSES) - {"rank_net"}))
def test_every_loss_teaches_the_order(base, tmp_path, loss):
    write_rows(tmp_path / "train.jsonl", 100, 1, scale=5.0 if loss.endswith("mse") else 1.0)
    write_rows(tmp_path / "dev.jsonl", 20, 2)
    run_here(
        "run_reranker",
        *flag_list(
            **model_of(base),
            data_dir=tmp_path,
            output_dir=tmp_path / "out",
            loss=loss,
            do_train=True,
            do_eval=True,
            random_seed=1,
            train_batch_size=20 if loss not in ("binary_cross_entropy", "mse") else 80,
            num_train_epochs=4,
            learning_rate=3e-3,
        ),
    )
    assert figures(tmp_path / "out")["eval_ndcg_at_10"] > 0.8


def test_distillation_of_a_reranker_into_an_embedding_model(trained, base, tmp_path):
    """The vectors learn to order as the reranker does, from its scores or from itself."""
    write_rows(tmp_path / "pairs.jsonl", 60, 5, num_negatives=1)
    flags = model_of(base) | {
        "output_dir": tmp_path / "scores",
        "init_checkpoint": trained / "out",
        "test_file": tmp_path / "pairs.jsonl",
        "do_predict": True,
    }
    run_here("run_reranker", *flag_list(**flags))
    rows = read_scores(tmp_path / "scores")
    run_here(
        "run_embeddings",
        *flag_list(
            **model_of(base),
            train_file=tmp_path / "scores" / "test_scores.jsonl",
            label_column="logit",
            loss="margin_mse",
            normalize=False,
            do_train=True,
            output_dir=tmp_path / "encoder",
            train_batch_size=20,
            num_train_epochs=30,
            learning_rate=3e-3,
            random_seed=1,
        ),
    )
    encoders = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    plain_encoder = encoders.SentenceEncoder(str(base), "mean", normalize=False)
    before = mean_margin_error(plain_encoder, rows)
    after = mean_margin_error(Predictor(str(tmp_path / "encoder")), rows)
    assert after < before / 20


def mean_margin_error(encoder, rows) -> float:
    """The mean squared difference of the margins of vectors and of a reranker's logits."""
    errors = []
    for row in rows:
        texts = [row["query"], *row["positive"], *row["negative"]]
        query, positive, negative = encoder.encode(texts)
        margin = query @ (positive - negative)
        errors.append(margin - (row["logit"][0] - row["logit"][1]))
    return float(np.mean(np.square(errors)))


@pytest.mark.parametrize("loss", ["mse", "margin_mse", "list_net"])
def test_a_student_learns_the_logits_of_a_teacher(trained, base, tmp_path, monkeypatch, loss):
    encoded_sets = []
    encode = training_sets.build_training_lists

    def note(rankings, *arguments):
        encoded_sets.append(rankings)
        return encode(rankings, *arguments)

    monkeypatch.setattr(training_sets, "build_training_lists", note)
    run_here(
        "run_reranker",
        *flag_list(
            **model_of(base),
            train_file=trained / "test.jsonl",
            loss=loss,
            teacher=trained / "out",
            do_train=True,
            output_dir=tmp_path / "out",
            train_batch_size=4,
            num_train_epochs=1,
        ),
    )
    wanted = {}
    for row in read_scores(trained / "out"):
        for document, logit in zip(row["positive"] + row["negative"], row["logit"], strict=True):
            wanted[row["query"], document] = logit
    labels = {}
    for ranking in encoded_sets[0]:
        for document in ranking.documents:
            labels[ranking.query, document.text] = document.label
    assert labels == pytest.approx(wanted, abs=1e-5)
    activation = read_activation(str(tmp_path / "out"))
    assert activation == ("sigmoid" if loss == "list_net" else "identity")


def test_the_best_checkpoint_is_that_of_the_main_metric(trained, base, tmp_path):
    run_here(
        "run_reranker",
        *flag_list(
            **model_of(base),
            data_dir=trained,
            output_dir=tmp_path / "out",
            main_metric="map",
            do_train=True,
            do_eval=True,
            eval_every_steps=3,
            train_batch_size=100,
            num_train_epochs=2,
            learning_rate=3e-3,
            random_seed=1,
        ),
    )
    assert (tmp_path / "out" / "best").is_dir()
    values = []
    for line in (tmp_path / "out" / "run.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["type"] == "evaluation":
            values.append(record["eval_map"])
    assert len(values) > 2
    assert figures(tmp_path / "out")["eval_map"] == pytest.approx(max(values), abs=1e-6)


def test_the_activation_may_change_after_the_training(trained, tmp_path):
    flags = {"model": trained / "out", "test_file": trained / "test.jsonl", "do_predict": True}
    run_here(
        "run_reranker",
        *flag_list(**flags, activation="identity", output_dir=tmp_path / "scores"),
    )
    for row in read_scores(tmp_path / "scores"):
        assert row["score"] == row["logit"]
    run_here(
        "export_saved_model",
        *flag_list(model=trained / "out", activation="identity", export_dir=tmp_path / "export"),
    )
    query, documents, scores = first_prediction(trained)
    logits = [
        answer["score"]
        for answer in Predictor(str(tmp_path / "export"))([(query, one) for one in documents])
    ]
    np.testing.assert_allclose(1 / (1 + np.exp(-np.array(logits))), scores, atol=2e-6)
