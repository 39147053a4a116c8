"""The options of a plot of a training. Every field is a flag of plot_run.py."""

import dataclasses

from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotOptions:
    output_dir: str = option(
        help="The --output_dir of a training script, with the figures of its run. A search has a folder for each run."
    )
    plot_file: str | None = option(
        None, help="The PNG file to write. Without this flag it is plot.png in --output_dir."
    )
