"""The names of the task, without TensorFlow: the first checks of a command read them."""

from collections.abc import Mapping
from types import MappingProxyType

from official_bert.tasks.classification.glue import PROCESSORS
from official_bert.tasks.classification.processor import DataProcessor

TASKS: Mapping[str, type[DataProcessor]] = MappingProxyType({"WNLI-majority": PROCESSORS["WNLI"]})
