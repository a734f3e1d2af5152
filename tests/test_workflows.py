"""The workflows: they can be read, and may do no more than they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import holdfast
from tests.extras.environments import PROJECT

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# By a major version, or by a commit.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})")


def read(path: Path) -> dict[str, Any]:
    """A workflow. (YAML reads the key `on` as true.)"""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    """All steps of all jobs."""
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_bounded(path: Path) -> None:
    """Nothing runs for hours, writes to the repository by default, or follows another's branch."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        assert (
            set(job.get("needs", [])) <= set(workflow["jobs"]) or job["needs"] in workflow["jobs"]
        )
    for step in steps_of(workflow):
        assert ("uses" in step) != ("run" in step), step
        assert PINNED.fullmatch(step.get("uses", "a/b@v1")), step
        if "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True, timeout=30)


def test_targets_of_make_exist() -> None:
    """What a workflow makes can be made."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        assert set(re.findall(r"\bmake ([\w-]+)", path.read_text())) <= targets, path


def test_the_tests_run_on_every_python_that_we_name() -> None:
    """The matrix and the classifiers say the same."""
    matrix = read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_publishing_is_trusted() -> None:
    """No secret is kept; one job may identify itself, it runs no code of ours, and only for a
    tag that is the version and was built and tried before."""
    path = ROOT / ".github/workflows/release.yml"
    assert "secrets." not in path.read_text()
    jobs = read(path)["jobs"]
    trusted = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert trusted == ["publish"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert all("run" not in step for step in publish["steps"])
    assert publish["needs"] == ["build", "try"]
    assert publish["if"] == "github.ref_type == 'tag'"
    assert publish["environment"]


def test_the_changelog_has_this_version() -> None:
    """As the workflow looks for it."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == holdfast.__version__
