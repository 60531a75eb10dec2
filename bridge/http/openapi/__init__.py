"""The bridge describes itself: `/v1/capabilities`, `/openapi.json`, `/asyncapi.json` and `/docs`."""
