#!/usr/bin/env python3
"""Counts this project's frames between run_pretraining.py and the deepest matrix product that its
step traces.

In: nothing; it trains a toy model for one step. Out: the frames, outermost first, and exit status 1
if there are more than 18. The loop over the steps, which AutoGraph rewrites into a file elsewhere,
is none of them.

    python benchmarks/frames.py
"""

import contextlib
import pathlib
import runpy
import sys
import tempfile
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "official_bert"
MOST = 18


def main():
    sys.path.insert(0, str(ROOT))
    from keras import ops

    from tests import toy
    from tests.commands.pretraining_run import flags_of, write_records

    real, deepest = ops.matmul, []

    def matmul(*arguments):
        frames = [
            frame for frame in traceback.extract_stack() if frame.filename.startswith(str(PACKAGE))
        ]
        deepest[:] = max(deepest, frames, key=len)
        return real(*arguments)

    ops.matmul = matmul
    with tempfile.TemporaryDirectory() as folder:
        model = toy.make_bert_base_dir(pathlib.Path(folder) / "model")
        write_records(model / "records.tfrecord")
        flags = flags_of(model, pathlib.Path(folder) / "out", num_train_steps=1)
        sys.argv = ["run_pretraining.py", *(f"--{name}={value}" for name, value in flags.items())]
        with contextlib.suppress(SystemExit):
            runpy.run_path(str(ROOT / "run_pretraining.py"), run_name="__main__")
    for frame in deepest:
        print(f"{pathlib.Path(frame.filename).relative_to(ROOT)}:{frame.lineno} {frame.name}")
    print(f"{len(deepest)} frames, of at most {MOST}")
    sys.exit(not 0 < len(deepest) <= MOST)


if __name__ == "__main__":
    main()
