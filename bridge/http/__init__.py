"""The HTTP doors: what a request may be, which engine call it means, what its answer looks like."""
