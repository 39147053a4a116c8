"""Tests of the metrics of embeddings.

The references are SciPy, scikit-learn, sentence-transformers and rankings in plain Python.
"""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, ndcg_score

from official_bert.io.errors import Diverged, InputError
from official_bert.metrics import embeddings
from official_bert.metrics.cosines import cosines
from official_bert.metrics.embeddings import pair_classification, retrieval, sts, triplets
from tests.metrics.vectors import (
    A_NAMES,
    B_NAMES,
    C_NAMES,
    WIDTH,
    WITH_AND_WITHOUT_TIES,
    close,
    cosine_table,
    draw_row_sets,
    draw_three,
    draw_vectors,
    make_model_of_three,
    mean_scores,
)


def is_close(values, value) -> np.ndarray:
    """Return for each of the values whether it is close to `value`."""
    return np.isclose(values, value, rtol=1e-9, atol=1e-12)


def test_cosines():
    a = draw_vectors(1, 50, WIDTH)
    b = draw_vectors(2, 50, WIDTH)

    values = cosines(a, 1024 * b)

    expected = []
    for row in range(50):
        x = np.float64(a[row])
        y = np.float64(b[row])
        squares = (x @ x) * (y @ y)
        cosine = x @ y / np.sqrt(squares)
        expected.append(cosine)
    np.testing.assert_allclose(values, expected, rtol=1e-12)

    zeros = np.zeros((1, WIDTH))
    assert cosines(zeros, b[:1]) == [0]


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


def compute_thresholds(values: np.ndarray) -> np.ndarray:
    """Compute a threshold below each of some descending values, and one above all of them."""
    above = values[:-1]
    below = values[1:]
    midpoints = (above + below) / 2
    above_all = np.nextafter(values[0], 99)
    return np.array([*midpoints, values[-1], above_all])


@pytest.mark.parametrize("seed", range(30))
def test_pair_classification_finds_the_best_of_all_thresholds(seed):
    generator = np.random.default_rng(seed)
    random_labels = generator.integers(2, size=seed)
    labels = generator.permutation([1, 0, *random_labels])
    sevenths = generator.integers(1 + seed, size=len(labels))
    similarities = sevenths / 7

    metrics = pair_classification(similarities, labels)

    average_precision = average_precision_score(labels, similarities)
    assert metrics["average_precision"] == close(average_precision)

    values = np.unique(similarities)[::-1]
    accuracies = []
    f1s = []
    for lowest in [*values, 99]:
        predictions = similarities >= lowest
        accuracy = accuracy_score(labels, predictions)
        f1 = f1_score(labels, predictions, zero_division=0)
        accuracies.append(accuracy)
        f1s.append(f1)
    thresholds = compute_thresholds(values)

    best_accuracy = max(accuracies)
    assert metrics["best_accuracy"] == close(best_accuracy)
    is_best = is_close(accuracies, best_accuracy)
    assert metrics["best_accuracy_threshold"] == max(thresholds[is_best])

    best_f1 = max(f1s)
    assert metrics["best_f1"] == close(best_f1)
    is_best = is_close(f1s, best_f1)
    assert metrics["best_f1_threshold"] in thresholds[is_best]


def test_a_threshold_leaves_out_the_lower_one_of_neighbours_in_float64():
    upper = 1 + np.finfo(np.float64).eps  # the mean of it and 1 is rounded to 1
    metrics = pair_classification([1, upper], [0, 1])
    assert metrics["best_f1_threshold"] == upper
    assert metrics["best_accuracy_threshold"] == upper


def test_triplets_count_positives_that_are_nearer_than_negatives():
    anchors = np.float32(
        [
            [1, 0],
            [0, 1],
        ]
    )
    positives = np.float32(
        [
            [2, 1],
            [1, 2],
        ]
    )
    negatives = np.float32(
        [
            [1, 1],
            [1, 2],  # the positive of the second triplet
        ]
    )
    assert triplets(anchors, positives, negatives) == {"accuracy": 0.5}

    several_negatives = np.float32(
        [
            [[1, 1], [3, 1], [0, 1]],
            [[1, 1], [1, 2], [1, 0]],
        ]
    )
    metrics = triplets(anchors, positives, several_negatives)
    assert metrics == close({"accuracy": 4 / 6})


