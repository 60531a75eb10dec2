"""One hypothesis profile for the unit tests: no timed verdicts, and the same examples on every CI run."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")
