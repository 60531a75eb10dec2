"""One hypothesis profile for the unit tests: no timed verdicts, and the same examples on every CI run."""

import os

from hypothesis import HealthCheck, Phase, settings

MUTANT = "MUTANT_UNDER_TEST" in os.environ
"""A changed program is under test, one of hundreds (see tests/mutants): that a test fails is all that matters then."""

settings.register_profile(
    "unit",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=20 if MUTANT else 100,
    phases=(Phase.explicit, Phase.generate) if MUTANT else tuple(Phase),
)
settings.load_profile("unit")
