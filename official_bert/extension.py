"""Defines the record of an extension, by which the core finds its commands, tasks, flags and hooks.

An extension is one folder, `official_bert/extensions/NAME/`, whose `__init__.py` defines
`EXTENSION`. Another package names its record under the entry point `official_bert.extensions`:

    [project.entry-points."official_bert.extensions"]
    relations = "bert_relations:EXTENSION"

A record names everything by `module:name`. The module is imported when it is used, so that `--help`
loads neither TensorFlow nor a family. `catalog.py` reads the records. The core itself is described
by the same record, in `core.py`.

An extension may import the core. The core imports no extension, and no extension imports another.
You can delete the folder of an extension, and everything else works.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

# The places at which the core calls extensions: the name of a hook -> its arguments, what it
# returns, and when it is called. Add the place here before you add the call.
HOOKS: Mapping[str, str] = MappingProxyType(
    {
        "fine_tuning": "A subclass of TrainingPlugin of fine_tuning/plugin.py, which says when "
        "each of its methods is called. One object is made for each run of a fine-tuning command, "
        "before any set is read.",
        "pretraining": "The same for run_pretraining.",
        "data_sets": "The argument `data_sets` of a training in Python, a mapping: name -> the "
        "texts and flags of a set -> the examples of the sets train and dev, each by the name of "
        "its set, and the values of further flags. Called before the options are made.",
        "model_methods": "No arguments -> a mapping: name of a method of all models -> a function "
        "whose first argument is the model. Called when models are imported, so that the module "
        "of the hook must not import them; its functions may.",
        "model_input_names": "A class of models -> an InputNames of modeling/inputs.py: other "
        "names of its inputs, and arguments of a call that have no effect. Called by each call of "
        "a model.",
        "pretrained_arguments": "A class of models, a BertConfig that may be changed, and the "
        "further arguments of from_pretrained -> the arguments of the class that remain. Called "
        "before the model is made.",
        "encoder_output_members": "No arguments -> a mapping: name -> a property of the outputs of "
        "BertModel. Called when a name is read that an output lacks.",
        "pretraining_output_members": "The same for the outputs of BertPretrainer.",
        "tokenizer_call": "A FullTokenizer, texts, pairs or None, max_seq_length or None, and a "
        "mapping of further arguments -> the inputs of a model by name. Called by a call of the "
        "tokenizer with arguments that the core lacks.",
        "tokenizer_members": "No arguments -> a mapping: name -> a method or property of "
        "FullTokenizer, whose first argument is the tokenizer, or a value. Called when a name is "
        "read that a tokenizer lacks.",
        "predictor_methods": "No arguments -> a mapping: name of a method of "
        "official_bert.Predictor -> a function whose first argument is the Predictor. Called when "
        "a method that the Predictor's class lacks is used or listed.",
        "predictor_model": "An opened model, and the settings that extensions add to "
        "official_bert.Predictor -> the BatchedModel of serving/model.py that answers: the model "
        "itself, or a part of it that a setting chooses. Called when a model is opened.",
        "classifier_trainings": "No arguments -> a mapping: name of a class method of "
        "official_bert.Classifier -> a function whose first argument is the class. Called when a "
        "name is read that the class lacks.",
        "predictor_frame": "An official_bert.Predictor and the arguments of a call -> a "
        "RequestFrame of serving/predictor.py, or None where the arguments are texts. Called by "
        "each call.",
        "encoder_methods": "No arguments -> a mapping: name of a method -> a function whose first "
        "argument has the method `encode`: texts -> float32[n, width]. Called as predictor_methods "
        "is, for objects such as official_bert.SentenceEncoder.",
        "embedding_evaluations": "No arguments -> a mapping: name of an evaluation for --eval_task "
        "of run_embeddings -> `module:name` of a VectorEvaluation of data/text_examples.py. Called "
        "when the flags of the command are listed.",
        "model_layout": "The checkpoint or the folder of a model -> a ModelLayout of "
        "checkpoints/layout.py, or None for a folder that the extension does not know. Called "
        "before a model is served or converted.",
        "model_types": "No arguments -> a mapping: `model_type` in the config.json of Hugging Face "
        "models that can be loaded as BERT -> a ModelType of model_types.py. Called when a "
        "config.json or the weights beside it are read.",
        "export_writer": "The options of official-bert export_saved_model -> an ExportWriter of "
        "serving/export.py, or None. Called before the model is built.",
        "export_formats": "No arguments -> a list of ExportFormats of serving/export_format.py. "
        "Called when the flags of an export are listed, so that the module of the hook must not "
        "import TensorFlow.",
        "format_runtimes": "No arguments -> a list of FormatRuntimes of serving/export_format.py, "
        "the runtimes of the files of formats. Called as export_formats is.",
        "export_runtimes": "No arguments -> an ExportRuntimes of "
        "serving/exported_model.py. Called when a model is opened.",
        "data_engine": "The options of create_pretraining_data -> a function of the options that "
        "makes the records on other machines, or None where no flag chooses one. Called before any "
        "file is opened.",
        "read_tagged": "The path of a file of run_ner, and whether its tags are needed -> a "
        "ConllFile of data/tables.py, or None for a file that the core reads.",
        "predict_mode": "The options of official-bert predict -> a PredictMode of "
        "commands/predict_mode.py, or None where no flag of the extension chooses one. Called "
        "before any file is opened.",
        "predict_table": "The options of official-bert predict -> an InputTable of "
        "commands/predict_mode.py, or None where each line of the input is a request. Called "
        "before the model is loaded.",
    }
)


# The parts of a project, in the order in which `official-bert` lists their commands.
STAGES = (
    "Prepare the data",
    "Pre-train",
    "Fine-tune",
    "Evaluate",
    "Use the model",
    "Tools",
)


class Command(NamedTuple):
    """A command of `official-bert`.

    Attributes:
        options: `module:Class` of its flags, a frozen dataclass of fields made by
            `options.fields.option`.
        function: `module:name` of the function that is called with the options.
        summary: what the command does, in one sentence; the docstring of its script, if it has one.
        check: `module:name` of a function of the options that raises InputError for a wrong path;
            "" for none. It is called if a flag names a missing file, before the module of
            `function` is imported, and must not import TensorFlow.
        stage: the part of a project in which the command is used, one of `STAGES`.
        example: the words after the name of the command in an example.
        ignores_unknown_flags: whether an unknown flag of the command line is ignored with a
            warning, as by the scripts of the original. Other commands refuse it.
    """

    options: str
    function: str
    summary: str
    check: str = ""
    stage: str = "Tools"
    example: str = ""
    ignores_unknown_flags: bool = False


class Family(NamedTuple):
    """A family of tasks, whose models have the same head.

    Attributes:
        task: `module:Class` of its tasks, a `ServedTask` of tasks/base.py.
        script: the command that trains its tasks by name; "" if none does.
        tasks: the names of its tasks, if nothing distinguishes them within the family.
        variants: `module:TABLE` of tasks by name otherwise, name -> what `ServedTask.from_settings`
            gets as variant.
        huggingface_class: the class of transformers that has the same head; "" if there is none.
        conversion_tasks: the names of tasks that convert_checkpoint accepts for a model with this
            head. A folder of `huggingface_class` without a record is one of the last of them.
        head_weights: the TF1 names of the head's weights, or their scope with a slash at its end.
        encoder: the public class that opens its models in Python, if not Predictor and Classifier;
            SentenceEncoder refuses those of another class.
    """

    task: str
    script: str = ""
    tasks: tuple[str, ...] = ()
    variants: str = ""
    huggingface_class: str = ""
    conversion_tasks: tuple[str, ...] = ()
    head_weights: tuple[str, ...] = ()
    encoder: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extension:
    """What an extension adds.

    Attributes:
        name: the name of its folder, and of its extra of optional packages, if it has one.
        summary: what it is for, in one sentence.
        commands: name of a command -> the command.
        families: name of a family of tasks -> the family.
        options: name of a command -> `module:Class` of the flags that the extension adds to it.
        hooks: name of a hook -> `module:name` of the function that the core calls there.
        public: what the extension adds to the public names of `official_bert`: name ->
            `module:name`.
        keras_modules: modules whose classes a .keras file names; `official_bert.load_model`
            imports them.
    """

    name: str
    summary: str
    commands: Mapping[str, Command] = dataclasses.field(default_factory=dict)
    families: Mapping[str, Family] = dataclasses.field(default_factory=dict)
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hooks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    public: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keras_modules: tuple[str, ...] = ()

    def __post_init__(self):
        if unknown := sorted(self.hooks.keys() - HOOKS.keys()):
            raise ValueError(
                f"extension {self.name}: {unknown[0]} is no hook; extension.py lists them"
            )
