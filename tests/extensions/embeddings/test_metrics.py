"""Tests of the metrics of embeddings.

The references are SciPy, scikit-learn, sentence-transformers and rankings in plain Python.
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


def draw_vectors(seed: int, *shape: int, ties: bool = False) -> np.ndarray:
    """Draw vectors.

    Args:
        seed: The seed of the generator.
        shape: The shape of the result, whose last axis is that of a vector.
        ties: Whether many vectors have the same cosine, which float32 represents exactly.
    """
    generator = np.random.default_rng(seed)
    if not ties:
        return generator.normal(size=shape).astype(np.float32)
    directions = generator.choice([-0.5, 0.5], shape).astype(np.float32)
    lengths = generator.choice([0.5, 2], (*shape[:-1], 1))
    return directions * lengths


def draw_row_sets(seed: int, num_sets: int, num_rows: int, max_size: int) -> list[set[int]]:
    """Draw sets of at most `max_size` numbers below `num_rows`."""
    generator = np.random.default_rng(seed)
    row_sets = []
    for _ in range(num_sets):
        size = generator.integers(max_size + 1)
        rows = generator.choice(num_rows, size, replace=False)
        row_sets.append(set(rows.tolist()))
    return row_sets


def cosine_table(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    distances = cdist(a.astype(np.float64), b.astype(np.float64), "cosine")
    return (1 - distances).astype(np.float32)


def mean_scores(scores: list[dict[str, float]]) -> dict[str, float]:
    return {name: np.mean([query[name] for query in scores]) for name in scores[0]}


def test_cosines():
    a = draw_vectors(1, 50, WIDTH)
    b = draw_vectors(2, 50, WIDTH)
    expected = []
    for x, y in zip(np.float64(a), np.float64(b), strict=True):
        norms = np.sqrt((x @ x) * (y @ y))
        expected.append(x @ y / norms)
    np.testing.assert_allclose(cosines(a, 1024 * b), expected, rtol=1e-12)
    assert cosines(np.zeros((1, WIDTH)), b[:1]) == [0]


def test_sts_is_the_correlation_of_cosines_and_scores():
    a = draw_vectors(1, 50, WIDTH)
    b = draw_vectors(2, 50, WIDTH)
    scores = np.random.default_rng(3).integers(6, size=50)
    similarities = cosines(a, b)
    expected = {
        "spearman": spearmanr(scores, similarities).statistic,
        "pearson": pearsonr(scores, similarities).statistic,
    }
    assert sts(a, b, scores) == close(expected)


@pytest.mark.parametrize("seed", range(30))
def test_pair_classification_finds_the_best_of_all_thresholds(seed):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.append([1, 0], generator.integers(2, size=seed)))
    similarities = generator.integers(1 + seed, size=len(labels)) / 7

    metrics = pair_classification(similarities, labels)

    average_precision = average_precision_score(labels, similarities)
    assert metrics["average_precision"] == close(average_precision)

    values = np.unique(similarities)[::-1]
    midpoints = (values[:-1] + values[1:]) / 2
    thresholds = np.array([*midpoints, values[-1], np.nextafter(values[0], 99)])
    predictions = [similarities >= value for value in [*values, 99]]

    accuracies = np.array([accuracy_score(labels, predicted) for predicted in predictions])
    assert metrics["best_accuracy"] == close(accuracies.max())
    best = thresholds[np.isclose(accuracies, accuracies.max(), rtol=1e-9, atol=1e-12)]
    assert metrics["best_accuracy_threshold"] == max(best)

    f1s = np.array([f1_score(labels, predicted, zero_division=0) for predicted in predictions])
    assert metrics["best_f1"] == close(f1s.max())
    best = thresholds[np.isclose(f1s, f1s.max(), rtol=1e-9, atol=1e-12)]
    assert metrics["best_f1_threshold"] in best


def test_a_threshold_leaves_out_the_lower_one_of_neighbours_in_float64():
    upper = 1 + np.finfo(np.float64).eps  # the mean of it and 1 is rounded to 1
    metrics = pair_classification([1, upper], [0, 1])
    assert metrics["best_f1_threshold"] == upper
    assert metrics["best_accuracy_threshold"] == upper


def test_triplets_count_positives_that_are_nearer_than_negatives():
    anchors = np.float32([[1, 0], [0, 1]])
    positives = np.float32([[2, 1], [1, 2]])

    # The negative of the second triplet is its positive.
    negatives = np.float32([[1, 1], [1, 2]])
    assert triplets(anchors, positives, negatives) == {"accuracy": 0.5}

    several_negatives = np.float32(
        [
            [[1, 1], [3, 1], [0, 1]],
            [[1, 1], [1, 2], [1, 0]],
        ]
    )
    metrics = triplets(anchors, positives, several_negatives)
    assert metrics == close({"accuracy": 4 / 6})


def score_ranking(ranking: list[int], relevant: set[int], is_full_map: bool) -> dict[str, float]:
    """Compute the scores of one query by going down its ranking.

    Args:
        ranking: The rows of the corpus, the best one first.
        relevant: The rows that are relevant.
        is_full_map: Whether the average precision is that of the whole ranking, not of the
            first 100 rows.
    """
    map_depth = len(ranking) if is_full_map else 100
    num_hits = 0
    precisions = 0.0
    gain = 0.0
    reciprocal_rank = 0.0
    for rank, row in enumerate(ranking, start=1):
        if row not in relevant:
            continue
        num_hits += 1
        if rank <= map_depth:
            precisions += num_hits / rank
        if rank <= 10:
            gain += 1 / np.log2(rank + 1)
            reciprocal_rank = reciprocal_rank or 1 / rank

    num_ideal = min(len(relevant), 10)
    ideal_gain = sum(1 / np.log2(rank + 1) for rank in range(1, 1 + num_ideal))
    scores = {
        "ndcg_at_10": gain / ideal_gain,
        "mrr_at_10": reciprocal_rank,
        "accuracy_at_1": float(ranking[:1] and ranking[0] in relevant),
    }
    if is_full_map:
        scores["map"] = precisions / len(relevant)
    else:
        scores["map_at_100"] = precisions / min(len(relevant), 100)
    for k in (1, 5, 10, 100):
        hits = relevant.intersection(ranking[:k])
        scores[f"recall_at_{k}"] = len(hits) / len(relevant)
    return scores


@pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])
@pytest.mark.parametrize("max_relevant", [3, 200], ids=["few relevant", "many relevant"])
@pytest.mark.parametrize("has_candidates", [False, True], ids=["corpus", "candidates"])
def test_retrieval_ranks_as_a_sort(monkeypatch, ties, max_relevant, has_candidates):
    monkeypatch.setattr(embeddings, "_QUERY_ROWS", 3)
    monkeypatch.setattr(embeddings, "_CORPUS_ROWS", 70)
    queries = draw_vectors(1, 20, WIDTH, ties=ties)
    corpus = draw_vectors(2, 250, WIDTH, ties=ties)
    relevant = draw_row_sets(3, 20, 250, max_relevant)
    candidates = [set(range(250))] * 20
    if has_candidates:
        # Every ranking of the last query is right.
        candidates = [*draw_row_sets(4, 19, 250, 240), relevant[-1]]

    scores = []
    table = cosine_table(queries, corpus)
    for similarities, rows, ranked in zip(table, relevant, candidates, strict=True):
        if rows and rows != ranked:
            ranking = sorted(ranked, key=lambda row: (-similarities[row], row))
            scores.append(score_ranking(ranking, rows, is_full_map=has_candidates))

    repeated = [np.array([*rows, *rows], np.int64) for rows in candidates]
    metrics = retrieval(queries, corpus, relevant, repeated if has_candidates else None)
    assert metrics == close(mean_scores(scores))


def test_rankings_of_candidates_are_scikit_learns():
    queries = draw_vectors(1, 9, WIDTH)
    corpus = draw_vectors(2, 60, WIDTH)
    relevant = [{row, row + 20, row + 40} for row in range(9)]

    metrics = retrieval(queries, corpus, relevant, [range(60)] * 9)

    scores = cosine_table(queries, corpus)
    labels = np.zeros((9, 60), bool)
    for query, rows in enumerate(relevant):
        labels[query, list(rows)] = True
    assert metrics["ndcg_at_10"] == close(ndcg_score(labels, scores, k=10))
    precisions = map(average_precision_score, labels, scores)
    assert metrics["map"] == close(np.mean(list(precisions)))


def test_retrieval_refuses_vectors_that_are_not_finite():
    broken = np.full((3, WIDTH), np.nan)
    with pytest.raises(Diverged, match="the vectors have numbers that are not finite"):
        retrieval(draw_vectors(1, 1, WIDTH), broken, [{1}])


@pytest.mark.parametrize(
    ("relevant", "candidates"),
    [
        pytest.param([set()], None, id="corpus"),
        pytest.param([{1}], [{1}], id="candidates"),
    ],
)
def test_retrieval_refuses_queries_without_a_relevant_text(relevant, candidates):
    query = draw_vectors(1, 1, WIDTH)
    corpus = draw_vectors(2, 3, WIDTH)
    with pytest.raises(InputError, match="no query has a relevant text"):
        retrieval(query, corpus, relevant, candidates)


def draw_clusters(
    seed: int, num: int, names: list[str], spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw vectors around one centre for each name; return them and their names."""
    labels = np.arange(num) % len(names)
    centres = np.eye(len(names), WIDTH)[labels]
    noise = np.random.default_rng(seed).normal(size=(num, WIDTH))
    vectors = centres + spread * noise
    return vectors.astype(np.float32), np.array(names)[labels]


