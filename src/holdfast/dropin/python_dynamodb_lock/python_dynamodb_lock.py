"""The same names where the original has them: in a module of the package's own name.

Its manual says `from python_dynamodb_lock.python_dynamodb_lock import *`, which also brings what
that module itself has imported, and the manual's examples use some of it.
"""

import datetime
import logging
import socket
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from urllib.parse import quote

from botocore.exceptions import ClientError

from holdfast.dropin.python_dynamodb_lock import (
    BaseDynamoDBLock,
    DynamoDBLock,
    DynamoDBLockClient,
    DynamoDBLockError,
)
from holdfast.dropin.python_dynamodb_lock.models import logger

__all__ = [
    "BaseDynamoDBLock",
    "ClientError",
    "Decimal",
    "DynamoDBLock",
    "DynamoDBLockClient",
    "DynamoDBLockError",
    "ThreadPoolExecutor",
    "datetime",
    "logger",
    "logging",
    "quote",
    "socket",
    "threading",
    "time",
    "uuid",
]
