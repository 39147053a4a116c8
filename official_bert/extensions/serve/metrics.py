"""What the server counts, in the format of Prometheus."""

from __future__ import annotations

import prometheus_client  # pyright: ignore[reportMissingImports]

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """The metrics of a server, with those of its process."""

    def __init__(self):
        registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)
        self._registry = registry
        self._requests = prometheus_client.Counter(
            "official_bert_requests",
            "Requests by path, model and HTTP status.",
            ["path", "model", "status"],
            registry=registry,
        )
        self._seconds = prometheus_client.Histogram(
            "official_bert_request_seconds",
            "Time from the headers of a request to its answer.",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue_rows = prometheus_client.Gauge(
            "official_bert_queue_rows",
            "Texts that wait for a model.",
            ["model"],
            registry=registry,
        )
        self._batch_rows = prometheus_client.Histogram(
            "official_bert_batch_rows",
            "Texts in a batch.",
            ["model"],
            buckets=_ROWS,
            registry=registry,
        )
        self._tokens = prometheus_client.Counter(
            "official_bert_tokens",
            "Tokens of texts that a model has read.",
            ["model"],
            registry=registry,
        )
        self._padded_tokens = prometheus_client.Counter(
            "official_bert_padded_tokens",
            "The same with the padding of batches.",
            ["model"],
            registry=registry,
        )

    def observe_request(self, path: str, model: str, status: int, num_secs: float) -> None:
        """Counts a request.

        Args:
            path: the path without the name of a model, one of few.
            model: the name of a model; "" if the request has none.
            status: the HTTP status of the answer.
            num_secs: the time of the answer in seconds.
        """
        self._requests.labels(path, model, str(status)).inc()
        self._seconds.labels(path).observe(num_secs)

    def render(self) -> bytes:
        """Returns the metrics as text."""
        return prometheus_client.generate_latest(self._registry)

    def for_model(self, name: str) -> ModelMetrics:
        """Returns the metrics of a model.

        Args:
            name: its name.
        """
        return ModelMetrics(
            queue_rows=self._queue_rows.labels(name),
            batch_rows=self._batch_rows.labels(name),
            tokens=self._tokens.labels(name),
            padded_tokens=self._padded_tokens.labels(name),
        )


class ModelMetrics:
    """The metrics of a model's queue; it is a `QueueObserver`."""

    def __init__(
        self,
        queue_rows: prometheus_client.Gauge,
        batch_rows: prometheus_client.Histogram,
        tokens: prometheus_client.Counter,
        padded_tokens: prometheus_client.Counter,
    ):
        self._queue_rows = queue_rows
        self._batch_rows = batch_rows
        self._tokens = tokens
        self._padded_tokens = padded_tokens

    def observe_batch(self, num_rows: int, num_tokens: int, num_padded_tokens: int) -> None:
        """Counts a batch.

        Args:
            num_rows: its number of rows.
            num_tokens: its number of tokens without padding.
            num_padded_tokens: its number of tokens with padding.
        """
        self._batch_rows.observe(num_rows)
        self._tokens.inc(num_tokens)
        self._padded_tokens.inc(num_padded_tokens)

    def set_queue_rows(self, num_rows: int) -> None:
        """Records the number of waiting rows.

        Args:
            num_rows: the number.
        """
        self._queue_rows.set(num_rows)
