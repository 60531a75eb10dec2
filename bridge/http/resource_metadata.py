"""`GET /.well-known/oauth-protected-resource`: which issuers give tokens for the bridge (RFC 9728)."""

import json

from bridge.errors import NotFound
from bridge.http.request_and_reply import Reply, Request
from bridge.identity.access import Access


class ResourceMetadata:
    """The endpoint. `access` None: the bridge has no identities."""

    def __init__(self, access: Access | None) -> None:
        self._access = access

    async def document(self, request: Request) -> Reply:
        """Return the metadata. Raises `NotFound`."""
        if self._access is None:
            raise NotFound("The bridge asks for no tokens: no identities are set up.")
        document = self._access.metadata(request.headers.plain)
        return Reply(200, [(b"content-type", b"application/json")], json.dumps(document).encode())
