"""The commands: one table for the scripts of the repository and for the console command `official-bert`.

In: the name of a command and its flags. Out: one call of the function that the table names. What a command needs is
imported when it runs: `official-bert --help` loads no such function, and no --help loads TensorFlow.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from typing import NamedTuple

from absl import flags as absl_flags

from official_bert.cli import flags
from official_bert.io.errors import did_you_mean
from official_bert.version import __version__

absl_flags.disclaim_key_flags()  # the flags belong to the running script, whose --help lists them

PROGRAM = "official-bert"


class Command(NamedTuple):
    """A command.

    Attributes:
        options: module and class of its options below official_bert.options.
        function: module and function below official_bert that get the options.
        summary: what it does, in one sentence: the docstring of its script.
    """

    options: str
    function: str
    summary: str

    def options_class(self) -> type:
        module, name = self.options.split(".")
        return getattr(importlib.import_module(f"official_bert.options.{module}"), name)


COMMANDS = {
    "build_vocab": Command(
        "data_tools.VocabularyOptions", "commands.build_vocab.run", "Learns a WordPiece vocabulary from raw text."
    ),
    "create_pretraining_data": Command(
        "data_tools.PretrainingDataOptions",
        "commands.create_pretraining_data.run",
        "Makes masked LM and next-sentence TFRecords from raw text for run_pretraining.",
    ),
    "inspect_pretraining_data": Command(
        "data_tools.InspectionOptions",
        "commands.inspect_pretraining_data.run",
        "Shows the records of create_pretraining_data as text, and their statistics.",
    ),
    "run_pretraining": Command(
        "training.PretrainingOptions",
        "fine_tuning.pretrain.pretrain",
        "Pre-trains BERT on TFRecords made by create_pretraining_data.",
    ),
    "launch": Command(
        "running.LaunchOptions",
        "commands.launch.run",
        "Starts a training script as several workers on this machine, and starts them again after a failure.",
    ),
    "run_classifier": Command(
        "fine_tuning.ClassificationOptions",
        "fine_tuning.run.fine_tune",
        "Fine-tunes BERT for text classification or regression, evaluates it, and predicts with it.",
    ),
    "run_squad": Command(
        "fine_tuning.SquadOptions",
        "fine_tuning.run.fine_tune",
        "Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers with it, and scores them.",
    ),
    "run_swag": Command(
        "fine_tuning.ChoiceOptions",
        "fine_tuning.run.fine_tune",
        "Fine-tunes BERT for multiple choice on SWAG or CODAH, evaluates it, and predicts with it.",
    ),
    "run_ner": Command(
        "fine_tuning.TaggingOptions",
        "fine_tuning.run.fine_tune",
        "Fine-tunes BERT for named entity recognition on files in CoNLL's format, evaluates it, and predicts with it.",
    ),
    "run_embeddings": Command(
        "embedding.EmbeddingOptions",
        "commands.run_embeddings.run",
        "Trains BERT to give similar texts similar vectors, evaluates the vectors, and writes those of texts.",
    ),
    "extract_features": Command(
        "serving.ExtractionOptions",
        "commands.extract_features.run",
        "Writes the vectors that a BERT model computes for the tokens of a text, as JSON lines.",
    ),
    "export_saved_model": Command(
        "serving.ExportOptions",
        "serving.model.export",
        "Exports a checkpoint as a SavedModel that TensorFlow Serving loads.",
    ),
    "predict": Command(
        "serving.PredictOptions",
        "commands.predict.run",
        "Runs an exported model on lines of text and writes its predictions as JSON lines.",
    ),
    "evaluate_minimal_pairs": Command(
        "serving.MinimalPairsOptions",
        "commands.evaluate_minimal_pairs.run",
        "Tells how often a pre-trained model gives the right sentence of a pair the better score, as BLiMP asks.",
    ),
    "mine_hard_negatives": Command(
        "embedding.MiningOptions",
        "commands.mine_hard_negatives.run",
        "Finds for pairs of texts the wrong answers that an encoder takes for right ones, to train a better one on.",
    ),
    "convert_checkpoint": Command(
        "serving.ConversionOptions",
        "commands.convert_checkpoint.run",
        "Converts a checkpoint between the formats of TF1 and Hugging Face, or removes the optimizer slots.",
    ),
    "grow_vocab": Command(
        "serving.GrowthOptions",
        "commands.grow_vocab.run",
        "Gives the vocabulary of a model new words, whose vectors begin as the mean of those of their pieces.",
    ),
    "create_student": Command(
        "serving.StudentOptions",
        "commands.create_student.run",
        "Makes a smaller model for distillation: some layers of a model, or a new one of a published size.",
    ),
    "run_experiment": Command(
        "running.ExperimentOptions",
        "commands.run_experiment.run",
        "Reproduces a table or a figure of the paper: trains and evaluates its models, writes the table.",
    ),
}  # in the order in which a model is made and used


def main():
    """Runs the subcommand that the command line names; the entry point of `official-bert`."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "-help", "--help", "help"):
        with flags.quiet_reader():
            print(overview())
        return
    if name == "--version":
        print(f"{PROGRAM} {__version__}")
        return
    command = name.replace("-", "_")
    if command not in COMMANDS:
        sys.exit(f"{PROGRAM}: {unknown(name)}")
    sys.argv = [f"{PROGRAM} {name}", *words]  # the name of the program in --help and in messages
    sys.modules["__main__"].__doc__ = COMMANDS[command].summary  # absl shows it in --help
    run_command(command)


def run_command(name: str):
    """Parses the command line into the command's options and hands them to its function.

    Scripts call it under `if __name__ == "__main__"`, because the import of a script must not define flags.
    """
    flags.run(functools.partial(load, name), COMMANDS[name].options_class())


def load(name: str) -> Callable:
    module, function = COMMANDS[name].function.rsplit(".", 1)
    with flags.quiet_imports():  # most import TensorFlow, which --help does not need
        found = getattr(importlib.import_module(f"official_bert.{module}"), function)
    # An experiment runs other commands, and checks their flags.
    return functools.partial(found, commands=COMMANDS) if name == "run_experiment" else found


def overview() -> str:
    """Returns the list of commands that `official-bert --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [--flag=value ...]",
            "",
            *lines,
            "",
            f"{PROGRAM} COMMAND --help lists the flags of a command. A hyphen in its name stands for an underscore.",
            f"{PROGRAM} --version prints the version.",
        ]
    )


def unknown(name: str) -> str:
    """Returns the sentence that refuses a command which is not there, and names the nearest one."""
    remedy = did_you_mean(name.replace("-", "_"), COMMANDS) or f"{PROGRAM} --help lists the commands"
    return f"there is no command {name!r}; {remedy}"
