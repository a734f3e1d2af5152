"""Making the table, or telling an administrator how: a policy, CloudFormation, Terraform."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from holdfast.errors import ForeignStore, HoldfastError, Misconfigured, Unavailable
from holdfast.stores.dynamodb.codec import DROP_AT
from holdfast.stores.dynamodb.connect import Options
from holdfast.stores.dynamodb.errors import TableMissing, code_of
from holdfast.stores.dynamodb.transport import Transport

ACTIVE_WITHIN_S = 300.0
FIRST_NAP_S, LONGEST_NAP_S = 0.05, 5.0
TEMPLATES = Path(__file__).with_name("templates")


def set_up(transport: Transport, options: Options) -> None:
    """Create the table unless it exists, wait until it can be used, and enable its TTL. May be
    repeated, also by many processes at once."""
    try:
        _describe(transport)
    except TableMissing:
        _create(transport, options)
    _check_keys(transport, options, _when_active(transport))
    _switch_ttl_on(transport)


def _describe(transport: Transport) -> Mapping[str, Any]:
    described: Mapping[str, Any] = transport.call("describe_table", "setting up")["Table"]
    return described


def _create(transport: Transport, options: Options) -> None:
    capacity = {
        "ReadCapacityUnits": options.read_capacity,
        "WriteCapacityUnits": options.write_capacity,
    }
    how: dict[str, Any] = {"BillingMode": "PAY_PER_REQUEST"}
    if options.billing == "provisioned":
        how = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": capacity}
    name = options.partition_key
    try:
        transport.call(
            "create_table",
            "setting up",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": name, "KeyType": "HASH"}],
            **how,
        )
    except Unavailable as exc:
        if _code(exc) != "ResourceInUseException":  # somebody else was faster
            raise


def _when_active(transport: Transport) -> Mapping[str, Any]:
    ends_at = time.monotonic() + ACTIVE_WITHIN_S
    nap = FIRST_NAP_S
    while True:
        described = _describe(transport)
        if described["TableStatus"] in ("ACTIVE", "UPDATING"):
            return described
        if time.monotonic() > ends_at:
            raise Unavailable(f"{transport.where}: it is still {described['TableStatus']}.")
        time.sleep(nap)
        nap = min(2 * nap, LONGEST_NAP_S)


def _check_keys(transport: Transport, options: Options, described: Mapping[str, Any]) -> None:
    wanted = [(options.partition_key, "HASH")]
    found = [(key["AttributeName"], key["KeyType"]) for key in described["KeySchema"]]
    types = {
        one["AttributeName"]: one["AttributeType"] for one in described["AttributeDefinitions"]
    }
    if found == wanted and types[options.partition_key] == "S":
        return
    keys = ", ".join(f"{name} ({types[name]}, {kind})" for name, kind in found)
    raise ForeignStore(
        f"{transport.where}: its primary key is {keys}. Holdfast needs a single string as "
        f"partition key, here {options.partition_key}: name it with ?partition_key=, or use "
        f"another table."
    )


def _switch_ttl_on(transport: Transport) -> None:
    described = transport.call("describe_time_to_live", "setting up")["TimeToLiveDescription"]
    status, name = described["TimeToLiveStatus"], described.get("AttributeName")
    if status in ("ENABLED", "ENABLING"):
        if name != DROP_AT:
            raise Misconfigured(
                f"{transport.where}: its TTL looks at the attribute {name}, which could delete a "
                f"lock that is held: switch it to {DROP_AT}, or use another table."
            )
        return
    wanted = {"Enabled": True, "AttributeName": DROP_AT}
    try:
        transport.call("update_time_to_live", "setting up", TimeToLiveSpecification=wanted)
    except HoldfastError as exc:
        if "already enabled" not in str(exc):  # somebody else was faster
            raise


def _code(exc: HoldfastError) -> str:
    return code_of(exc.__cause__) if isinstance(exc.__cause__, Exception) else ""


# --- for an administrator ---------------------------------------------------------------------

PARTS = ("policy.json", "cloudformation.yaml", "terraform.tf")


def describe(transport: Transport, options: Options) -> str:
    """Returns what an administrator needs: a policy, and the table for CloudFormation and
    Terraform."""
    meta = transport.client.meta
    words = {
        "table": transport.table,
        "key": options.partition_key,
        "drop_at": DROP_AT,
        "arn": f"arn:{meta.partition}:dynamodb:{meta.region_name}:*:table/{transport.table}",
    }
    return "\n".join(_filled_in(part, words, options) for part in PARTS)


def _filled_in(part: str, words: Mapping[str, str], options: Options) -> str:
    text = (TEMPLATES / f"{part}.in").read_text(encoding="utf-8")
    return Template(text).substitute(words, billing=_BILLING[part, options.billing].format(options))


_BILLING = {
    ("policy.json", "on-demand"): "",
    ("policy.json", "provisioned"): "",
    ("cloudformation.yaml", "on-demand"): "      BillingMode: PAY_PER_REQUEST",
    ("cloudformation.yaml", "provisioned"): (
        "      BillingMode: PROVISIONED\n"
        "      ProvisionedThroughput:\n"
        "        ReadCapacityUnits: {0.read_capacity}\n"
        "        WriteCapacityUnits: {0.write_capacity}"
    ),
    ("terraform.tf", "on-demand"): '  billing_mode = "PAY_PER_REQUEST"',
    ("terraform.tf", "provisioned"): (
        '  billing_mode   = "PROVISIONED"\n'
        "  read_capacity  = {0.read_capacity}\n"
        "  write_capacity = {0.write_capacity}"
    ),
}
