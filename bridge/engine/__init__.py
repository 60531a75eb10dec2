"""The meaning, once for every backend: who may send what, when it is due, who holds it, how it ends."""
