"""The conformance suite of the OpenMessaging HTTP binding, for every bridge and every backend.

    pytest --pyargs openmessaging_conformance --bridge-url http://127.0.0.1:8080

It asks `/v1/capabilities` what the bridge can do, never which broker is behind it, and uses names of its own only.
"""
