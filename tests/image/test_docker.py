"""The tests' own Docker leaves this machine as it was."""

from pathlib import Path

import pytest

from tests.brokers.cache import Missing
from tests.image import base, cgroups
from tests.image.docker import CGROUPS, cgroups_of, running

pytestmark = pytest.mark.extended


def test_it_leaves_no_folders_of_cgroups(tmp_path: Path) -> None:
    def there() -> set[Path]:
        """Return all but those of the Dockers of other tests, which may run at the same time."""
        found = {path for path in cgroups.TOP.glob("*/*") if path.is_dir()}
        return {path for path in found if path.name == own or not path.name.startswith(CGROUPS)}

    own = cgroups_of(tmp_path)
    before = there()
    try:
        with running(tmp_path) as docker:
            if not (tmp_path / "dockerd.log").exists():
                pytest.skip("this machine has a Docker, whose folders are its own")
            docker("import", base.tar(), "base")
            docker("run", "--rm", "--network=none", "base", "true")
            assert own in {path.name for path in there() - before}
    except Missing as missing:
        pytest.skip(f"No Docker: {missing}")
    assert {path for path in there() - before if "docker" in path.name} == set()
