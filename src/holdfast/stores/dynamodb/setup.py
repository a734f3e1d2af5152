"""Making the table, or telling an administrator how: a policy, CloudFormation, Terraform."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from holdfast.errors import ForeignStore, HoldfastError, Misconfigured, Unavailable
from holdfast.stores.dynamodb.connect import Options
from holdfast.stores.dynamodb.errors import TableMissing, code_of
from holdfast.stores.dynamodb.items import DROP_AT
from holdfast.stores.dynamodb.table import Table

ACTIVE_WITHIN_S = 300.0
FIRST_NAP_S, LONGEST_NAP_S = 0.05, 5.0
TEMPLATES = Path(__file__).with_name("templates")


def set_up(table: Table, options: Options) -> None:
    """Create the table unless it is there, wait until it can be used, and switch TTL on.
    Harmless to repeat, also from many processes at once."""
    try:
        _describe(table)
    except TableMissing:
        _create(table, options)
    _check_keys(table, _when_active(table))
    _switch_ttl_on(table)


def _describe(table: Table) -> Mapping[str, Any]:
    described: Mapping[str, Any] = table.call("describe_table", "setting up")["Table"]
    return described


def _create(table: Table, options: Options) -> None:
    capacity = {
        "ReadCapacityUnits": options.read_capacity,
        "WriteCapacityUnits": options.write_capacity,
    }
    how: dict[str, Any] = {"BillingMode": "PAY_PER_REQUEST"}
    if options.billing == "provisioned":
        how = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": capacity}
    name = table.layout.key_name
    try:
        table.call(
            "create_table",
            "setting up",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": name, "KeyType": "HASH"}],
            **how,
        )
    except Unavailable as exc:
        if _code(exc) != "ResourceInUseException":  # somebody else was faster
            raise


def _when_active(table: Table) -> Mapping[str, Any]:
    ends_at = time.monotonic() + ACTIVE_WITHIN_S
    nap = FIRST_NAP_S
    while True:
        described = _describe(table)
        if described["TableStatus"] in ("ACTIVE", "UPDATING"):
            return described
        if time.monotonic() > ends_at:
            raise Unavailable(f"{table.place}: it is still {described['TableStatus']}.")
        time.sleep(nap)
        nap = min(2 * nap, LONGEST_NAP_S)


def _check_keys(table: Table, described: Mapping[str, Any]) -> None:
    wanted = [(table.layout.key_name, "HASH")]
    found = [(key["AttributeName"], key["KeyType"]) for key in described["KeySchema"]]
    types = {
        one["AttributeName"]: one["AttributeType"] for one in described["AttributeDefinitions"]
    }
    if found == wanted and types[table.layout.key_name] == "S":
        return
    keys = ", ".join(f"{name} ({types[name]}, {kind})" for name, kind in found)
    raise ForeignStore(
        f"{table.place}: its primary key is {keys}. Holdfast needs a single string as partition "
        f"key, here {table.layout.key_name}: name it with ?partition_key=, or use another table."
    )


def _switch_ttl_on(table: Table) -> None:
    described = table.call("describe_time_to_live", "setting up")["TimeToLiveDescription"]
    status, name = described["TimeToLiveStatus"], described.get("AttributeName")
    if status in ("ENABLED", "ENABLING"):
        if name != DROP_AT:
            raise Misconfigured(
                f"{table.place}: its TTL looks at the attribute {name}, which could delete a lock "
                f"that is held: switch it to {DROP_AT}, or use another table."
            )
        return
    wanted = {"Enabled": True, "AttributeName": DROP_AT}
    try:
        table.call("update_time_to_live", "setting up", TimeToLiveSpecification=wanted)
    except HoldfastError as exc:
        if "already enabled" not in str(exc):  # somebody else was faster
            raise


def _code(exc: HoldfastError) -> str:
    return code_of(exc.__cause__) if isinstance(exc.__cause__, Exception) else ""


# --- for those who may not create a table ---------------------------------------------------

PARTS = ("policy.json", "cloudformation.yaml", "terraform.tf")


def describe(table: Table, options: Options) -> str:
    """What an administrator needs: the rights, and the table in two languages."""
    meta = table.client.meta
    words = {
        "table": table.name,
        "key": table.layout.key_name,
        "drop_at": DROP_AT,
        "arn": f"arn:{meta.partition}:dynamodb:{meta.region_name}:*:table/{table.name}",
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
