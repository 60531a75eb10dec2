"""The driver of kafka-python, the default: pure Python, on threads of its own."""