@pytest.mark.needs_extra("sentence_transformers")
@WITH_AND_WITHOUT_TIES
def test_pairs_and_triplets_have_the_values_of_sentence_transformers(ties):
    from sentence_transformers.sentence_transformer import evaluation

    a, b, c = draw_three(ties)
    model = make_model_of_three([a, b, c])
    similarities = cosines(a, b)

    scores = np.random.default_rng(4).integers(6, size=128)
    evaluator = evaluation.EmbeddingSimilarityEvaluator(
        A_NAMES,
        B_NAMES,
        scores.tolist(),
    )
    theirs = evaluator(model)
    assert sts(a, b, scores) == close(
        {
            "spearman": theirs["spearman_cosine"],
            "pearson": theirs["pearson_cosine"],
        }
    )

    noise = draw_vectors(5, 128)
    labels = np.int64(similarities + noise > 0)
    evaluator = evaluation.BinaryClassificationEvaluator(
        A_NAMES,
        B_NAMES,
        labels.tolist(),
    )
    theirs = evaluator(model)
    assert pair_classification(similarities, labels) == close(
        {
            "average_precision": theirs["cosine_ap"],
            "best_accuracy": theirs["cosine_accuracy"],
            "best_accuracy_threshold": theirs["cosine_accuracy_threshold"],
            "best_f1": theirs["cosine_f1"],
            "best_f1_threshold": theirs["cosine_f1_threshold"],
        }
    )

    evaluator = evaluation.TripletEvaluator(A_NAMES, B_NAMES, C_NAMES)
    theirs = evaluator(model)
    metrics = triplets(a, b, c)
    assert metrics == {"accuracy": theirs["cosine_accuracy"]}


def score_ranking(
    ranking: list[int],
    relevant: set[int],
    is_full_map: bool,
) -> dict[str, float]:
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

    ideal_gain = 0
    num_ideal = min(len(relevant), 10)
    for rank in range(1, 1 + num_ideal):
        ideal_gain += 1 / np.log2(rank + 1)

    scores = {
        "ndcg_at_10": gain / ideal_gain,
        "mrr_at_10": reciprocal_rank,
        "accuracy_at_1": float(ranking[:1] and ranking[0] in relevant),
    }
    num_relevant = len(relevant)
    if is_full_map:
        scores["map"] = precisions / num_relevant
    else:
        scores["map_at_100"] = precisions / min(num_relevant, 100)
    for k in (1, 5, 10, 100):
        hits = relevant.intersection(ranking[:k])
        scores[f"recall_at_{k}"] = len(hits) / num_relevant
    return scores


def rank_rows(rows: set[int], similarities: np.ndarray) -> list[int]:
    """Sort rows of the corpus: the nearest ones come first, equally near ones by number."""
    by_number = sorted(rows)
    return sorted(by_number, key=lambda row: -similarities[row])


CORPUS_OR_CANDIDATES = pytest.mark.parametrize(
    "has_candidates",
    [
        pytest.param(False, id="corpus"),
        pytest.param(True, id="candidates"),
    ],
)


@WITH_AND_WITHOUT_TIES
@pytest.mark.parametrize(
    "max_relevant",
    [
        pytest.param(3, id="few relevant"),
        pytest.param(200, id="many relevant"),
    ],
)
@CORPUS_OR_CANDIDATES
def test_retrieval_ranks_as_a_sort(monkeypatch, ties, max_relevant, has_candidates):
    monkeypatch.setattr(embeddings, "QUERY_ROWS", 3)
    monkeypatch.setattr(embeddings, "CORPUS_ROWS", 70)
    queries = draw_vectors(1, 20, WIDTH, ties=ties)
    corpus = draw_vectors(2, 250, WIDTH, ties=ties)
    relevant = draw_row_sets(3, 20, 250, max_relevant)
    all_rows = set(range(250))
    candidates = [all_rows] * 20
    repeated_candidates = None
    if has_candidates:
        candidates = draw_row_sets(4, 20, 250, 240)
        # Every ranking of the last query is right.
        candidates[-1] = relevant[-1]
        repeated_candidates = [np.int64([*rows, *rows]) for rows in candidates]

    metrics = retrieval(queries, corpus, relevant, repeated_candidates)

    scores = []
    table = cosine_table(queries, corpus)
    for similarities, relevant_rows, rows in zip(table, relevant, candidates, strict=True):
        if relevant_rows and relevant_rows != rows:
            ranking = rank_rows(rows, similarities)
            query_scores = score_ranking(ranking, relevant_rows, is_full_map=has_candidates)
            scores.append(query_scores)
    assert metrics == close(mean_scores(scores))


def test_rankings_of_candidates_are_scikit_learns():
    queries = draw_vectors(1, 9, WIDTH)
    corpus = draw_vectors(2, 60, WIDTH)
    labels = np.zeros((9, 60), bool)
    relevant = []
    for query in range(9):
        rows = [query, query + 20, query + 40]
        labels[query, rows] = True
        relevant.append(set(rows))
    candidates = [range(60)] * 9

    metrics = retrieval(queries, corpus, relevant, candidates)

    scores = cosine_table(queries, corpus)
    ndcg = ndcg_score(labels, scores, k=10)
    assert metrics["ndcg_at_10"] == close(ndcg)
    precisions = [
        average_precision_score(query_labels, query_scores)
        for query_labels, query_scores in zip(labels, scores, strict=True)
    ]
    assert metrics["map"] == close(np.mean(precisions))


