"""Describes the core by the record of an extension: its commands and its families of tasks."""

from official_bert.extension import Command, Extension, Family

_CHECK_FINE_TUNING = "official_bert.commands.first_checks:check_fine_tuning"

# In the order in which a model is made and used.
_COMMANDS = {
    "build_vocab": Command(
        options="official_bert.options.data_tools:VocabularyOptions",
        function="official_bert.commands.build_vocab:run",
        summary="Learns a WordPiece vocabulary from raw text.",
        stage="Prepare the data",
        example="--input_file=corpus.txt --output_file=vocab.txt --vocab_size=8000",
    ),
    "create_pretraining_data": Command(
        options="official_bert.options.data_tools:PretrainingDataOptions",
        function="official_bert.commands.create_pretraining_data:run",
        summary="Makes masked LM and next-sentence TFRecords from raw text for run_pretraining.",
        stage="Prepare the data",
        example="--input_file=corpus.txt --output_file=records.tfrecord --vocab_file=vocab.txt",
        ignores_unknown_flags=True,
    ),
    "inspect_pretraining_data": Command(
        options="official_bert.options.data_tools:InspectionOptions",
        function="official_bert.commands.inspect_pretraining_data:run",
        summary="Shows the records of create_pretraining_data as text, and their statistics.",
        stage="Prepare the data",
        example="--input_file=records.tfrecord",
    ),
    "run_pretraining": Command(
        options="official_bert.options.training:PretrainingOptions",
        function="official_bert.fine_tuning.pretrain:pretrain",
        summary="Pre-trains BERT on TFRecords made by create_pretraining_data.",
        check="official_bert.commands.first_checks:check_pretraining",
        stage="Pre-train",
        example="--input_file=records.tfrecord --bert_config_file=bert_config.json "
        "--do_train --num_train_steps=10000 --output_dir=my_bert",
        ignores_unknown_flags=True,
    ),
    "launch": Command(
        options="official_bert.options.running:LaunchOptions",
        function="official_bert.commands.launch:run",
        summary="Starts a training script as several workers on this machine, and starts them "
        "again after a failure.",
        stage="Pre-train",
        example="--num_workers=2 -- official-bert run_pretraining "
        "--distribution_strategy=multi_worker_mirrored ...",
    ),
    "run_classifier": Command(
        options="official_bert.options.fine_tuning:ClassificationOptions",
        function="official_bert.fine_tuning.run:fine_tune",
        summary="Fine-tunes BERT for text classification or regression, evaluates it, and predicts "
        "with it.",
        check=_CHECK_FINE_TUNING,
        stage="Fine-tune",
        example="--task_name=text --data_dir=tickets --model=bert --do_train --do_eval "
        "--output_dir=my_model",
        ignores_unknown_flags=True,
    ),
    "run_squad": Command(
        options="official_bert.options.fine_tuning:SquadOptions",
        function="official_bert.fine_tuning.run:fine_tune",
        summary="Fine-tunes BERT on SQuAD 1.1 or 2.0, predicts answers with it, and scores them.",
        check=_CHECK_FINE_TUNING,
        stage="Fine-tune",
        example="--train_file=train-v1.1.json --predict_file=dev-v1.1.json --model=bert "
        "--do_train --do_predict --output_dir=my_model",
        ignores_unknown_flags=True,
    ),
    "run_swag": Command(
        options="official_bert.options.fine_tuning:ChoiceOptions",
        function="official_bert.fine_tuning.run:fine_tune",
        summary="Fine-tunes BERT for multiple choice on SWAG or CODAH, evaluates it, and predicts "
        "with it.",
        check=_CHECK_FINE_TUNING,
        stage="Fine-tune",
        example="--data_dir=swag --model=bert --do_train --do_eval --output_dir=my_model",
    ),
    "run_ner": Command(
        options="official_bert.options.fine_tuning:TaggingOptions",
        function="official_bert.fine_tuning.run:fine_tune",
        summary="Fine-tunes BERT for named entity recognition on files in CoNLL's format, "
        "evaluates it, and predicts with it.",
        check=_CHECK_FINE_TUNING,
        stage="Fine-tune",
        example="--data_dir=conll --model=bert --do_train --do_eval --output_dir=my_model",
    ),
    "extract_features": Command(
        options="official_bert.options.serving:ExtractionOptions",
        function="official_bert.commands.extract_features:run",
        summary="Writes the vectors that a BERT model computes for the tokens of a text, as JSON "
        "lines.",
        check="official_bert.commands.first_checks:check_model_files",
        stage="Use the model",
        example="--input_file=texts.txt --output_file=features.jsonl --model=bert",
        ignores_unknown_flags=True,
    ),
    "export_saved_model": Command(
        options="official_bert.options.serving:ExportOptions",
        function="official_bert.serving.model:export",
        summary="Exports a checkpoint as a SavedModel that TensorFlow Serving loads.",
        check="official_bert.commands.first_checks:check_named_files",
        stage="Use the model",
        example="--model=my_model --export_dir=export --export_text",
    ),
    "predict": Command(
        options="official_bert.options.serving:PredictOptions",
        function="official_bert.commands.predict:run",
        summary="Runs a trained or exported model on lines of text and writes its predictions as "
        "JSON lines.",
        check="official_bert.commands.first_checks:check_prediction",
        stage="Use the model",
        example="--model=my_model --input_file=texts.txt --output_file=answers.jsonl",
    ),
    "convert_checkpoint": Command(
        options="official_bert.options.serving:ConversionOptions",
        function="official_bert.commands.convert_checkpoint:run",
        summary="Converts a checkpoint between the formats of TF1 and Hugging Face, or removes the "
        "optimizer slots.",
        check="official_bert.commands.first_checks:check_named_files",
        stage="Tools",
        example="--model=my_model --output_format=huggingface --output_dir=for_huggingface",
    ),
    "grow_vocab": Command(
        options="official_bert.options.serving:GrowthOptions",
        function="official_bert.commands.grow_vocab:run",
        summary="Gives the vocabulary of a model new words, whose vectors begin as the mean of "
        "those of their pieces.",
        stage="Tools",
        example="--model=bert --words=words.txt --output_dir=larger_bert",
    ),
}

