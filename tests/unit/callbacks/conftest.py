"""The workers' tests run on a loop whose time is virtual, as the engine's do."""

from tests.unit.engine.conftest import clock, pytest_asyncio_loop_factories

__all__ = ["clock", "pytest_asyncio_loop_factories"]
