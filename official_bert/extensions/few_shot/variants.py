"""The names of the task, without TensorFlow: the first checks of a command read them."""

from collections.abc import Mapping
from types import MappingProxyType

from official_bert.tasks.classification.text import TextProcessor

FEW_SHOT = "few_shot"  # the name of the family, and of its task

TASKS: Mapping[str, type[TextProcessor]] = MappingProxyType({FEW_SHOT: TextProcessor})
