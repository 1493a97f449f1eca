"""The OpenAPI document of the control API, from its table of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkacompat.testing.control import OPERATIONS
from kafkacompat.testing.control_arguments import Argument
from kafkacompat.testing.control_json import schema_of


def openapi() -> dict[str, Any]:
    """The OpenAPI document of all operations."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for operation in OPERATIONS:
        answer: Any = {"type": "object"} if operation.answer is None else schema_of(operation.answer, schemas)
        told: dict[str, Any] = {
            "operationId": operation.name,
            "summary": operation.text,
            "parameters": [
                *(_parameter(each, "path") for each in operation.in_path),
                *(_parameter(each, "query") for each in operation.arguments if operation.method == "GET"),
                {"$ref": "#/components/parameters/fork"},
            ],
            "responses": {
                "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
                "default": {"$ref": "#/components/responses/problem"},
            },
        }
        if operation.arguments and operation.method == "POST":
            is_required = any(each.is_required for each in operation.arguments)
            schema = _body_schema(operation.arguments)
            told["requestBody"] = {
                "required": is_required,
                "content": {"application/json": {"schema": schema}},
            }
        paths.setdefault(operation.path, {})[operation.method.lower()] = told
    problem = {"message": str, "error": str | None, "argument": str | None}
    return {
        "openapi": "3.1.0",
        "info": {"title": "kafkacompat testserver", "version": "1"},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": {
                "fork": {
                    "name": "fork",
                    "in": "query",
                    "description": "The number of the fork that is meant. Without it, it is the Kafka of the command.",
                    "schema": {"type": "integer"},
                }
            },
            "responses": {
                "problem": {
                    "description": "400: an argument is wrong. 401, 403, 421: who asks may not. 404: there is no such thing. "
                    "409: Kafka refuses, or what is waited for does not come. 503: too much at once.",
                    "content": {"application/json": {"schema": schema_of(problem, schemas)}},
                }
            },
            "schemas": schemas,
        },
    }


def _parameter(argument: Argument, place: str) -> dict[str, Any]:
    return {
        "name": argument.name,
        "in": place,
        "required": argument.is_required,
        "description": argument.text,
        "schema": argument.schema,
    }


def _body_schema(arguments: Sequence[Argument]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {each.name: _described(each) for each in arguments},
        "required": [each.name for each in arguments if each.is_required],
        "additionalProperties": False,
    }


def _described(argument: Argument) -> dict[str, Any]:
    schema = dict(argument.schema)
    if argument.takes_null:
        schema["type"] = [schema["type"], "null"]
    return {**schema, "description": argument.text}
