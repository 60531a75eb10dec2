"""From the queues of a group to the engine, and acknowledgements back."""
