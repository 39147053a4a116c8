"""Pre-training in two phases, on short and then on long sequences, by one command."""

from official_bert.extension import Command, Extension

EXTENSION = Extension(
    name="two_phases",
    summary="Pre-trains on short and then on long sequences, as the paper does.",
    commands={
        "pretrain_two_phases": Command(
            options="official_bert.extensions.two_phases.options:TwoPhaseOptions",
            function="official_bert.extensions.two_phases.command:run",
            summary="Makes the records of two lengths, and pre-trains on the short ones for 90 % "
            "of the updates and on the long ones for the rest.",
            stage="Pre-train",
            example="--input_file=corpus.txt --vocab_file=vocab.txt "
            "--bert_config_file=bert_config.json --output_dir=my_bert",
        )
    },
)
