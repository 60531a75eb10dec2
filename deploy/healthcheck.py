"""The images' health check: exit status 0 if /readyz on the management port says ready, 1 with the reason if not.

Its argument is the port, unless OMS_MANAGEMENT names another. One that stands only in a settings file is not seen.
"""
# ruff: noqa: INP001, T201 - a standalone program; docker inspect shows what it prints

import http.client
import os
import sys

_SECONDS = 4.0
"""Less than the image's HEALTHCHECK waits, so that the reason is told."""


def main() -> int:
    """Ask once, and print what was answered."""
    port = os.environ.get("OMS_MANAGEMENT", "").rpartition(":")[2] or sys.argv[1]
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        print(answer.read().decode("utf-8", "replace").strip())
    except OSError as failure:
        print(failure)
        return 1
    finally:
        connection.close()
    return 0 if answer.status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    sys.exit(main())
