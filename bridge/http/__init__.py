"""The HTTP endpoints of both ports: what a request may contain, which engine call it means, what the reply contains."""
