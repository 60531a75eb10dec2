"""Transactions: prepared messages and marks in a stream that all bridges of a prefix read."""
