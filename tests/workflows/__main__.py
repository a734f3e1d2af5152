"""Runs the code of docs/frameworks/airflow-and-prefect.md in environments of their own.

    python -m tests.workflows                 # installs both below the folder for temporary files
    python -m tests.workflows airflow --in /var/tmp/envs

For each: the page's code runs with a free lock, and then with one that somebody holds for a while.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.pages import code

ROOT = Path(__file__).parents[2]
PAGE = "frameworks/airflow-and-prefect.md"
PACKAGES = {
    "airflow": ["apache-airflow>=3"],
    "prefect": ["prefect>=3", "fastapi<0.130"],  # Prefect 3.8.8 fails with FastAPI 0.160
}
HEADINGS = {"airflow": "Airflow", "prefect": "Prefect"}
SCRIPTS = Path(__file__).parent

# What a reader of the page has.
REPORTING = """
def make_report(month, fence):
    with open("diary", "a") as diary:
        diary.write(f"{month} {fence}\\n")
    return month
"""


def environment_of(which: str, folder: Path) -> Path:
    """Returns the Python of an environment with the real thing and with Holdfast as it is here."""
    python = folder / which / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / which)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *PACKAGES[which]], check=True, timeout=1800)
    again = ["--force-reinstall", "--no-deps", str(ROOT)]
    subprocess.run([*install, *again], check=True, timeout=600)
    subprocess.run([*install, str(ROOT)], check=True, timeout=600)
    return python


def play(which: str, python: Path) -> None:
    """Run the script for this framework in a folder with the page's code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, *others = code(PAGE, HEADINGS[which])
        quick = first.replace("minutes=1)", "seconds=1)").replace("seconds=60)", "seconds=1)")
        assert quick != first
        dags = folder / "dags"  # Airflow imports all that is in there, the script must not be
        dags.mkdir()
        (dags / "page.py").write_text(quick)
        (folder / "others.py").write_text("\n".join(others))
        (folder / "reporting.py").write_text(REPORTING)
        (folder / "play.py").write_text((SCRIPTS / f"play_{which}.py").read_text())
        settings = {
            **os.environ,
            "HOLDFAST_URL": f"sqlite://{folder}/locks.db",
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "PYTHONPATH": f"{folder}:{dags}",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        subprocess.run([str(python), "play.py"], cwd=folder, env=settings, check=True, timeout=600)


def main() -> None:
    """Play what is asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="*", choices=[*PACKAGES, []], default=[])
    parser.add_argument("--in", dest="folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    for which in given.which or PACKAGES:
        play(which, environment_of(which, given.folder / "holdfast-workflows"))
        print(f"{which}: as the page says")  # noqa: T201


if __name__ == "__main__":
    main()
