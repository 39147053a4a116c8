"""The folder of a run as it was when it had saved a step, without a second run that is killed
there.
"""

import pathlib
import re
import shutil

from official_bert.checkpoints import folder as checkpoint_folder


def rewind(whole: pathlib.Path, copy: pathlib.Path, step: int) -> pathlib.Path:
    """Copies the folder of a run that has kept all its checkpoints, and returns the copy.

    Args:
        whole: the folder of the run.
        copy: the new folder.
        step: of the newest checkpoint that the copy has; events and run.jsonl are left out.
    """
    copy.mkdir(parents=True)
    steps = set()
    for path in whole.iterdir():
        checkpoint = re.match(r"(?:model|input)\.ckpt-(\d+)", path.name)
        if checkpoint and int(checkpoint[1]) <= step:
            steps.add(int(checkpoint[1]))
        elif checkpoint or path.is_dir() or path.name == "run.jsonl" or "tfevents" in path.name:
            continue
        shutil.copyfile(path, copy / path.name)
    assert max(steps) == step
    checkpoint_folder.write_state(
        str(copy),
        [f"model.ckpt-{number}" for number in sorted(steps)],
    )
    return copy
