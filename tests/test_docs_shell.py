"""Commands in the docs run as pasted; and every block of the docs is run, or it is said why not."""

from __future__ import annotations

import re

import pytest

import holdfast
from tests.desk import Desk
from tests.pages import DOCS, page

ROOT = DOCS.parent

# Which tests run the blocks of a page: how many in Python, how many for a shell.
RUN_BY = {
    "README": (1, 1, "test_docs.py, test_docs_shell.py"),
    "celery": (5, 1, "test_docs_servers.py"),
    "cli": (0, 5, "test_docs_shell.py"),
    "dropin-dynamodb-lock": (2, 0, "test_docs_servers.py"),
    "dropin-mops-lock": (1, 0, "test_docs_servers.py"),
    "dropin-python-dynamodb-lock": (1, 0, "test_docs_servers.py"),
    "dropin-redis-lock": (1, 0, "test_docs_servers.py"),
    "dropin-resource-lock": (1, 0, "test_docs_blocks.py"),
    "errors": (1, 0, "test_docs_blocks.py"),
    "events": (1, 0, "test_docs_blocks.py"),
    "fencing": (10, 4, "test_docs_blocks.py, test_docs_servers.py, fencing/test_shell.py"),
    "frameworks/airflow-and-prefect": (4, 0, "workflows/__main__.py"),
    "frameworks/apscheduler": (4, 0, "integrations/test_apscheduler.py"),
    "frameworks/django": (10, 1, "integrations/django/test_project.py"),
    "frameworks/dogpile": (1, 0, "integrations/test_dogpile.py"),
    "frameworks/fastapi": (
        5,
        1,
        "integrations/web/test_fastapi.py, integrations/web/test_servers.py",
    ),
    "frameworks/gunicorn-and-uvicorn": (1, 2, "integrations/web/test_servers.py"),
    "frameworks/kubernetes-and-systemd": (0, 1, "cli/test_orchestrated.py"),
    "howto": (13, 0, "test_docs.py"),
    "howto/at-most-n": (2, 2, "test_howtos.py"),
    "howto/cron": (0, 3, "test_howtos.py"),
    "howto/from-redis-py": (1, 2, "test_howtos.py"),
    "howto/one-result": (1, 3, "test_howtos.py"),
    "howto/orchestrator": (2, 3, "test_howtos.py, test_docs_servers.py"),
    "howto/per-customer": (2, 2, "test_howtos.py"),
    "howto/rebuild": (2, 3, "test_howtos.py"),
    "howto/scheduler": (1, 4, "test_howtos.py, test_docs_servers.py, test_docs_shell.py"),
    "howto/test-your-code": (2, 2, "test_howtos.py"),
    "howto/write-as-holder": (2, 2, "test_howtos.py"),
    "index": (1, 1, "test_docs_blocks.py, test_docs_shell.py"),
    "leading": (3, 1, "test_docs_blocks.py, test_docs_servers.py"),
    "metrics": (2, 0, "test_docs_blocks.py"),
    "moving": (1, 0, "test_docs_blocks.py"),
    "moving/tooz": (2, 0, "integrations/test_tooz.py"),
    "once": (2, 1, "test_docs_blocks.py, test_docs_servers.py"),
    "operating": (0, 1, "test_docs_shell.py"),
    "orchestrators": (2, 1, "test_docs_servers.py"),
    "safety": (1, 0, "test_docs_blocks.py"),
    "stores/blob": (1, 0, "test_docs_servers.py"),
    "stores/dynamodb": (2, 1, "test_docs_servers.py"),
    "stores/memory": (1, 0, "test_docs_blocks.py"),
    "stores/mysql": (1, 0, "test_docs_servers.py"),
    "stores/postgresql": (1, 0, "test_docs_servers.py"),
    "stores/redis": (2, 0, "test_docs_blocks.py, test_docs_servers.py"),
    "stores/sqlite": (1, 0, "test_docs_blocks.py"),
    "stores/your-own": (3, 0, "test_docs.py"),
    "tested": (0, 1, "test_docs_shell.py"),
    "testing": (3, 0, "test_docs_blocks.py"),
    "time": (1, 0, "test_docs_blocks.py"),
    "tutorial": (5, 1, "test_docs.py"),
}
# What these tests leave out, and why.
LEFT_OUT = {
    "pip install": "it would install a release over the one under test",
    "$ holdfast run nightly -- ./backup.sh\n⠙": "what a terminal shows: cli/test_terminal.py",
    "uvicorn app:app --workers 4": "as in gunicorn-and-uvicorn, which runs it with two workers",
    "aws dynamodb update-item": "there is no aws command here: fencing/test_shell.py sends the "
    "same request by boto3",
}  # fmt: skip


