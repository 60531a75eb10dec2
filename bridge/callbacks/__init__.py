"""Callback push: the bridge POSTs messages to the URLs that clients registered."""
