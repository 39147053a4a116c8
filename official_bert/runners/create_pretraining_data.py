"""Makes pre-training records of raw text: the runner of create_pretraining_data.py.

In: text files and a vocabulary. Out: TFRecord files, which get their names only when all of them are complete.
"""

import random

from absl import logging

from official_bert import files, writing
from official_bert.data.corpus.documents import Documents, read_documents
from official_bert.data.corpus.exact import create_instances
from official_bert.data.corpus.instances import InstanceSettings, InstanceVocabulary
from official_bert.data.records.framing import open_example_files
from official_bert.data.records.instance_files import log_files, write_features
from official_bert.model_files import resolved
from official_bert.options.pretraining_data import PretrainingDataOptions
from official_bert.progress import Progress
from official_bert.tokenization import FullTokenizer


def run(options: PretrainingDataOptions) -> random.Random:
    """Writes the records and returns the random generator as the creation left it.

    Raises:
        InputError: no file matches, the files contain no text, the vocabulary lacks a special token, or an output
            cannot be written.
    """
    options = resolved(options)
    writing.keep_apart(
        options.output_file, {"input_file": options.input_file, "vocab_file": [options.vocab_file]}
    )
    tokenizer = FullTokenizer(options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents)
    vocabulary = InstanceVocabulary.of(tokenizer.vocab)
    settings = InstanceSettings(
        max_seq_length=options.max_seq_length,
        dupe_factor=options.dupe_factor,
        short_seq_prob=options.short_seq_prob,
        masked_lm_prob=options.masked_lm_prob,
        max_predictions_per_seq=options.max_predictions_per_seq,
        do_whole_word_mask=options.do_whole_word_mask,
    )
    input_files = files.expand(options.input_file, "input_file")
    # The outputs are opened first, so that a path that cannot be written does not waste hours.
    with open_example_files(options.output_file) as example_files:
        log_files("Reading from input files", input_files)
        documents = read_documents(input_files, tokenizer, options.num_workers, Progress("tokens read"))
        _log_corpus(documents)
        rng = random.Random(options.random_seed)
        visits = options.dupe_factor * len(documents)
        progress = Progress("documents visited", visits)
        instances, order = create_instances(documents, vocabulary, settings, rng, progress)
        log_files("Writing to output files", options.output_file)
        write_features(instances.batches(order), example_files, tokenizer.inv_vocab)
    return rng


def _log_corpus(documents: Documents):
    logging.info(
        "%d documents, %d sentences, %d tokens",
        len(documents),
        len(documents.segment_starts) - 1,
        len(documents.ids),
    )
    if len(documents) == 1:
        logging.warning(
            "the text is one document, so random next sentences come from that document too; put a blank line "
            "between documents"
        )
