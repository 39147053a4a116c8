"""The processors by task name: GLUE, XNLI, and `text` for files of the user."""

from official_bert.tasks.classification.glue import PROCESSORS, XnliProcessor
from official_bert.tasks.classification.text import TextProcessor

TASKS = {**PROCESSORS, "XNLI": XnliProcessor, "text": TextProcessor}
