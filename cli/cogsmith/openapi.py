"""The OpenAPI schema of a rendered model: the one that Cog's build makes from predict.py, made from the plan instead.

Cog reads predict.py statically and gets some literals wrong, and its server without Docker makes no schema at all. Its shape is that of
Cog 0.22 and later (pkg/schema/openapi_spec.go of replicate/cog).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cogsmith.cog_versions import cog_version
from cogsmith.inputs import Input

Json = dict[str, Any]
_PIECES: Json = {
    "title": "Output",
    "type": "array",
    "items": {"type": "string"},
    "x-cog-array-type": "iterator",
    "x-cog-array-display": "concatenate",
}


def openapi_schema(inputs: Iterable[Input], cog: str, *, stream: bool) -> str:
    """The schema as JSON text.

    An input that is not required and has no default is nullable with the default null.

    Args:
        inputs: in the order of the signature.
        cog: Cog's version, which the schema carries as its own.
        stream: the answer comes in pieces; else it is one text.
    """
    properties, required, enums = _input_parts(inputs)
    input_schema: Json = {"title": "Input", "type": "object", "properties": properties}
    if required:
        input_schema["required"] = required
    schemas: Json = {
        "Input": input_schema,
        "Output": _PIECES if stream else {"title": "Output", "type": "string"},
        **enums,
        **_envelope_schemas(),
    }
    document = {
        "openapi": "3.0.2",
        "info": {"title": "Cog", "version": cog},
        "paths": _paths(streaming=stream and cog_version(cog).streaming),
        "components": {"schemas": schemas},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _input_parts(inputs: Iterable[Input]) -> tuple[Json, list[str], Json]:
    properties: Json = {}
    required: list[str] = []
    enums: Json = {}
    for order, entry in enumerate(inputs):
        prop: Json = {"x-order": order}
        if entry.choices:
            enums[entry.name] = {
                "title": entry.name,
                "description": "An enumeration.",
                "enum": list(entry.choices),
                "type": entry.type,
            }
            prop["allOf"] = [_ref(entry.name)]
        else:
            prop |= {"title": _title(entry.name), "type": entry.type}
        if entry.required:
            required.append(entry.name)
        else:
            prop["default"] = entry.default
            if entry.default is None:
                prop["nullable"] = True
        limits = {
            "description": entry.description,
            "minimum": entry.ge,
            "maximum": entry.le,
            "minLength": entry.min_length,
            "maxLength": entry.max_length,
            "pattern": entry.regex,
        }
        prop |= {key: value for key, value in limits.items() if value is not None}
        properties[entry.name] = prop
    return properties, required, enums


def _envelope_schemas() -> Json:
    text = {"type": "string"}
    stamp = {**text, "format": "date-time"}
    return {
        "PredictionRequest": _object(
            "PredictionRequest", {"id": {"title": "Id", **text}, "input": _ref("Input")}
        ),
        "PredictionResponse": _object(
            "PredictionResponse",
            {
                "input": _ref("Input"),
                "output": _ref("Output"),
                "id": {"title": "Id", **text},
                "version": {"title": "Version", **text},
                "created_at": {"title": "Created At", **stamp},
                "started_at": {"title": "Started At", **stamp},
                "completed_at": {"title": "Completed At", **stamp},
                "status": {"title": "Status", **text},
                "error": {"title": "Error", **text},
                "logs": {"title": "Logs", **text},
                "metrics": {"title": "Metrics", "type": "object"},
            },
        ),
        "Status": {
            "title": "Status",
            "description": "An enumeration.",
            "enum": ["starting", "processing", "succeeded", "canceled", "failed"],
            **text,
        },
        "HTTPValidationError": _object(
            "HTTPValidationError",
            {"detail": {"title": "Detail", "type": "array", "items": _ref("ValidationError")}},
        ),
        "ValidationError": {
            **_object(
                "ValidationError",
                {
                    "loc": {
                        "title": "Location",
                        "type": "array",
                        "items": {"anyOf": [text, {"type": "integer"}]},
                    },
                    "msg": {"title": "Message", **text},
                    "type": {"title": "Error Type", **text},
                },
            ),
            "required": ["loc", "msg", "type"],
        },
    }


def _paths(*, streaming: bool) -> Json:
    predict: Json = {
        "summary": "Predict",
        "description": "Run a single prediction on the model",
        "operationId": "predict_predictions_post",
        "requestBody": {"content": {"application/json": {"schema": _ref("PredictionRequest")}}},
        "responses": {
            "200": _answer("Successful Response", _ref("PredictionResponse")),
            "422": _answer("Validation Error", _ref("HTTPValidationError")),
        },
    }
    if streaming:
        # Without it the server answers 406 to `Accept: text/event-stream`.
        predict["x-cog-streaming"] = True
    cancel = {
        "summary": "Cancel",
        "operationId": "cancel_predictions__prediction_id__cancel_post",
        "parameters": [
            {
                "required": True,
                "schema": {"title": "Prediction Id", "type": "string"},
                "name": "prediction_id",
                "in": "path",
            }
        ],
        "responses": {
            "200": _answer("Successful Response", {}),
            "422": _answer("Validation Error", _ref("HTTPValidationError")),
        },
    }
    return {
        "/": {"get": _get("Root", "root__get")},
        "/health-check": {"get": _get("Healthcheck", "healthcheck_health_check_get")},
        "/predictions": {"post": predict},
        "/predictions/{prediction_id}/cancel": {"post": cancel},
    }


def _get(summary: str, operation: str) -> Json:
    return {
        "summary": summary,
        "operationId": operation,
        "responses": {"200": _answer("Successful Response", {})},
    }


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(title: str, properties: Json) -> Json:
    return {"title": title, "type": "object", "properties": properties}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _title(name: str) -> str:
    return " ".join(word[:1].upper() + word[1:] for word in name.split("_"))
