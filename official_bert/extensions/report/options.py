"""The flags of the command report, and the flag --report of the training scripts."""

import dataclasses

from official_bert.options.fields import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlag:
    report: bool = option(
        False,
        basic=True,
        help="At the end of the run, write report.html into --output_dir: the curves, the results, "
        "the mistakes and how to repeat the run. official-bert report writes it later.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportOptions:
    folders: tuple[str, ...] = option(
        (),
        is_first_word=True,
        help="The --output_dir of a training script, or several to compare, before all flags.",
    )
    output_file: str | None = option(
        None,
        help="The page. By default it is report.html in the folder, and with several folders "
        "report.html in the working folder.",
    )
    model_card: bool = option(
        True,
        help="With one folder, also write README.md, the model card, into it. Your words in an "
        "earlier card are kept.",
    )
