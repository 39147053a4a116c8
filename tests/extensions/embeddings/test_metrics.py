"""Metrics of vectors, beside SciPy, scikit-learn, sentence-transformers and rankings written out
in plain Python.
"""

import sys
import types

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    ndcg_score,
    v_measure_score,
)

from official_bert.extensions.embeddings import metrics as embeddings
from official_bert.extensions.embeddings.metrics import (
    pair_classification,
    retrieval,
    sts,
    triplets,
)
from official_bert.extensions.embeddings.probing import LabelledVectors, clustering, few_shot
from official_bert.io.errors import Diverged, InputError
from official_bert.metrics.cosines import cosines

WIDTH = 4


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def drawn(seed: int, *shape: int, ties: bool = False) -> np.ndarray:
    """Vectors; with ties of few directions, so that many have the same cosine, which float32 has
    without an error.
    """
    draws = np.random.default_rng(seed)
    if not ties:
        return draws.normal(size=shape).astype(np.float32)
    return draws.choice([-0.5, 0.5], shape).astype(np.float32) * draws.choice(
        [0.5, 2], (*shape[:-1], 1)
    )


def rows_of(seed: int, num: int, below: int, most: int) -> list[set[int]]:
    draws = np.random.default_rng(seed)
    return [
        set(draws.choice(below, draws.integers(most + 1), replace=False).tolist())
        for _ in range(num)
    ]


def table_of_cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (1 - cdist(a.astype(np.float64), b.astype(np.float64), "cosine")).astype(np.float32)


def test_cosines_and_their_correlations():
    a, b = drawn(1, 50, WIDTH), drawn(2, 50, WIDTH)
    scores = np.random.default_rng(3).integers(6, size=50)
    wanted = [
        x @ y / np.sqrt((x @ x) * (y @ y))
        for x, y in zip(np.float64(a), np.float64(b), strict=True)
    ]
    np.testing.assert_allclose(cosines(a, 1024 * b), wanted, rtol=1e-12)
    assert cosines(np.zeros((1, WIDTH)), b[:1]) == [0]
    found = cosines(a, b)
    wanted = {
        "spearman": spearmanr(scores, found).statistic,
        "pearson": pearsonr(scores, found).statistic,
    }
    assert sts(a, b, scores) == close(wanted)


@pytest.mark.parametrize("seed", range(30))
def test_pairs_are_told_apart_as_by_every_threshold(seed):
    draws = np.random.default_rng(seed)
    labels = draws.permutation(np.append([1, 0], draws.integers(2, size=seed)))
    similarities = draws.integers(1 + seed, size=len(labels)) / 7
    found = pair_classification(similarities, labels)
    values = np.unique(similarities)[::-1]
    at_each = [similarities >= value for value in [*values, 99]]
    thresholds = [*(values[:-1] + values[1:]) / 2, values[-1], np.nextafter(values[0], 99)]
    accuracies = [accuracy_score(labels, predicted) for predicted in at_each]
    f1s = [f1_score(labels, predicted, zero_division=0) for predicted in at_each]
    assert found["average_precision"] == close(average_precision_score(labels, similarities))
    for name, scores in (("best_accuracy", accuracies), ("best_f1", f1s)):
        assert found[name] == close(max(scores))
        best = [
            threshold
            for threshold, score in zip(thresholds, scores, strict=True)
            if score == close(max(scores))
        ]
        assert found[f"{name}_threshold"] in best
        if name == "best_accuracy":
            assert found[f"{name}_threshold"] == max(best)


def test_a_threshold_leaves_out_the_lower_one_of_neighbours_in_float64():
    upper = 1 + np.finfo(np.float64).eps  # the mean of it and 1 is rounded to 1
    found = pair_classification([1, upper], [0, 1])
    assert found["best_f1_threshold"] == found["best_accuracy_threshold"] == upper


