"""The project on the page of the docs, run as people run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from tests.engines.base import free_port
from tests.engines.mariadb import MariaDB
from tests.engines.shared import shared
from tests.helpers import until
from tests.integrations.django.project import Project
from tests.pages import code

# Django asks for mysqlclient, which has to be compiled.
INSTEAD_OF_MYSQLCLIENT = """
import pymysql
pymysql.version_info, pymysql.__version__ = (2, 2, 7, "final", 0), "2.2.7"
pymysql.install_as_MySQLdb()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The project, with its locks beside its SQLite database."""
    return Project(tmp_path)


def locks_of(project: Project) -> holdfast.Locks:
    """Another program that uses the locks of the project."""
    return holdfast.connect(f"sqlite://{project.folder}/db.sqlite3.locks")


def test_a_command(project: Project) -> None:
    """It runs, and is skipped while another one runs; options on the command line count."""
    ran = project.manage("import_orders")
    assert (ran.returncode, ran.stdout) == (0, "first\nsecond\n"), ran.stderr
    with locks_of(project) as locks, locks.acquire("import_orders:all"):
        ran = project.manage("import_orders")
        assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
        assert "Skipped: " in ran.stderr
        assert project.manage("import_orders", "--lock-busy", "fail").returncode == 75


def test_a_command_that_is_ended(project: Project) -> None:
    """SIGTERM, as from a container's runtime, frees the lock at once."""
    running = subprocess.Popen(
        project.command("import_orders", "--shop", "endless"),
        cwd=project.folder, env=project.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(project.diary, 60)
        with locks_of(project) as locks:
            assert not locks.show("import_orders:endless").free
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 143
            assert locks.show("import_orders:endless").free
    finally:
        running.kill()
        running.wait(20)


def test_the_command_line(project: Project) -> None:
    """`manage.py holdfast` is that of Holdfast, on the store of the settings."""
    with locks_of(project) as locks, locks.acquire("import_orders:all", owner="me"):
        listed = project.manage("holdfast", "ls", "--json")
        assert json.loads(listed.stdout.splitlines()[0])["key"] == "import_orders:all", listed
        ran = project.manage("holdfast", "run", "import_orders:all", "--busy", "fail", "--", "true")
        assert ran.returncode == 75, ran.stderr
    for line in code("frameworks/django.md", "Looking at the locks", "sh")[0].splitlines():
        assert line.startswith("python manage.py holdfast ")


def test_mysql(tmp_path: Path) -> None:
    """The locks of a project in MariaDB are in its database."""
    server = shared(MariaDB)
    database = {
        "ENGINE": "django.db.backends.mysql", "NAME": "holdfast", "USER": "root",
        "HOST": "127.0.0.1", "PORT": server.port, "OPTIONS": {"charset": "utf8mb4"},
    }  # fmt: skip
    project = Project(tmp_path, database=database)
    project.write("shop/__init__.py", INSTEAD_OF_MYSQLCLIENT)
    with holdfast.connect(server.url()) as locks, locks.acquire("import_orders:all"):
        assert "Skipped: " in project.manage("import_orders").stderr
    checked = project.manage("check", "--database", "default")
    assert checked.returncode == 0, checked.stderr


def test_pytest_django(project: Project) -> None:
    """The tests of the page, and more of ours."""
    inner = Path(__file__).with_name("inner_tests.py")
    project.write("test_inner.py", inner.read_text())
    more = ["-p", "no:cacheprovider", "-p", "no:pytest-mops", "-p", "no:valkey", "-W", "error"]
    ran = project.run(sys.executable, "-m", "pytest", "-q", *more, ".")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout or "5 passed, 1 skipped" in ran.stdout


def test_djangos_own_runner(tmp_path: Path) -> None:
    """The tests of the page, with `override_settings`, and ours with ATOMIC_REQUESTS."""
    atomic = "DATABASES['default']['ATOMIC_REQUESTS'] = True\n"
    project = Project(tmp_path, more_settings=atomic)
    inner = Path(__file__).with_name("inner_atomic.py")
    project.write("shop/test_atomic.py", inner.read_text())
    ran = project.manage("test", "shop")
    assert ran.returncode == 0, ran.stderr
    assert "Ran 3 tests" in ran.stderr


@contextmanager
def serving(project: Project, *command: str) -> Iterator[None]:
    """Run a server in the project's folder, and end it with all its processes."""
    log = project.folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=project.folder, env=project.environment, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(20)


def fetch(url: str) -> tuple[int, bytes]:
    """Returns the status and the body at an address, or 0 if nobody is there."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()
    except OSError:
        return 0, b""


def test_gunicorn_with_preload(project: Project) -> None:
    """Two workers, forked after the locks were used, never make a report at the same time."""
    address = f"127.0.0.1:{free_port()}"
    gunicorn = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--threads", "2"]
    with serving(project, *gunicorn, "--bind", address, "--timeout", "120", "shop.wsgi"):
        url = f"http://{address}/rebuild/may/"
        until(lambda: fetch(url)[0] == 200, 60)
        said: set[int] = set()
        with ThreadPoolExecutor(8) as clients:
            until(lambda: said.update(_statuses(clients, url)) or _workers(project) == 2, 60)  # type: ignore[func-returns-value]
    assert said <= {200, 409}
    words = [line.split() for line in project.diary()]
    assert [what for what, _ in words] == ["begin", "end"] * (len(words) // 2)
    assert [by for _, by in words[::2]] == [by for _, by in words[1::2]]


def _statuses(clients: ThreadPoolExecutor, url: str) -> set[int]:
    return {status for status, _ in clients.map(fetch, [url] * 8)}


def _workers(project: Project) -> int:
    return len({line.split()[1] for line in project.diary()})


def test_runserver(project: Project) -> None:
    """The development server, before and after it has loaded the project anew."""
    address = f"127.0.0.1:{free_port()}"
    with serving(project, *project.command("runserver", address)):
        url = f"http://{address}/rebuild/may/"
        until(lambda: fetch(url)[0] == 200, 60)

        def loaded_anew() -> bool:  # the autoreloader ends the process, and starts another
            if fetch(url)[0] == 200 and _workers(project) == 1:
                project.write("shop/views.py", "\n")
            return _workers(project) > 1

        until(loaded_anew, 60)
        with locks_of(project) as locks, locks.acquire("report:may"):
            until(lambda: fetch(url)[0] == 409, 60)
