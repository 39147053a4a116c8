"""Prints the answer to --help: the flags of a script in the order of a run, with an example."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator

from absl import flags

from official_bert.options.fields import (
    COMMON,
    DEVICES,
    MODEL,
    NEEDED,
    TEXT,
    THIS_SCRIPT,
    command_field,
    first_word_field,
    flag_fields,
    value_type,
)

EVERY_SCRIPT = "Every script"
ORDER = (NEEDED, MODEL, THIS_SCRIPT, TEXT, COMMON, DEVICES)
MAX_BASIC = 10  # a script with more flags shows only the basic ones in --help
# The flags of a run, in the order in which a user thinks of them; --help lists the others after
# them.
_RUN_ORDER_TEXT = """
task_name model vocab_file bert_config_file init_checkpoint
data_dir train_file dev_file test_file predict_file input_file eval_input_file
text_a_column text_b_column label_column
output_file export_dir output_dir
do_train do_eval do_predict
max_seq_length max_predictions_per_seq train_batch_size
learning_rate num_train_epochs num_train_steps num_warmup_steps random_seed
"""
_RUN_ORDER = _RUN_ORDER_TEXT.split()
_EXAMPLE_COLUMNS = 80
_HELP_FLAGS = {"--help", "-help", "-?", "--helpshort", "-helpshort"}
_HELPFULL_FLAGS = {"--helpfull", "-helpfull"}


def is_required(field: dataclasses.Field) -> bool:
    """Return whether a command ends without the flag of a field.

    Args:
        field: a field of an options class.
    """
    return field.default is dataclasses.MISSING


def find_heading(options_class: type, field: dataclasses.Field) -> str:
    """Return the heading under which --help shows a flag.

    Args:
        options_class: the class of the script's options.
        field: the field of the flag.
    """
    if is_required(field):
        return NEEDED
    if field.name in ("init_checkpoint", "bert_config_file", "vocab_file"):
        return MODEL
    defined_in = next(
        cls for cls in options_class.__mro__ if field.name in vars(cls).get("__annotations__", ())
    )
    return vars(defined_in).get("chapter", THIS_SCRIPT)


def answer_help(argv: list[str], options_class: type, example: str) -> None:
    """With --help, print the flags under their headings and end the script with status 0.

    Args:
        argv: the name of the script and the words after it.
        options_class: the class of the script's options.
        example: the words after the script in an example.
    """
    shows_all = bool(_HELPFULL_FLAGS.intersection(argv[1:]))
    if not (shows_all or _HELP_FLAGS.intersection(argv[1:])):
        return
    with quiet_reader():
        _print_help(argv, options_class, example, shows_all)
    sys.exit(0)


@contextlib.contextmanager
def quiet_reader() -> Iterator[None]:
    """End a print quietly when its reader closes the pipe, as `| head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Redirects what is not yet flushed, so that Python reports no error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def basic_fields(options_class: type) -> list[dataclasses.Field]:
    """Return the flags that --help shows: those that a beginner needs, or all if they are few.

    Args:
        options_class: the class of the script's options.
    """
    fields = flag_fields(options_class)
    if len(fields) > MAX_BASIC:
        fields = [field for field in fields if is_required(field) or field.metadata["basic"]]
    return sorted(fields, key=_place_in_run)


def _place_in_run(field: dataclasses.Field) -> int:
    return _RUN_ORDER.index(field.name) if field.name in _RUN_ORDER else len(_RUN_ORDER)


def format_example(script: str, example: str) -> str:
    """Return an example command, broken into lines of 80 columns that a shell accepts.

    Args:
        script: the name of the script or of the command.
        example: the words after it.
    """
    program = f"python {script}" if script.endswith(".py") else script
    lines = [f"  {program}"]
    for word in example.split():
        if len(lines[-1]) + len(word) + 3 > _EXAMPLE_COLUMNS:
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def _print_help(argv: list[str], options_class: type, example: str, shows_all: bool):
    _print_usage(argv[0], options_class, example)
    fields = flag_fields(options_class)
    shown_fields = fields if shows_all else basic_fields(options_class)
    for heading in ORDER:
        texts = []
        for field in shown_fields:
            if find_heading(options_class, field) == heading:
                texts += _list_help_texts(field)
        _print_part(heading, texts)
    if shows_all:
        field_names = {field.name for field in fields}
        aliases = {field.metadata["alias"] for field in fields}
        common_names = sorted(set(flags.FLAGS) - field_names - aliases)
        _print_part(EVERY_SCRIPT, [_format_help(name) for name in common_names])
        return
    num_hidden = len(fields) - len(shown_fields)
    hidden = f"{num_hidden} more flags and " if num_hidden else ""
    print(
        f"--helpfull shows {hidden}those of every script, such as --verbosity (-1 logs warnings "
        "only, 1 the original's details),\n--flagfile=FILE, a file with a flag on each line, and "
        "--strict_flags, which ends the script at every unknown flag, also of a file."
    )


def _print_usage(script: str, options_class: type, example: str):
    """Prints the summary of a script, the form of its command line, and an example."""
    summary = sys.modules["__main__"].__doc__ or ""
    words_field = command_field(options_class)
    word_field = first_word_field(options_class)
    command = f" -- {words_field.name} ..." if words_field else ""
    first_word = ""
    if word_field:
        first_word = f" {word_field.name.upper()}{'' if value_type(word_field) is str else ' ...'}"
    print(f"{summary.strip()}\n\nusage: {script}{first_word} --flag=value ...{command}\n")
    if example:
        print(f"example:\n{format_example(script, example)}\n")
    if word_field:
        print(f"{word_field.name.upper()}: {word_field.metadata['help']}\n")
    if words_field:
        print(f"{words_field.name}: {words_field.metadata['help']}\n")


def _print_part(heading: str, texts: list[str]):
    if texts:
        print(f"{heading}:", *texts, "", sep="\n")


def _list_help_texts(field: dataclasses.Field) -> list[str]:
    """Returns the help texts of a field's flag and of its other name, if it has one."""
    alias = field.metadata["alias"]
    texts = [_format_help(field.name, "(required)" if is_required(field) else "")]
    if alias:
        texts.append(_format_help(alias))
    return texts


def _format_help(name: str, mark: str = "") -> str:
    """Returns the help text of a flag, with lines for `mark`, its default and its choices."""
    flag = flags.FLAGS[name]
    prefix = "[no]" if flag.boolean else ""
    text = f"--{prefix}{name}: {flag.help}"
    lines = [flags.text_wrap(text, indent="    ", firstline_indent="  ")]
    if mark:
        lines.append(f"    {mark}")
    if flag.default_as_str:
        lines.append(f"    (default: {flag.default_as_str})")
    if flag.parser.syntactic_help:
        lines.append(f"    ({flag.parser.syntactic_help})")
    return "\n".join(lines)
