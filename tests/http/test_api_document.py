"""Requests made from the OpenAPI document: a running bridge answers each with a documented status and form."""

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.launch import Bridge

schemathesis.serializer.alias("application/x-ndjson", "application/json")  # of one line


@pytest.mark.extended
@pytest.mark.parametrize("server", ["hypercorn", "granian"])
def test_answers_are_those_of_the_document(server: str, tmp_path: Path) -> None:
    with Bridge(tmp_path, server=server) as bridge:
        document = schemathesis.openapi.from_url(f"{bridge.url}/openapi.json")
        operations = [result.ok() for result in document.get_all_operations() if isinstance(result, Ok)]

        @settings(
            max_examples=5, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(st.data())
        def ask(data: st.DataObject) -> None:
            for operation in operations:
                case = data.draw(operation.as_strategy())
                if operation.label == "GET /v1/push" or "waitmills" in f"{case.query} {case.headers}":
                    continue  # they wait for messages
                response = case.call(base_url=bridge.url, timeout=30)
                case.validate_response(response, checks=[status_code_conformance, response_schema_conformance])

        ask()
