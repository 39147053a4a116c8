"""The model of a joint training: one encoder, and the model of each task on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras

from official_bert.extensions.multitask.folders import HEADS_SCOPE
from official_bert.modeling.bert import BertModel
from official_bert.modeling.heads import BertWithBiLstm, share_encoder

if TYPE_CHECKING:
    from official_bert.config import BertConfig
    from official_bert.tasks.base import Task


class MultitaskModel(keras.Model):
    """An encoder, and for each task a model with a head that has this encoder.

    Attributes:
        bert: the encoder.
        heads: the models of the tasks by name.
        unused_weights: prefixes of the names of weights that no task uses.
    """

    def __init__(self, config: BertConfig, tasks: Mapping[str, Task], **arguments: Any):
        """Builds the models.

        Args:
            config: the configuration of the encoder.
            tasks: the tasks by name.
            **arguments: the further arguments of `ServedTask.build_model`.
        """
        super().__init__(name="multitask")
        encoder_class = BertWithBiLstm if config.num_layers_on_top else BertModel
        self.bert = encoder_class(config, **arguments)
        self.config = self.bert.config
        with share_encoder(self.bert), keras.name_scope(HEADS_SCOPE):
            self.heads = {
                name: task.build_model(config, name=name, **arguments)
                for name, task in tasks.items()
            }

    @property
    def unused_weights(self) -> tuple[str, ...]:
        unused = [set(getattr(head, "unused_weights", ())) for head in self.heads.values()]
        return tuple(sorted(set.intersection(*unused)))
