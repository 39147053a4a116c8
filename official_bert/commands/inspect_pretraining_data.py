"""Shows pre-training records: the runner of official-bert inspect_pretraining_data.

In: TFRecords, and the vocabulary with which they were made. Out: the first records and statistics
on standard output.
"""

import itertools
from collections.abc import Iterator, Sequence

from official_bert.data.records.framing import read_examples
from official_bert.data.records.record_files import check_records_vocabulary, expand_records
from official_bert.data.records.statistics import (
    Example,
    Statistics,
    format_example,
    stack_examples,
    with_masks,
)
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress
from official_bert.model_source import resolve
from official_bert.options.data_tools import InspectionOptions
from official_bert.tokenization import FullTokenizer

_RECORDS_AT_ONCE = 500


def run(options: InspectionOptions) -> None:
    """Prints records and statistics.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a file cannot be used, or has no record.
    """
    source = resolve(options)
    options = source.options
    tokenizer = FullTokenizer(source.vocab_file)
    input_files = expand_records(options.input_file, "input_file", needs_all_parts=False)
    check_records_vocabulary(input_files, source.vocab_file, tokenizer.vocab)
    statistics = Statistics(tokenizer)
    progress = Progress("records read")
    records = _read_records(input_files)
    num_read = 0
    while block := list(itertools.islice(records, _RECORDS_AT_ONCE)):
        places, examples = zip(*block, strict=True)
        statistics.add(stack_examples(examples, places, 1 + max(tokenizer.vocab.values())))
        for place, example in block[: max(options.num_records - num_read, 0)]:
            print(place, *format_example(example, tokenizer.inv_vocab), sep="\n", end="\n\n")
        num_read += len(block)
        progress(num_read)
    progress.end()
    if not num_read:
        raise InputError(
            f"{', '.join(input_files)}: no record in any file; make them with "
            "create_pretraining_data.py"
        )
    print(*statistics.lines(), sep="\n")


def _read_records(input_files: Sequence[str]) -> Iterator[tuple[str, Example]]:
    for path in input_files:
        for number, example in read_examples(path):
            yield f"{path}: record {number} (from 0)", with_masks(example)
