"""The options of what a training reports about its speed."""

import dataclasses

from official_bert.options.fields import between, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportingOptions:
    """Flags that the trainers share."""

    peak_flops: float | None = option(
        None,
        check=between(1.0, 1e21),
        help="The floating-point operations a second that all replicas together can make in --dtype, by their data "
        "sheet: 989e12 for an H100 in bfloat16. With this flag the progress line shows the model FLOPs utilization "
        "(MFU).",
    )
