"""Distributed data: the parts of a set of records on the machines of Ray or Apache Beam."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.distributed_data"

EXTENSION = Extension(
    name="distributed_data",
    summary="Makes pre-training records on the machines of a Ray cluster or of Apache Beam.",
    options={"create_pretraining_data": f"{_HERE}.options:EngineFlags"},
    hooks={"data_engine": f"{_HERE}.engines:choose_engine"},
)