def test_triplets():
    anchor, positive = np.float32([[1, 0], [0, 1]]), np.float32([[2, 1], [1, 2]])
    negative = np.float32([[1, 1], [1, 2]])  # that of the second is its positive
    assert triplets(anchor, positive, negative) == {"accuracy": 0.5}
    several = np.float32([[[1, 1], [3, 1], [0, 1]], [[1, 1], [1, 2], [1, 0]]])
    assert triplets(anchor, positive, several) == close({"accuracy": 4 / 6})


def plain_scores(ranking: list[int], wanted: set[int], is_map_of_all: bool) -> dict[str, float]:
    """The scores of one query, by going down its ranking."""
    name, depth = ("map", len(ranking)) if is_map_of_all else ("map_at_100", 100)
    num_found, precisions, gain, reciprocal = 0, 0.0, 0.0, 0.0
    for place, row in enumerate(ranking, start=1):
        if row in wanted:
            num_found += 1
            precisions += num_found / place if place <= depth else 0
            gain += 1 / np.log2(place + 1) if place <= 10 else 0
            reciprocal = reciprocal or (1 / place if place <= 10 else 0)
    return {
        "ndcg_at_10": gain
        / sum(1 / np.log2(place + 1) for place in range(1, 1 + min(len(wanted), 10))),
        "mrr_at_10": reciprocal,
        name: precisions / (len(wanted) if is_map_of_all else min(len(wanted), 100)),
        "accuracy_at_1": float(ranking[:1] and ranking[0] in wanted),
        **{
            f"recall_at_{k}": len(wanted.intersection(ranking[:k])) / len(wanted)
            for k in (1, 5, 10, 100)
        },
    }


@pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])
@pytest.mark.parametrize("most", [3, 200], ids=["few relevant", "many relevant"])
@pytest.mark.parametrize("has_candidates", [False, True], ids=["corpus", "candidates"])
def test_rankings_are_those_of_a_sort(monkeypatch, ties, most, has_candidates):
    monkeypatch.setattr(embeddings, "_QUERY_ROWS", 3)
    monkeypatch.setattr(embeddings, "_CORPUS_ROWS", 70)
    queries, corpus = drawn(1, 20, WIDTH, ties=ties), drawn(2, 250, WIDTH, ties=ties)
    relevant = rows_of(3, 20, 250, most)
    candidates = [set(range(250))] * 20
    if has_candidates:
        candidates = [*rows_of(4, 19, 250, 240), relevant[-1]]  # every ranking of the last is right
    wanted = []
    for of_query, rows, ranked in zip(
        table_of_cosines(queries, corpus), relevant, candidates, strict=True
    ):
        if rows and rows != ranked:
            wanted.append(
                plain_scores(
                    sorted(ranked, key=lambda row: (-of_query[row], row)), rows, has_candidates
                )
            )
    doubled = [np.array([*rows, *rows], np.int64) for rows in candidates]
    found = retrieval(queries, corpus, relevant, doubled if has_candidates else None)
    assert found == close({name: np.mean([one[name] for one in wanted]) for name in wanted[0]})


def test_rankings_of_candidates_are_scikit_learns():
    queries, corpus = drawn(1, 9, WIDTH), drawn(2, 60, WIDTH)
    relevant = [{row, row + 20, row + 40} for row in range(9)]
    found = retrieval(queries, corpus, relevant, [range(60)] * 9)
    scores = table_of_cosines(queries, corpus)
    labels = np.array([[row in rows for row in range(60)] for rows in relevant])
    assert found["ndcg_at_10"] == close(ndcg_score(labels, scores, k=10))
    each = [
        average_precision_score(one, of_query) for one, of_query in zip(labels, scores, strict=True)
    ]
    assert found["map"] == close(np.mean(each))


def test_what_cannot_be_measured_is_an_error():
    with pytest.raises(Diverged, match="the vectors have numbers that are not finite"):
        retrieval(drawn(1, 1, WIDTH), np.full((3, WIDTH), np.nan), [{1}])
    for candidates in (None, [{1}]):
        with pytest.raises(InputError, match="no query has a relevant text"):
            retrieval(
                drawn(1, 1, WIDTH), drawn(2, 3, WIDTH), [{1} if candidates else set()], candidates
            )