_LINEAR_HEAD = ("output_weights", "output_bias")
_FAMILIES = {
    "classification": Family(
        task="official_bert.tasks.classification.task:ClassificationTask",
        script="run_classifier",
        variants="official_bert.tasks.classification.task_table:TASKS",
        huggingface_class="BertForSequenceClassification",
        # A record of an earlier version says tsv, the old name of text.
        conversion_tasks=("text", "tsv"),
        head_weights=_LINEAR_HEAD,
    ),
    "choice": Family(
        task="official_bert.tasks.choice.task:ChoiceTask",
        script="run_swag",
        variants="official_bert.tasks.choice.examples:TASKS",
        huggingface_class="BertForMultipleChoice",
        conversion_tasks=("swag",),
        head_weights=_LINEAR_HEAD,
    ),
    "tagging": Family(
        task="official_bert.tasks.tagging.task:TaggingTask",
        script="run_ner",
        tasks=("ner",),
        huggingface_class="BertForTokenClassification",
        conversion_tasks=("ner",),
        head_weights=_LINEAR_HEAD,
    ),
    "squad": Family(
        task="official_bert.tasks.squad.task:SquadTask",
        script="run_squad",
        tasks=("squad",),
        huggingface_class="BertForQuestionAnswering",
        head_weights=("cls/squad/",),
    ),
    "pretraining": Family(
        task="official_bert.tasks.pretraining.task:PretrainingTask",
        tasks=("pretraining",),
        head_weights=("cls/predictions/", "cls/seq_relationship/"),
    ),
}

CORE = Extension(
    name="core",
    summary="What the original release and the paper have.",
    commands=_COMMANDS,
    families=_FAMILIES,
)
