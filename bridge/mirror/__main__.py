"""The same commands for `spark-submit`, which needs a file: `spark-submit …/bridge/mirror/__main__.py run --out …`."""

import sys

from bridge.cli.program import main

if __name__ == "__main__":
    main(["mirror", *sys.argv[1:]], prog_name="oms-bridge")
