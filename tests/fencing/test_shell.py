"""The recipes for the shell, run as the docs have them, by a child of `holdfast run`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import fencing
from holdfast.fencing import Fence
from tests.engines.base import require
from tests.engines.dynamodb import DynamoDBLocal, session
from tests.engines.mariadb import MariaDB
from tests.engines.postgres import PostgreSQL
from tests.engines.shared import shared
from tests.engines.sqlite_shell import SQLiteShell
from tests.fencing.sql_ways import KINDS, Site
from tests.helpers import unique

PAGE = (Path(__file__).parents[2] / "docs" / "fencing.md").read_text()
SHELL = PAGE.split("## From the shell")[1].split("\n## ")[0]
RECIPES = dict(
    zip((*KINDS, "dynamodb"), re.findall(r"```sh\n(.*?)```", SHELL, re.DOTALL), strict=True)
)
KEY = "it's a \"key\"; 'é\\"


def run(recipe: str, folder: Path, who: str, database: str) -> subprocess.CompletedProcess[str]:
    """What the recipe does under a lock, kept in a file."""
    command = [sys.executable, "-m", "holdfast", "run", "--url", f"sqlite://{folder}/locks.db"]
    return subprocess.run(
        [*command, KEY, "--", "sh", "-ec", recipe],
        env={**os.environ, "DATABASE": database, "WHO": who},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def place(kind: str, site: Site) -> tuple[str, str]:
    """The recipe for a database, and how its client finds the server."""
    recipe = RECIPES[kind]
    if kind == "postgresql":
        return recipe, shared(PostgreSQL).url()
    if kind == "mysql":
        client = f"mariadb --no-defaults -h 127.0.0.1 -P {shared(MariaDB).port} -u root"
        return recipe.replace("mysql ", f"{client} ", 1), "holdfast"
    require(SQLiteShell)
    return recipe, str(site.path)


@pytest.mark.parametrize("kind", KINDS)
def test_sql_from_the_shell(kind: str, tmp_path: Path) -> None:
    """A stale run fails and writes nothing, whatever characters the key has; one that is not stale
    writes, and the library knows its fence."""
    site = Site(kind, tmp_path)
    recipe, database = place(kind, site)
    first, again, stale = unique(), unique(), unique()
    for who in (first, again):
        ran = run(recipe, tmp_path, who, database)
        assert ran.returncode == 0, ran.stderr
    remembered = site.remembered(KEY)
    assert remembered is not None
    with site.root() as tx:
        fencing.sql.admit(tx, Fence(KEY, 2**62))
    ran = run(recipe, tmp_path, stale, database)
    assert ran.returncode != 0
    assert ran.stderr
    assert [site.written(who) for who in (first, again, stale)] == [True, True, False]
    assert site.remembered(KEY) == 2**62
    site.ask_none("DELETE FROM holdfast_fences")


def test_mysql_without_strict_mode(tmp_path: Path) -> None:
    """A server that would store something else instead of an error fails all the same."""
    site = Site("mysql", tmp_path)
    recipe, database = place("mysql", site)
    recipe = recipe.replace("START TRANSACTION", "SET sql_mode = ''; START TRANSACTION")
    who = unique()
    with site.root() as tx:
        fencing.sql.admit(tx, Fence(KEY, 2**62))
    assert run(recipe, tmp_path, who, database).returncode != 0
    assert not site.written(who)
    assert site.remembered(KEY) == 2**62
    site.ask_none("DELETE FROM holdfast_fences")


def test_dynamodb_from_the_shell() -> None:
    """The expressions of the recipe, as boto3 sends them: the library's own condition."""
    client: Any = session().client("dynamodb", endpoint_url=shared(DynamoDBLocal).endpoint)
    table, who = f"T{unique()[:12]}", unique()
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    values = {"WHO": who, "HOLDFAST_KEY": "k"}
    for fence, fits in ((5, True), (5, True), (4, False), (6, True)):
        words = _words(RECIPES["dynamodb"], {**values, "HOLDFAST_FENCE": str(fence)})
        request = {**_request(words), "TableName": table}
        try:
            client.update_item(**request)
        except client.exceptions.ConditionalCheckFailedException:
            assert not fits
        else:
            assert fits
    fencing.dynamodb.put(client, Fence("k", 7), TableName=table, Item={"id": {"S": who}})
    with pytest.raises(client.exceptions.ConditionalCheckFailedException):
        client.update_item(**request)
    client.close()


def _words(recipe: str, values: dict[str, str]) -> list[str]:
    """The words of the command, as a shell makes them."""
    for name, value in values.items():
        recipe = recipe.replace(f"${name}", value)
    return shlex.split(recipe.replace("\\\n", " "))


def _request(words: list[str]) -> dict[str, Any]:
    assert words[:3] == ["aws", "dynamodb", "update-item"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    return {
        "Key": json.loads(options["--key"]),
        "UpdateExpression": options["--update-expression"],
        "ConditionExpression": options["--condition-expression"],
        "ExpressionAttributeValues": json.loads(options["--expression-attribute-values"]),
    }


def test_a_child_in_python(tmp_path: Path) -> None:
    """It finds key and fence in its environment."""
    program = (
        "from holdfast.fencing import Fence; f = Fence.from_environment(); print(f.key, f.fence)"
    )
    code = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"
    ran = run(code, tmp_path, "", "")
    assert ran.stdout.startswith(KEY + " 17"), ran.stderr
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    ran = subprocess.run([sys.executable, "-c", program], env=bare, capture_output=True, text=True)
    assert "start this program with `holdfast run" in ran.stderr