def test_retrieval_refuses_vectors_that_are_not_finite():
    queries = draw_vectors(1, 1, WIDTH)
    broken = np.full((3, WIDTH), np.nan)
    with pytest.raises(Diverged, match="the vectors have numbers that are not finite"):
        retrieval(queries, broken, [{1}])


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


def name_rows(rows: set[int]) -> set[str]:
    """Return the names of rows of the second vectors."""
    return {B_NAMES[row] for row in rows}


@pytest.mark.needs_extra("sentence_transformers")
@WITH_AND_WITHOUT_TIES
def test_retrieval_has_the_values_of_sentence_transformers(ties):
    from sentence_transformers.sentence_transformer import evaluation

    vectors = draw_three(ties)
    queries, corpus, _ = vectors
    relevant = draw_row_sets(6, 128, 128, 120)
    evaluator = evaluation.InformationRetrievalEvaluator(
        queries={name: name for name in A_NAMES},
        corpus={name: name for name in B_NAMES},
        relevant_docs=dict(zip(A_NAMES, map(name_rows, relevant), strict=True)),
        corpus_chunk_size=50,
        accuracy_at_k=[1],
        precision_recall_at_k=[1, 5, 10, 100],
    )

    theirs = evaluator(make_model_of_three(vectors))

    metrics = retrieval(queries, corpus, relevant)
    expected = {}
    for name in metrics:
        their_name = name.replace("_at_", "@")
        expected[name] = theirs[f"cosine_{their_name}"]
    assert metrics == close(expected)


@pytest.mark.needs_extra("sentence_transformers")
def test_reranking_has_the_values_of_sentence_transformers():
    """Equal cosines are not compared, since sentence-transformers ranks them in any order."""
    from sentence_transformers.sentence_transformer import evaluation

    vectors = draw_three(ties=False)
    queries, corpus, _ = vectors
    relevant = draw_row_sets(6, 128, 128, 120)
    others = draw_row_sets(7, 128, 128, 9)
    candidates = []
    samples = []
    for name, rows, other_rows in zip(A_NAMES, relevant, others, strict=True):
        candidates.append(rows | other_rows)
        sample = {
            "query": name,
            "positive": list(name_rows(rows)),
            "negative": list(name_rows(other_rows - rows)),
        }
        samples.append(sample)

    evaluator = evaluation.RerankingEvaluator(samples)
    theirs = evaluator(make_model_of_three(vectors))

    metrics = retrieval(queries, corpus, relevant, candidates)
    expected = {
        "map": metrics["map"],
        "mrr@10": metrics["mrr_at_10"],
        "ndcg@10": metrics["ndcg_at_10"],
    }
    assert theirs == close(expected)


@CORPUS_OR_CANDIDATES
def test_a_query_is_not_ranked_among_its_answers(monkeypatch, has_candidates):
    """Rankings are those of the corpus without the query. Its other rows keep their order."""
    monkeypatch.setattr(embeddings, "QUERY_ROWS", 3)
    monkeypatch.setattr(embeddings, "CORPUS_ROWS", 7)
    corpus = draw_vectors(2, 30, WIDTH, ties=True)
    corpus_queries = range(0, 28, 4)
    query_rows = [*corpus_queries, -1]
    queries = np.stack(
        [
            *corpus[corpus_queries],
            draw_vectors(3, WIDTH),
        ]
    )
    relevant = []
    for query in range(8):
        rows = {query + 5, query, 11}
        relevant.append(rows)
    candidates = None
    if has_candidates:
        first_rows = set(range(25))
        candidates = [first_rows | rows for rows in relevant]

    metrics = retrieval(queries, corpus, relevant, candidates, query_rows)

    scores = []
    for number, similarities in enumerate(cosine_table(queries, corpus)):
        query_row = {query_rows[number]}
        rows = candidates[number] if candidates else set(range(30))
        ranking = rank_rows(rows - query_row, similarities)
        other_rows = relevant[number] - query_row
        query_scores = score_ranking(ranking, other_rows, is_full_map=has_candidates)
        scores.append(query_scores)
    assert metrics == close(mean_scores(scores))


def test_a_query_without_other_texts_cannot_be_ranked():
    vectors = draw_vectors(1, 2, WIDTH)
    relevant = [{1}, {0}]
    with pytest.raises(InputError, match="no query has a relevant text to be found among others"):
        retrieval(vectors, vectors, relevant, query_rows=[0, 1])


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
