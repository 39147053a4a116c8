#!/usr/bin/env python3
"""Draws to which tokens each token of a text attends in one head of an encoder.

In: the folder of a model, with its vocabulary, and a text or a pair. Out: a PNG, in which the row
of a token shows the probabilities with which it attends to the tokens of the columns. Install the
packages with `pip install -e '.[plots]'`.

    python examples/attention_map.py --model=FOLDER --text="The cat sat." --layer=2 --head=5 --output_file=map.png
"""

import argparse
import os
import pathlib
import sys

# Finds official_bert without an installation.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

INCHES_PER_TOKEN, MARGIN_INCHES = 0.28, 1.6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--model", required=True, help="a folder with a checkpoint, its configuration and vocab.txt"
    )
    parser.add_argument("--text", required=True)
    parser.add_argument("--pair", help="the second text of a pair")
    parser.add_argument("--layer", type=int, default=-1, help="0 is the first layer, -1 the last")
    parser.add_argument("--head", type=int, default=0, help="0 is the first head")
    parser.add_argument(
        "--output_file", required=True, help="the picture, whose ending is that of its format"
    )
    arguments = parser.parse_args()

    check_ending(arguments.output_file)
    # Imported late, so that --help is quick.
    from official_bert.io.quiet_imports import quiet_imports

    with quiet_imports():
        from official_bert import BertModel, FullTokenizer, InputError

    try:
        model = BertModel.from_pretrained(arguments.model)
        tokenizer = FullTokenizer.from_pretrained(arguments.model)
        batch = tokenizer(arguments.text, arguments.pair, model.config.max_position_embeddings)
    except InputError as error:
        sys.exit(str(error))
    check_range(
        "layer", arguments.layer, -model.config.num_hidden_layers, model.config.num_hidden_layers
    )
    check_range("head", arguments.head, 0, model.config.num_attention_heads)
    layers = model(**batch, output_attentions=True).all_attention_probabilities
    tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist())
    draw(layers[arguments.layer][0, arguments.head].numpy(), tokens, arguments.output_file)


def check_range(flag: str, value: int, low: int, end: int):
    """Ends the script with one sentence if a number is not in [low, end)."""
    if not low <= value < end:
        sys.exit(f"--{flag}={value}: must be from {low} to {end - 1} for this model")


def check_ending(output_file: str):
    """Ends the script with one sentence if the picture could not be written, before the model is
    loaded.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        sys.exit(
            f"the picture needs matplotlib, which cannot be imported ({error}); pip install "
            "-e '.[plots]'"
        )
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if pathlib.Path(output_file).suffix[1:].lower() not in endings:
        sys.exit(f"--output_file={output_file}: must end in one of .{', .'.join(endings)}")


def draw(probabilities, tokens: list[str], output_file: str):
    """Writes the picture.

    Args:
        probabilities: float[S, S], a row for each token.
        tokens: the S tokens, special ones included.
        output_file: the file to write.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    side = MARGIN_INCHES + INCHES_PER_TOKEN * len(tokens)
    figure, axes = pyplot.subplots(figsize=(side, side), layout="constrained")
    image = axes.imshow(probabilities, cmap="Blues", vmin=0.0, vmax=1.0)
    figure.colorbar(image, shrink=0.5, label="probability")
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, family="monospace")
    axes.set_yticks(range(len(tokens)), tokens, family="monospace")
    axes.xaxis.tick_top()
    axes.set_ylabel("a token attends ...")
    axes.set_xlabel("... to these tokens")
    axes.xaxis.set_label_position("top")
    figure.savefig(output_file, dpi=80)


if __name__ == "__main__":
    main()