def blobs(seed: int, num: int, names: list[str], spread: float) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(num) % len(names)
    vectors = np.eye(len(names), WIDTH)[labels] + spread * np.random.default_rng(seed).normal(
        size=(num, WIDTH)
    )
    return vectors.astype(np.float32), np.array(names)[labels]


def test_clusters_are_compared_with_labels():
    vectors, labels = blobs(1, 300, ["a", "b", "c"], 0.1)
    assert clustering(vectors, labels, seed=1) == close({"v_measure": 1.0})
    # Which two of the blobs are one cluster depends on the seed.
    doubled = np.where(labels == "c", "a", labels)
    found = [clustering(vectors, doubled, seed)["v_measure"] for seed in range(8)]
    possible = [v_measure_score(doubled, labels == name) for name in "abc"]
    assert {round(value, 9) for value in found} == {round(value, 9) for value in possible}
    assert clustering(vectors, doubled, seed=3) == {"v_measure": found[3]}


def test_few_shots_are_drawn_of_each_label_by_numbered_draws():
    train, labels = blobs(1, 60, ["x", "y", "z"], 1.0)
    test, targets = blobs(2, 90, ["x", "y", "z"], 1.0)
    found = few_shot(
        LabelledVectors(train, labels),
        LabelledVectors(test, targets),
        shots=(2, 5),
        num_draws=3,
        seed=4,
    )
    wanted = {}
    for shots in (5, 2):
        shares = []
        for draw in (2, 1, 0):
            generator = np.random.default_rng((4, shots, draw))
            chosen = [
                row
                for name in "xyz"
                for row in generator.choice(np.where(labels == name)[0], shots, False)
            ]
            model = LogisticRegression(max_iter=1000).fit(
                train[chosen].astype(np.float64), labels[chosen]
            )
            shares.append(model.score(test, targets))
        mean = sum(shares) / 3
        wanted[f"accuracy_{shots}"] = mean
        wanted[f"accuracy_{shots}_std"] = (sum((share - mean) ** 2 for share in shares) / 2) ** 0.5
    assert found == close(wanted)
    assert (
        len(few_shot(LabelledVectors(train, labels), LabelledVectors(test, targets), num_draws=2))
        == 4
    )
    with pytest.raises(
        InputError, match=r"the label 'x' has 1 examples to draw 8 from; give it more"
    ):
        few_shot(
            LabelledVectors(train[2:6], labels[2:6]), LabelledVectors(test, targets), shots=(1, 8)
        )


def test_without_scikit_learn_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    with pytest.raises(
        InputError, match=r"need scikit-learn, .*; pip install 'official-bert\[evaluation\]'"
    ):
        clustering(drawn(1, 3, WIDTH), [0, 1, 1])


def model_of(vectors: dict[str, np.ndarray]):
    """What sentence-transformers' evaluators ask of a model, for texts whose vectors are given,
    in float64.
    """
    import torch
    from sentence_transformers.util import cos_sim

    def encode(texts, convert_to_tensor=False, **_):
        found = np.array([vectors[text] for text in texts], np.float64)
        return torch.tensor(found) if convert_to_tensor else found

    encoders = dict.fromkeys(("encode", "encode_query", "encode_document"), encode)
    card = types.SimpleNamespace(set_evaluation_metrics=lambda *_: None)
    return types.SimpleNamespace(
        **encoders, similarity=cos_sim, similarity_fn_name="cosine", model_card_data=card
    )


