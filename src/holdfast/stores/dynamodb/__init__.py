"""Locks in a DynamoDB table."""

from holdfast.stores.dynamodb.store import DynamoDBStore

__all__ = ["DynamoDBStore"]