def test_clusters_are_compared_with_labels():
    vectors, labels = draw_clusters(1, 300, ["a", "b", "c"], 0.1)
    assert clustering(vectors, labels, seed=1) == close({"v_measure": 1.0})

    # Which two of the three clusters are joined depends on the seed.
    two_labels = np.where(labels == "c", "a", labels)
    measures = [clustering(vectors, two_labels, seed)["v_measure"] for seed in range(8)]
    possible = [v_measure_score(two_labels, labels == name) for name in "abc"]
    assert set(np.round(measures, 9)) == set(np.round(possible, 9))
    assert clustering(vectors, two_labels, seed=3) == {"v_measure": measures[3]}


def few_shot_accuracy(train: LabelledVectors, test: LabelledVectors, shots: int, seed) -> float:
    """Fit scikit-learn's regression to some examples of each label and return its accuracy."""
    generator = np.random.default_rng(seed)
    rows: list[int] = []
    for name in "xyz":
        label_rows = np.where(train.labels == name)[0]
        rows.extend(generator.choice(label_rows, shots, replace=False))
    model = LogisticRegression(max_iter=1000)
    model.fit(train.vectors[rows].astype(np.float64), train.labels[rows])
    return model.score(test.vectors, test.labels)


def test_few_shot_draws_examples_of_each_label_by_numbered_draws():
    train = LabelledVectors(*draw_clusters(1, 60, ["x", "y", "z"], 1.0))
    test = LabelledVectors(*draw_clusters(2, 90, ["x", "y", "z"], 1.0))

    metrics = few_shot(train, test, shots=(2, 5), num_draws=3, seed=4)

    expected = {}
    for shots in (5, 2):
        seeds = [(4, shots, draw) for draw in (2, 1, 0)]
        accuracies = [few_shot_accuracy(train, test, shots, seed) for seed in seeds]
        expected[f"accuracy_{shots}"] = np.mean(accuracies)
        expected[f"accuracy_{shots}_std"] = np.std(accuracies, ddof=1)
    assert metrics == close(expected)