@pytest.mark.needs_extra("sentence_transformers")
@pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])
def test_the_values_are_those_of_sentence_transformers(ties):
    from sentence_transformers.sentence_transformer import evaluation

    names = [[f"{kind}{number:03}" for number in range(128)] for kind in "abc"]
    a, b, c = (drawn(seed, 128, WIDTH, ties=ties) for seed in (1, 2, 3))
    model = model_of(dict(zip([*names[0], *names[1], *names[2]], [*a, *b, *c], strict=True)))
    scores = np.random.default_rng(4).integers(6, size=128)
    labels = (cosines(a, b) + drawn(5, 128) > 0).astype(int)

    theirs = evaluation.EmbeddingSimilarityEvaluator(names[0], names[1], scores.tolist())(model)
    assert sts(a, b, scores) == close(
        {name: theirs[f"{name}_cosine"] for name in ("spearman", "pearson")}
    )
    theirs = evaluation.BinaryClassificationEvaluator(names[0], names[1], labels.tolist())(model)
    keys = ("accuracy", "accuracy_threshold", "f1", "f1_threshold")
    wanted = {f"best_{key}": theirs[f"cosine_{key}"] for key in keys} | {
        "average_precision": theirs["cosine_ap"]
    }
    assert pair_classification(cosines(a, b), labels) == close(wanted)
    assert triplets(a, b, c) == {
        "accuracy": evaluation.TripletEvaluator(*names)(model)["cosine_accuracy"]
    }

    relevant = rows_of(6, 128, 128, 120)
    evaluator = evaluation.InformationRetrievalEvaluator(
        {name: name for name in names[0]},
        {name: name for name in names[1]},
        {
            name: {names[1][row] for row in rows}
            for name, rows in zip(names[0], relevant, strict=True)
        },
        corpus_chunk_size=50,
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 5, 10, 100],
    )
    theirs = evaluator(model)
    found = retrieval(a, b, relevant)
    assert found == close({name: theirs["cosine_" + name.replace("_at_", "@")] for name in found})

    if not ties:  # theirs ranks equal ones in any order
        candidates = [
            rows | others for rows, others in zip(relevant, rows_of(7, 128, 128, 9), strict=True)
        ]
        samples = [
            {
                "query": name,
                "positive": [names[1][row] for row in rows],
                "negative": [names[1][row] for row in all_ - rows],
            }
            for name, rows, all_ in zip(names[0], relevant, candidates, strict=True)
        ]
        theirs = evaluation.RerankingEvaluator(samples)(model)
        found = retrieval(a, b, relevant, candidates)
        assert theirs == close(
            {name.replace("_at_", "@"): found[name] for name in ("map", "mrr_at_10", "ndcg_at_10")}
        )


@pytest.mark.parametrize("has_candidates", [False, True], ids=["corpus", "candidates"])
def test_a_query_is_not_ranked_among_its_answers(monkeypatch, has_candidates):
    """Rankings are those of the corpus without the query, whose other rows keep their order."""
    monkeypatch.setattr(embeddings, "_QUERY_ROWS", 3)
    monkeypatch.setattr(embeddings, "_CORPUS_ROWS", 7)
    corpus = drawn(2, 30, WIDTH, ties=True)
    query_rows = [*range(0, 28, 4), -1]
    queries = np.stack([*corpus[query_rows[:-1]], drawn(3, WIDTH)])
    relevant = [{(row + 5) % 30, row, 11} for row in range(8)]
    candidates = [set(range(25)) | rows for rows in relevant]
    wanted = []
    for number, of_query in enumerate(table_of_cosines(queries, corpus)):
        rows = (candidates[number] if has_candidates else set(range(30))) - {query_rows[number]}
        ranking = sorted(rows, key=lambda row: (-of_query[row], row))
        wanted.append(
            plain_scores(ranking, relevant[number] - {query_rows[number]}, has_candidates)
        )
    found = retrieval(queries, corpus, relevant, candidates if has_candidates else None, query_rows)
    assert found == close({name: np.mean([one[name] for one in wanted]) for name in wanted[0]})


def test_perfect_vectors_are_perfect_where_queries_are_answers():
    """a -> b and b -> a: each query finds the other, though its own text is nearer."""
    vectors = drawn(1, 2, WIDTH)
    with pytest.raises(InputError, match="no query has a relevant text to be found among others"):
        # Each has one text to choose from.
        retrieval(vectors, vectors, [{1}, {0}], query_rows=[0, 1])
    near = np.float32([[1, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1, 0], [0, 0, 0.9, 0.1]])
    relevant = [{1}, {0}, {3}, {2}]
    assert retrieval(near, near, relevant, query_rows=range(4))["accuracy_at_1"] == 1.0
    assert retrieval(near, near, relevant)["accuracy_at_1"] == 0.0
