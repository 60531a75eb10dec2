"""A program of an image beside the tests: in Docker, on the host's network and with the host's paths."""

import os
import shlex
import subprocess
from pathlib import Path

from requests.exceptions import RequestException
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer


def image_at_hand(image: str) -> bool:
    """Whether Docker runs here and has the image, or can pull it; and Ryuk's, which clears up after a killed run."""
    wanted = [image] if testcontainers_config.ryuk_disabled else [image, testcontainers_config.ryuk_image]
    # Not docker-py: where no Docker runs it leaves a socket open, and pytest fails a later test for that.
    return all(_docker("image", "inspect", each) or _docker("pull", each) for each in wanted)


class Container:
    """One run of a shell script in a new container, as this user; `Process` for the meaning of its methods."""

    def __init__(self, image: str, script: str, output: Path, *read: Path) -> None:
        """Start it. It sees the paths of `read`, and the folder of `output`, in which it may write."""
        into_file = f"exec >>{shlex.quote(str(output))} 2>&1; {script}"
        self._container = DockerContainer(image).with_kwargs(
            entrypoint=["sh", "-c", into_file], network="host", user=f"{os.getuid()}:{os.getgid()}"
        )
        self._container.with_volume_mapping(output.parent, str(output.parent), "rw")
        for path in read:
            self._container.with_volume_mapping(path, str(path))
        self._container.start()

    @property
    def pid(self) -> int:
        """Its process id on the host."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"])

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.pid != 0

    def beside(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run another script in the same place, in a folder, and wait for its end."""
        name = self._container.get_wrapped_container().id
        command = ["docker", "exec", "--workdir", str(folder), name, "sh", "-c", script]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def send(self, number: int) -> None:
        """Send a signal and do not wait."""
        if self.alive:
            self._container.get_wrapped_container().kill(number)

    def wait(self, seconds: float) -> None:
        """Wait for its end; TimeoutError if that does not come. Its container is removed."""
        try:
            self._container.get_wrapped_container().wait(timeout=seconds)
        except RequestException:
            raise TimeoutError(f"the container of {self.pid} still runs after {seconds} s") from None
        self._container.stop()


def _docker(*arguments: str) -> bool:
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
