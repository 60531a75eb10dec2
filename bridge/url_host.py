"""A host as a URL has it."""


def url_host(host: str) -> str:
    """Return a host name or an address; an IPv6 address is in brackets."""
    return f"[{host}]" if ":" in host else host
