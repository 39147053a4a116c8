"""What the extraction of features is told. Every field is a flag of extract_features.py."""

import dataclasses

from official_bert.options.fields import MIN_SEQ_LENGTH, POSITIVE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionOptions:
    input_file: str = option(
        help="Input text, one example a line; ' ||| ' separates the two texts of a pair."
    )
    output_file: str = option(help="Output JSON lines, one object for each line of the input.")
    vocab_file: str = option(help="The vocabulary file that the BERT model was trained on.")
    bert_config_file: str = option(
        help="The config json file of the model: the original's bert_config.json or a Hugging Face config.json."
    )
    init_checkpoint: str = option(
        help="Initial checkpoint (usually a pre-trained BERT model): a TF1 checkpoint prefix or folder, an "
        "output_dir of run_pretraining.py, or a Hugging Face folder."
    )
    layers: str = option(
        "-1,-2,-3,-4",
        help="Encoder layers to write, in this order: indices separated by commas, 0 the first layer and -1 the "
        "last.",
    )
    max_seq_length: int = option(
        128,
        check=MIN_SEQ_LENGTH,
        help="Maximum input length in WordPiece tokens, specials included; longer examples are cut, shorter ones "
        "padded.",
    )
    do_lower_case: bool = option(
        True,
        help="Whether to lower case the input text. Should be True for uncased models and False for cased models.",
    )
    strip_accents: bool | None = option(
        None,
        help="Whether to strip accents (which takes Korean and other scripts apart); as --do_lower_case when not "
        "given, like the original.",
    )
    batch_size: int = option(
        32, check=POSITIVE, help="Examples in one batch; the output does not depend on it."
    )
    use_tpu: bool = option(False, help="Whether to use TPU or GPU/CPU.")
    master: str | None = option(
        None, help="With --use_tpu, the TPU's name or grpc:// address, or 'local' on a TPU VM."
    )
    num_tpu_cores: int = option(
        8, check=POSITIVE, help="Total number of TPU cores to use. Only used with --use_tpu."
    )
    use_one_hot_embeddings: bool = option(
        False, help="Look words up by a one-hot matrix product instead of a gather: often faster on TPU."
    )
