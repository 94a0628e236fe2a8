"""Schemas of the operators' kinds, of the fields alone that deploy/kubernetes uses: whatever else
is there fails, as a misspelt field would, which an operator drops without a word.

Written after the definitions of flink-kubernetes-operator 1.9 to 1.15 (Apache-2.0) and of
spark-operator 2.5 (Apache-2.0); pods in them are left to the schema of Kubernetes.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_POD: Schema = {"type": "object"}


def _fields(required: str = "", **properties: Schema) -> Schema:
    """An object of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def _kind(version: str, name: str, spec: Schema) -> Schema:
    named = {"const": version}, {"const": name}
    metadata = _fields("name", name=_TEXT, namespace=_TEXT, labels=_TEXTS, annotations=_TEXTS)
    return _fields(
        "apiVersion kind metadata spec",
        apiVersion=named[0],
        kind=named[1],
        metadata=metadata,
        spec=spec,
    )


_MEMORY: Schema = {"type": "string", "pattern": "^[0-9]+(m|g|mb|gb)$"}
_RESOURCE = _fields("cpu memory", cpu={"type": "number"}, memory=_MEMORY)

FLINK_DEPLOYMENT = _kind(
    "flink.apache.org/v1beta1",
    "FlinkDeployment",
    _fields(
        "image flinkVersion serviceAccount jobManager taskManager",
        image=_TEXT,
        flinkVersion={"enum": ["v1_19"]},
        mode={"enum": ["native", "standalone"]},
        serviceAccount=_TEXT,
        flinkConfiguration=_TEXTS,
        podTemplate=_POD,
        jobManager=_fields("resource", replicas=_WHOLE, resource=_RESOURCE, podTemplate=_POD),
        taskManager=_fields("resource", replicas=_WHOLE, resource=_RESOURCE, podTemplate=_POD),
        job=_fields(
            "jarURI",
            jarURI=_TEXT,
            entryClass=_TEXT,
            args={"type": "array", "items": _TEXT},
            parallelism=_WHOLE,
            upgradeMode={"enum": ["savepoint", "last-state", "stateless"]},
        ),
    ),
)

_ROLE = {"cores": _WHOLE, "memory": _MEMORY, "serviceAccount": _TEXT, "template": _POD}

SPARK_APPLICATION = _kind(
    "sparkoperator.k8s.io/v1beta2",
    "SparkApplication",
    _fields(
        "type sparkVersion mainApplicationFile driver executor",
        type={"enum": ["Java", "Scala", "Python", "R"]},
        mode={"enum": ["cluster", "client"]},
        image=_TEXT,
        sparkVersion=_TEXT,
        mainClass=_TEXT,
        mainApplicationFile=_TEXT,
        arguments={"type": "array", "items": _TEXT},
        restartPolicy=_fields(
            "type",
            type={"enum": ["Never", "Always", "OnFailure"]},
            onFailureRetries=_WHOLE,
            onFailureRetryInterval=_WHOLE,
        ),
        timeToLiveSeconds=_WHOLE,
        sparkConf=_TEXTS,
        driver=_fields("serviceAccount", **_ROLE),
        executor=_fields("instances", instances=_WHOLE, **_ROLE),
    ),
)