def test_few_shot_has_two_numbers_of_shots_by_default():
    train = LabelledVectors(*draw_clusters(1, 60, ["x", "y", "z"], 1.0))
    test = LabelledVectors(*draw_clusters(2, 90, ["x", "y", "z"], 1.0))
    assert len(few_shot(train, test, num_draws=2)) == 4


def test_few_shot_refuses_more_shots_than_examples():
    vectors, labels = draw_clusters(1, 60, ["x", "y", "z"], 1.0)
    train = LabelledVectors(vectors[2:6], labels[2:6])
    message = r"the label 'x' has 1 examples to draw 8 from; give it more"
    with pytest.raises(InputError, match=message):
        few_shot(train, LabelledVectors(vectors, labels), shots=(1, 8))


def test_an_error_says_how_to_install_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    message = r"need scikit-learn, .*; pip install 'official-bert\[evaluation\]'"
    with pytest.raises(InputError, match=message):
        clustering(draw_vectors(1, 3, WIDTH), [0, 1, 1])


def make_evaluator_model(vectors: dict[str, np.ndarray]):
    """Make what the evaluators of sentence-transformers need of a model, in float64.

    Args:
        vectors: The vectors by text.
    """
    import torch
    from sentence_transformers.util import cos_sim

    def encode(texts, convert_to_tensor=False, **_):
        rows = np.array([vectors[text] for text in texts], np.float64)
        return torch.tensor(rows) if convert_to_tensor else rows

    card = types.SimpleNamespace(set_evaluation_metrics=lambda *_: None)
    return types.SimpleNamespace(
        encode=encode,
        encode_query=encode,
        encode_document=encode,
        similarity=cos_sim,
        similarity_fn_name="cosine",
        model_card_data=card,
    )


