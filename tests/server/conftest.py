"""Makes `tests.server` importable: the folders of tests are not packages, and pytest adds only this one to the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
