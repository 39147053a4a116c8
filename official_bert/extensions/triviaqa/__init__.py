"""TriviaQA: its questions and documents in the format of SQuAD, for the training before SQuAD."""

from official_bert.extension import Command, Extension

EXTENSION = Extension(
    name="triviaqa",
    summary="Converts TriviaQA to the format of SQuAD.",
    commands={
        "convert_triviaqa": Command(
            options="official_bert.extensions.triviaqa.options:TriviaQaOptions",
            function="official_bert.extensions.triviaqa.converter:run",
            summary="Converts TriviaQA to SQuAD's format, for a training of run_squad before "
            "that on SQuAD.",
            stage="Prepare the data",
            example="--input_file=qa/wikipedia-train.json --evidence_dir=evidence "
            "--output_file=TriviaQA/train.json",
        )
    },
)