NAMES = [[f"{kind}{number:03}" for number in range(128)] for kind in "abc"]
TIES = pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])


def draw_three(ties: bool) -> list[np.ndarray]:
    return [draw_vectors(seed, 128, WIDTH, ties=ties) for seed in (1, 2, 3)]


def make_model_of_three(vectors: list[np.ndarray]):
    """Make a model that encodes `NAMES` as these vectors."""
    names = [name for kind in NAMES for name in kind]
    return make_evaluator_model(dict(zip(names, np.concatenate(vectors), strict=True)))


@pytest.mark.needs_extra("sentence_transformers")
@TIES
def test_pairs_and_triplets_have_the_values_of_sentence_transformers(ties):
    from sentence_transformers.sentence_transformer import evaluation

    a, b, c = draw_three(ties)
    model = make_model_of_three([a, b, c])
    scores = np.random.default_rng(4).integers(6, size=128)
    labels = (cosines(a, b) + draw_vectors(5, 128) > 0).astype(int)

    evaluator = evaluation.EmbeddingSimilarityEvaluator(NAMES[0], NAMES[1], scores.tolist())
    theirs = evaluator(model)
    assert sts(a, b, scores) == close(
        {
            "spearman": theirs["spearman_cosine"],
            "pearson": theirs["pearson_cosine"],
        }
    )

    evaluator = evaluation.BinaryClassificationEvaluator(NAMES[0], NAMES[1], labels.tolist())
    theirs = evaluator(model)
    assert pair_classification(cosines(a, b), labels) == close(
        {
            "average_precision": theirs["cosine_ap"],
            "best_accuracy": theirs["cosine_accuracy"],
            "best_accuracy_threshold": theirs["cosine_accuracy_threshold"],
            "best_f1": theirs["cosine_f1"],
            "best_f1_threshold": theirs["cosine_f1_threshold"],
        }
    )

    theirs = evaluation.TripletEvaluator(*NAMES)(model)
    assert triplets(a, b, c) == {"accuracy": theirs["cosine_accuracy"]}


