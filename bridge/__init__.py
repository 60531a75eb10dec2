"""openmessaging-bridge: the OpenMessaging HTTP binding in front of the brokers people already run."""

__version__ = "0.1.0"
