"""What TensorBoard shows beside the scalars: hyperparameters and confusion matrices."""

from official_bert.extension import Extension

EXTENSION = Extension(
    name="tensorboard",
    summary="Shows hyperparameters and confusion matrices in TensorBoard.",
    hooks={
        "fine_tuning": "official_bert.extensions.tensorboard.plugin:TensorBoardPlugin",
        "pretraining": "official_bert.extensions.tensorboard.plugin:TensorBoardPlugin",
    },
)
