"""Write every mutant of the modules that the settings in this folder name: the first step of `mutmut run`, alone.

mutmut has no command for it, and the names of all mutants must be known before some of them are drawn.
"""

import os
import sys
from importlib import import_module
from pathlib import Path


def main(workers: int) -> None:
    """Write `mutants/`. mutmut reads its settings as soon as it is imported."""
    os.environ["MUTANT_UNDER_TEST"] = "mutant_generation"
    Path("mutants").mkdir(exist_ok=True)
    mutmut = import_module("mutmut.__main__")
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.create_mutants(workers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
