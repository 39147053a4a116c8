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


def is_close(values, value) -> np.ndarray:
    """Return for each of the values whether it is close to `value`."""
    return np.isclose(values, value, rtol=1e-9, atol=1e-12)


def draw_vectors(seed: int, *shape: int, ties: bool = False) -> np.ndarray:
    """Draw vectors.

    Args:
        seed: The seed of the generator.
        shape: The shape of the result, whose last axis is that of a vector.
        ties: Whether many vectors have the same cosine, which float32 represents exactly.
    """
    generator = np.random.default_rng(seed)
    if not ties:
        vectors = generator.normal(size=shape)
        return np.float32(vectors)
    directions = generator.choice([-0.5, 0.5], shape)
    lengths = generator.choice([0.5, 2], (*shape[:-1], 1))
    return np.float32(directions) * lengths


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
    distances = cdist(np.float64(a), np.float64(b), "cosine")
    return np.float32(1 - distances)


def mean_scores(query_scores: list[dict[str, float]]) -> dict[str, float]:
    means = {}
    for name in query_scores[0]:
        values = [scores[name] for scores in query_scores]
        means[name] = np.mean(values)
    return means


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


WITH_AND_WITHOUT_TIES = pytest.mark.parametrize(
    "ties",
    [
        pytest.param(False, id="no ties"),
        pytest.param(True, id="ties"),
    ],
)
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


def draw_clusters(
    seed: int,
    num: int,
    names: str,
    spread: float,
) -> LabelledVectors:
    """Draw vectors around one centre for each label.

    Args:
        seed: The seed of the generator.
        num: The number of vectors.
        names: The labels, one character each.
        spread: The standard deviation around a centre.
    """
    numbers = np.arange(num) % len(names)
    centres = np.eye(len(names), WIDTH)
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(num, WIDTH))
    vectors = centres[numbers] + spread * noise
    labels = np.array(list(names))
    return LabelledVectors(np.float32(vectors), labels[numbers])


def rounded(values: list[float]) -> set[float]:
    return set(np.round(values, 9))


def test_clusters_are_compared_with_labels():
    vectors, labels = draw_clusters(1, 300, "abc", 0.1)
    metrics = clustering(vectors, labels, seed=1)
    assert metrics == close({"v_measure": 1.0})

    # Which two of the three clusters are joined depends on the seed.
    two_labels = np.where(labels == "c", "a", labels)
    measures = []
    for seed in range(8):
        metrics = clustering(vectors, two_labels, seed)
        measures.append(metrics["v_measure"])
    possible = [v_measure_score(two_labels, labels == name) for name in "abc"]
    assert rounded(measures) == rounded(possible)

    again = clustering(vectors, two_labels, seed=3)
    assert again == {"v_measure": measures[3]}


def few_shot_accuracy(
    train: LabelledVectors,
    test: LabelledVectors,
    shots: int,
    seed: tuple[int, ...],
) -> float:
    """Fit scikit-learn's regression to some examples of each label and return its accuracy."""
    generator = np.random.default_rng(seed)
    rows = []
    for name in "xyz":
        label_rows = np.flatnonzero(train.labels == name)
        rows.extend(generator.choice(label_rows, shots, replace=False))
    vectors = np.float64(train.vectors[rows])
    model = LogisticRegression(max_iter=1000)
    model.fit(vectors, train.labels[rows])
    return model.score(test.vectors, test.labels)


def test_few_shot_draws_examples_of_each_label_by_numbered_draws():
    train = draw_clusters(1, 60, "xyz", 1.0)
    test = draw_clusters(2, 90, "xyz", 1.0)

    metrics = few_shot(train, test, shots=(2, 5), num_draws=3, seed=4)

    expected = {}
    for shots in (5, 2):
        accuracies = []
        for draw in (2, 1, 0):
            seed = (4, shots, draw)
            accuracy = few_shot_accuracy(train, test, shots, seed)
            accuracies.append(accuracy)
        deviation = np.std(accuracies, ddof=1)
        expected[f"accuracy_{shots}"] = np.mean(accuracies)
        expected[f"accuracy_{shots}_std"] = deviation
    assert metrics == close(expected)


def test_few_shot_has_two_numbers_of_shots_by_default():
    train = draw_clusters(1, 60, "xyz", 1.0)
    test = draw_clusters(2, 90, "xyz", 1.0)
    metrics = few_shot(train, test, num_draws=2)
    assert len(metrics) == 4


def test_few_shot_refuses_more_shots_than_examples():
    test = draw_clusters(1, 60, "xyz", 1.0)
    vectors, labels = test
    train = LabelledVectors(vectors[2:6], labels[2:6])
    message = r"the label 'x' has 1 examples to draw 8 from; give it more"
    with pytest.raises(InputError, match=message):
        few_shot(train, test, shots=(1, 8))


def test_an_error_says_how_to_install_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    vectors = draw_vectors(1, 3, WIDTH)
    message = r"need scikit-learn, .*; pip install 'official-bert\[evaluation\]'"
    with pytest.raises(InputError, match=message):
        clustering(vectors, [0, 1, 1])


def make_evaluator_model(vectors: dict[str, np.ndarray]):
    """Make what the evaluators of sentence-transformers need of a model, in float64.

    Args:
        vectors: The vectors by text.
    """
    import torch
    from sentence_transformers.util import cos_sim

    def encode(texts, convert_to_tensor=False, **_):
        rows = np.float64([vectors[text] for text in texts])
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


def name_texts(kind: str) -> list[str]:
    return [f"{kind}{number:03}" for number in range(128)]


A_NAMES = name_texts("a")
B_NAMES = name_texts("b")
C_NAMES = name_texts("c")


def draw_three(ties: bool) -> list[np.ndarray]:
    """Draw the vectors of the texts `A_NAMES`, `B_NAMES` and `C_NAMES`."""
    return [draw_vectors(seed, 128, WIDTH, ties=ties) for seed in (1, 2, 3)]


def make_model_of_three(vectors: list[np.ndarray]):
    """Make a model that encodes `A_NAMES`, `B_NAMES` and `C_NAMES` as these vectors."""
    names = [*A_NAMES, *B_NAMES, *C_NAMES]
    rows = np.concatenate(vectors)
    vectors_by_name = dict(zip(names, rows, strict=True))
    return make_evaluator_model(vectors_by_name)


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
