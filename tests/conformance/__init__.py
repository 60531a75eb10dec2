"""The conformance suite of the OpenMessaging HTTP binding, for every bridge and every backend.

    oms-bridge conformance http://127.0.0.1:8080

runs it; so does `pytest FOLDER --bridge-url URL` with the folder of this package (not `--pyargs` with its name: pytest
would read too late that there is such an option). It asks `/v1/capabilities` what the bridge can do, never which broker
is behind it, and it uses only its own names.
"""
