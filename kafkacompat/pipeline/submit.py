"""The jobs under spark-submit: `spark-submit --packages CONNECTOR .../submit.py JOB [options of kafkacompat pipeline
run]`.

By default spark-submit chooses the master. Only the driver needs kafkacompat; executors run none of it, unless a job reads Avro
or Protobuf.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    """Parse the arguments and run. The exit status is that of `kafkacompat pipeline run`."""
    # Python puts a script's folder first on the path. There, this package's module names would hide other modules.
    here = Path(__file__).resolve()
    sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != here.parent]
    sys.path.append(str(here.parents[2]))
    from kafkacompat.pipeline import run_command
    from kafkacompat.pipeline.failure import PipelineFailed

    parser = argparse.ArgumentParser(prog="submit.py", description="Run the jobs under spark-submit.")
    run_command.add_arguments(parser)
    parser.set_defaults(master=None)
    try:
        return run_command.run(parser.parse_args())
    except PipelineFailed as failure:
        print(f"kafkacompat: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