@pytest.mark.needs_extra("sentence_transformers")
@TIES
def test_retrieval_has_the_values_of_sentence_transformers(ties):
    from sentence_transformers.sentence_transformer import evaluation

    vectors = draw_three(ties)
    queries, corpus, _ = vectors
    relevant = draw_row_sets(6, 128, 128, 120)
    relevant_names = [{NAMES[1][row] for row in rows} for rows in relevant]
    evaluator = evaluation.InformationRetrievalEvaluator(
        queries={name: name for name in NAMES[0]},
        corpus={name: name for name in NAMES[1]},
        relevant_docs=dict(zip(NAMES[0], relevant_names, strict=True)),
        corpus_chunk_size=50,
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 5, 10, 100],
    )

    theirs = evaluator(make_model_of_three(vectors))

    metrics = retrieval(queries, corpus, relevant)
    expected = {name: theirs["cosine_" + name.replace("_at_", "@")] for name in metrics}
    assert metrics == close(expected)


@pytest.mark.needs_extra("sentence_transformers")
def test_reranking_has_the_values_of_sentence_transformers():
    """Equal cosines are not compared, since sentence-transformers ranks them in any order."""
    from sentence_transformers.sentence_transformer import evaluation

    vectors = draw_three(ties=False)
    queries, corpus, _ = vectors
    relevant = draw_row_sets(6, 128, 128, 120)
    others = draw_row_sets(7, 128, 128, 9)
    candidates = [rows | more for rows, more in zip(relevant, others, strict=True)]
    samples = []
    for query, name in enumerate(NAMES[0]):
        negatives = candidates[query] - relevant[query]
        sample = {
            "query": name,
            "positive": [NAMES[1][row] for row in relevant[query]],
            "negative": [NAMES[1][row] for row in negatives],
        }
        samples.append(sample)

    theirs = evaluation.RerankingEvaluator(samples)(make_model_of_three(vectors))

    metrics = retrieval(queries, corpus, relevant, candidates)
    expected = {
        "map": metrics["map"],
        "mrr@10": metrics["mrr_at_10"],
        "ndcg@10": metrics["ndcg_at_10"],
    }
    assert theirs == close(expected)


@pytest.mark.parametrize("has_candidates", [False, True], ids=["corpus", "candidates"])
def test_a_query_is_not_ranked_among_its_answers(monkeypatch, has_candidates):
    """Rankings are those of the corpus without the query. Its other rows keep their order."""
    monkeypatch.setattr(embeddings, "_QUERY_ROWS", 3)
    monkeypatch.setattr(embeddings, "_CORPUS_ROWS", 7)
    corpus = draw_vectors(2, 30, WIDTH, ties=True)
    query_rows = [*range(0, 28, 4), -1]
    queries = np.stack([*corpus[query_rows[:-1]], draw_vectors(3, WIDTH)])
    relevant = [{(row + 5) % 30, row, 11} for row in range(8)]
    candidates = None
    if has_candidates:
        candidates = [set(range(25)) | rows for rows in relevant]

    scores = []
    for number, similarities in enumerate(cosine_table(queries, corpus)):
        query_row = {query_rows[number]}
        rows = candidates[number] if candidates else set(range(30))
        ranking = sorted(rows - query_row, key=lambda row: (-similarities[row], row))
        others = relevant[number] - query_row
        scores.append(score_ranking(ranking, others, is_full_map=has_candidates))

    metrics = retrieval(queries, corpus, relevant, candidates, query_rows)
    assert metrics == close(mean_scores(scores))


def test_a_query_without_other_texts_cannot_be_ranked():
    vectors = draw_vectors(1, 2, WIDTH)
    with pytest.raises(InputError, match="no query has a relevant text to be found among others"):
        retrieval(vectors, vectors, [{1}, {0}], query_rows=[0, 1])


def test_perfect_vectors_are_perfect_where_queries_are_answers():
    """a -> b and b -> a: each query finds the other one, although its own text is nearer."""
    vectors = np.float32(
        [
            [1, 0, 0, 0],
            [0.9, 0.1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 0.9, 0.1],
        ]
    )
    relevant = [{1}, {0}, {3}, {2}]
    excluding_itself = retrieval(vectors, vectors, relevant, query_rows=range(4))
    including_itself = retrieval(vectors, vectors, relevant)
    assert excluding_itself["accuracy_at_1"] == 1.0
    assert including_itself["accuracy_at_1"] == 0.0
