"""The conformance suite of the OpenMessaging HTTP binding, for every bridge and every backend.

    oms-bridge conformance http://127.0.0.1:8080

runs it; so does `pytest FOLDER --bridge-url URL` with this package's folder. (Not `--pyargs` with its name: pytest would
read the option's conftest too late.)
It asks `/v1/capabilities` what the bridge can do, never which broker is behind it, and uses names of its own only.
"""
