"""What holds unless a caller says otherwise, under the names that the original has for it."""

from __future__ import annotations

import datetime

from holdfast.dropin.python_dynamodb_lock.heartbeat import ADAPTIVE
from holdfast.dropin.python_dynamodb_lock.table import LEASE_DURATION, OWNER_NAME, VERSION


class Defaults:
    """Constants of the client's class: programs read them, and subclasses replace some."""

    _DEFAULT_TABLE_NAME = "DynamoDBLockTable"
    _DEFAULT_PARTITION_KEY_NAME = "lock_key"
    _DEFAULT_SORT_KEY_NAME = "sort_key"
    _DEFAULT_TTL_ATTRIBUTE_NAME = "expiry_time"
    _DEFAULT_HEARTBEAT_PERIOD = datetime.timedelta(seconds=5)
    _DEFAULT_SAFE_PERIOD = datetime.timedelta(seconds=20)
    _DEFAULT_LEASE_DURATION = datetime.timedelta(seconds=30)
    _DEFAULT_EXPIRY_PERIOD = datetime.timedelta(hours=1)
    _DEFAULT_HEARTBEAT_TPS = ADAPTIVE
    _DEFAULT_APP_CALLBACK_THREADPOOL_SIZE = 5
    _DEFAULT_READ_CAPACITY = 5
    _DEFAULT_WRITE_CAPACITY = 5
    _DEFAULT_SORT_KEY_VALUE = "-"

    _COL_OWNER_NAME = OWNER_NAME
    _COL_LEASE_DURATION = LEASE_DURATION
    _COL_RECORD_VERSION_NUMBER = VERSION
