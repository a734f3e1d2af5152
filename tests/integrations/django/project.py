"""A Django project in a folder, made of the code on the page of the docs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from tests.pages import DOCS

PAGE = DOCS / "frameworks" / "django.md"

# What a reader of the page has: a project, and functions of its own.
THEIRS = {
    "manage.py": """
        import os, sys
        from django.core.management import execute_from_command_line
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
        execute_from_command_line(sys.argv)
    """,
    "shop/__init__.py": "",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/wsgi.py": """
        import os
        from django.core.wsgi import get_wsgi_application
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
        application = get_wsgi_application()
        from shop.views import locks
        with locks.acquire("used before anything forks"):
            pass
    """,
    "shop/settings.py": """
        SECRET_KEY = "not one"
        ALLOWED_HOSTS = ["*"]
        ROOT_URLCONF = "shop.urls"
        DATABASES = {database}
    """,
    "shop/urls.py": """
        from django.urls import path
        from shop import more_views, views
        urlpatterns = [
            path("rebuild/<month>/", views.rebuild),
            path("status/<month>/", views.status),
            path("invoice/<customer>/", more_views.invoice),
            path("import/", more_views.Import.as_view()),
            path("stock/<item>/", more_views.Stock.as_view()),
            path("running/<customer>/", more_views.is_running),
        ]
    """,
    "shop/reports.py": """
        import os, time

        def note(what):
            with open("diary", "a") as diary:
                diary.write(f"{what} {os.getpid()}\\n")

        def make_report(month, fence):
            note("begin")
            time.sleep(0.05)
            note("end")
            return {"by": os.getpid(), "fence": fence}

        async def send_invoice(customer):
            note(f"invoice {customer}")

        def pages(shop):
            yield "first"
            if shop == "endless":
                note("endless")
                time.sleep(100)
            yield "second"
    """,
}


class Project:
    """The folder, and what can be run in it."""

    def __init__(self, folder: Path, *, database: Any = None, more_settings: str = "") -> None:
        self.folder = folder
        database = database or {
            "ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db.sqlite3"),
        }  # fmt: skip
        for name, text in THEIRS.items():
            text = text.replace("{database}", repr({"default": database}))
            self.write(name, textwrap.dedent(text))
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
            first = re.match(r"# (\S+\.py)\n", block)
            assert first is not None, f"Which file is this?\n{block}"
            self.write(first[1], block)
        self.write("shop/settings.py", more_settings)

    def write(self, name: str, text: str) -> None:
        """Add to a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    @property
    def environment(self) -> dict[str, str]:
        """For programs that run in the folder."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONPATH": str(self.folder),
        }

    def command(self, *words: str) -> list[str]:
        """A command of `manage.py`."""
        return [sys.executable, "manage.py", *words]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the folder to its end."""
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=100,
        )  # fmt: skip

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `manage.py` to its end."""
        return self.run(*self.command(*words))

    def diary(self) -> list[str]:
        """What the project's own functions have noted."""
        path = self.folder / "diary"
        return path.read_text().splitlines() if path.exists() else []
