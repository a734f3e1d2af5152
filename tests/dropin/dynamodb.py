"""Servers that speak DynamoDB, and clients of theirs."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from tests.engines.dynamodb import DynamoDBLocal, OldDynamoDBLocal
from tests.engines.moto import Moto

# What a failed condition shows, and whether replies tell the time:
#   local, moto  the item, and the time
#   old          neither
SERVICES: dict[str, type[DynamoDBLocal] | type[Moto]] = {
    "local": DynamoDBLocal,
    "old": OldDynamoDBLocal,
    "moto": Moto,
}


def resource(endpoint: str, timeout_s: float = 60.0) -> Any:
    """A boto3 resource that tries three times, each for so long: the machine may be busy."""
    return boto3.resource(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(
            connect_timeout=timeout_s,
            read_timeout=timeout_s,
            retries={"total_max_attempts": 3},
        ),
    )


def at(port: int) -> str:
    """The endpoint at a port of this machine."""
    return f"http://127.0.0.1:{port}"