def counted(name: str) -> tuple[int, int]:
    """How many blocks a page has, in Python and for a shell."""
    found = re.findall(r"^ *```(python|sh|console|bash)\b", _text(name), re.MULTILINE)
    return found.count("python"), len(found) - found.count("python")


def _text(name: str) -> str:
    folder = ROOT if name == "README" else DOCS
    return (folder / f"{name}.md").read_text()


def test_every_block_has_its_test() -> None:
    """A block that is new needs a test that runs it, and then to be counted here."""
    pages = [path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")]
    found = {name: counted(name) for name in ("README", *pages)}
    with_code = {name: count for name, count in found.items() if count != (0, 0)}
    assert with_code == {name: (python, shell) for name, (python, shell, _) in RUN_BY.items()}


@pytest.mark.parametrize("name", RUN_BY)
def test_the_tests_of_a_page_are_there(name: str) -> None:
    """They exist and speak of it: by its name, or of all pages of a folder."""
    for test in RUN_BY[name][2].split(", "):
        text = (ROOT / "tests" / test).read_text()
        folder = f"docs/{name.rpartition('/')[0]}"
        assert name in text or f'"{folder}"' in text, f"{test} does not run {name}"


@pytest.mark.parametrize("beginning", LEFT_OUT)
def test_what_is_left_out_is_still_there(beginning: str) -> None:
    """An exception that nothing needs any more goes."""
    assert any(beginning in _text(name) for name in RUN_BY)


def lines(name: str, language: str = "sh") -> list[str]:
    """The commands of a page, without comments, prompts and output."""
    texts = page(name, language) if name != "README" else [_text(name).partition("```sh\n")[2]]
    found = [line for text in texts for line in text.partition("```")[0].splitlines()]
    if language == "console":
        found = [line[2:] for line in found if line.startswith("$ ")]
    return [line.partition("  #")[0].strip() for line in found if "pip install" not in line]


@pytest.mark.parametrize("name", ["README", "index"])
def test_the_first_commands(name: str, desk: Desk) -> None:
    """Any command runs under a lock."""
    desk.script("refresh.sh", "echo refreshed")
    for line in lines(name):
        assert desk.shell(line) in ("refreshed\n", "a backup\n")


def test_commands_for_operators(desk: Desk) -> None:
    """All of them, while a lock is held; two go on until they are stopped."""
    key = "pipeline:orders"
    with holdfast.connect(owner="ingestor") as locks, locks.acquire(key):
        for line in lines("operating"):
            if line.startswith("holdfast watch"):
                with desk.started(line, "ingestor"):
                    pass
            elif line.startswith("holdfast ui"):
                with desk.started(f"{line} --port 0", "the page is at"):
                    pass
            else:
                said = desk.shell(line)
                assert "all is well" in said if "doctor" in line else "ingestor" in said


def test_the_page_of_the_command_line(desk: Desk) -> None:
    """In order, on one store; a command that runs for ever is stopped."""
    for script in ("backup.sh", "report.sh"):
        desk.script(script, f"echo {script}")
    first, again, export, *rest = lines("cli", "console")
    assert first == again
    assert desk.shell(first) == "backup.sh\n"
    url = export.replace("/var/lib/app", str(desk.folder))
    for line in rest:
        if "watch" in line:
            with desk.names["locks"].acquire("nightly"), desk.started(line, '"change":"held"'):
                pass
        else:
            desk.shell(f"{url}; {line}")


def test_a_history_of_the_simulator(desk: Desk) -> None:
    """The page's seed breaks no rule."""
    (line,) = lines("tested")
    assert "seed 42" in line.replace("--seed ", "seed ")
    desk.shell(line)


def test_who_leads(desk: Desk) -> None:
    """The command of the how-to shows who."""
    with holdfast.connect(owner="first") as locks, locks.acquire("scheduler"):
        (line,) = [each for each in lines("howto/scheduler") if "show" in each]
        assert "first" in desk.shell(line)
