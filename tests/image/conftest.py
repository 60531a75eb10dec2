"""One Docker and one build for all tests of a worker. Without Docker they skip, which CI counts as a failure."""

import uuid
from collections.abc import Iterator

import pytest

import bridge
from tests.brokers.cache import Missing
from tests.image import base as base_image
from tests.image import building
from tests.image.docker import Docker, client, installed, running

_ADVICE = (
    "No Docker: {}. Start a Docker daemon with BuildKit, or run the tests as root on Debian 12, where they start one "
    "of their own from packages that apt-get fetches"
)


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Docker:
    """A command line with compose; no daemon is needed to read docker-compose.yml."""
    try:
        return installed() or client(tmp_path_factory.mktemp("compose"))
    except Missing as missing:
        pytest.skip(_ADVICE.format(missing))


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    """A daemon that runs."""
    try:
        with running(tmp_path_factory.mktemp("docker")) as docker:
            yield docker
    except Missing as missing:
        pytest.skip(_ADVICE.format(missing))


@pytest.fixture(scope="session")
def name() -> str:
    """The beginning of the names of all images, unique to the tests."""
    return f"oms-test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def base(docker: Docker, name: str) -> Iterator[str]:
    """A Debian without Python."""
    try:
        docker("import", base_image.tar(), f"{name}-base")
    except Missing as missing:
        pytest.skip(_ADVICE.format(missing))
    yield f"{name}-base"
    docker.run("image", "rm", "--force", f"{name}-base")


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of a build."""
    return building.secrets(tmp_path_factory.mktemp("secrets"))


@pytest.fixture(scope="session")
def bridge_image(docker: Docker, name: str, base: str, secrets: list[str]) -> Iterator[str]:
    """The bridge's, built as for a release on the base without Python."""
    tag = f"{name}-bridge"
    given = [f"--build-arg=BASE={base}", f"--build-arg=VERSION={bridge.__version__}", *secrets]
    building.build(docker, building.ROOT, tag, *given)
    yield tag
    docker.run("image", "rm", "--force", tag)


@pytest.fixture(scope="session")
def mirror_image(
    docker: Docker, name: str, base: str, secrets: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The mirror's, built on a base that has Python already."""
    tag, with_python = f"{name}-mirror", f"{name}-python"
    building.with_python(docker, tmp_path_factory.mktemp("base"), base, with_python)
    building.build(docker, building.ROOT, tag, "--target=mirror", f"--build-arg=BASE={with_python}", *secrets)
    yield tag
    docker.run("image", "rm", "--force", tag, with_python)
