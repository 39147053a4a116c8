"""The flags of create_pretraining_data that choose an engine."""

import dataclasses

from official_bert.options.data_tools import MAX_PARTS
from official_bert.options.fields import between, option

RAY, BEAM = "ray", "beam"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineFlags:
    engine: str | None = option(
        None,
        choices=(RAY, BEAM),
        help="With --generator=sharded, make all parts of the records on the machines of a Ray "
        "cluster, or with a runner of Apache Beam. All machines need this package, and the same "
        "paths. The parts are those of --part.",
    )
    num_parts: int | None = option(
        None,
        check=between(1, MAX_PARTS),
        help="With --engine, the number of parts, of which each machine makes one after the other. "
        "There must be at least as many input files.",
    )
    beam_options: list[str] | None = option(
        None,
        help="With --engine=beam, the options of the pipeline, separated by commas, such as "
        "--runner=FlinkRunner,--flink_master=host:8081.",
    )
