"""Correlations of predicted scores with true scores: GLUE's metrics for STS-B.

In: two arrays of numbers. Out: {name: value} from -1 to 1, or nan if an array is constant or contains a nan, which
leaves the correlation undefined. A search for the best value must rank nan below all numbers.
"""

import numpy as np


def pearson(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the Pearson correlation, as `pearson`; both arguments are float[n]."""
    return {"pearson": _correlation(*_checked(targets, predictions))}


def spearman(targets: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Returns the Spearman correlation, as `spearman`: the Pearson correlation of the ranks.

    Equal values all have the mean of their ranks.
    """
    targets, predictions = _checked(targets, predictions)
    if np.isnan(targets).any() or np.isnan(predictions).any():
        return {"spearman": float("nan")}
    return {"spearman": _correlation(_ranks(targets), _ranks(predictions))}


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value, from 1: float64[n]."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[which]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    if not all(np.isfinite(values).all() and np.ptp(values) for values in (first, second)):
        return float("nan")
    return float(np.clip(_unit(first) @ _unit(second), -1.0, 1.0))  # rounding errors can exceed 1


def _unit(values: np.ndarray) -> np.ndarray:
    """Subtracts the mean of the values and scales them to norm 1."""
    values = values / np.abs(values).max()  # squares of large or small values would exceed the range of float64
    values = values - values.mean()
    return values / np.linalg.norm(values)


def _checked(targets: np.ndarray, predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Converts both to float64 and checks their shapes; squares of ranks in float32 would lose the fifth digit."""
    targets, predictions = np.asarray(targets, np.float64), np.asarray(predictions, np.float64)
    if targets.shape != predictions.shape or targets.ndim != 1 or not targets.size:
        raise ValueError(f"targets of shape {targets.shape} and predictions of shape {predictions.shape}")
    return targets, predictions
