"""The workflows: they can be read, and may do no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import holdfast
from tests.extras.environments import PROJECT

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# By a commit, with its version beside it: a tag can be moved by whoever gets hold of the action.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
VERSIONED = re.compile(r"uses: \S+ # v\d+\.\d+\.\d+\b")


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
        if "uses" in step:
            assert PINNED.fullmatch(step["uses"]), step
        else:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True, timeout=30)


def test_an_action_has_one_commit() -> None:
    """Which says its version, and is the same wherever it is used."""
    lines = [line for path in WORKFLOWS for line in path.read_text().splitlines()]
    uses = [line for line in lines if "uses: " in line]
    assert [line for line in uses if not VERSIONED.search(line)] == []
    commits = dict(re.findall(r"uses: (\S+)@(\S+)", "\n".join(uses)))
    assert all(f"{action}@{commit}" in "\n".join(uses) for action, commit in commits.items())
    assert len({line.partition("uses: ")[2].partition(" ")[0] for line in uses}) == len(commits)


def test_targets_of_make_exist() -> None:
    """What a workflow makes can be made."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        assert set(re.findall(r"\bmake ([\w-]+)", path.read_text())) <= targets, path


def test_the_tests_run_on_every_python_that_we_name() -> None:
    """The matrix and the classifiers say the same."""
    matrix = read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["python"][: len(named)] == named  # and perhaps one that we do not promise yet
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_publishing_is_trusted() -> None:
    """No secret is kept. The jobs that may identify themselves run no code of ours, and only for
    a tag that is the version, with what was built and tried before."""
    path = ROOT / ".github/workflows/release.yml"
    assert "secrets." not in path.read_text()
    jobs = read(path)["jobs"]
    trusted = {name: job for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert set(trusted) == {"publish", "attest"}
    for job in trusted.values():
        assert all("run" not in step for step in job["steps"])
        assert not any("checkout" in step["uses"] for step in job["steps"])
        assert job["needs"] == ["build", "try"]
        assert job["if"] == "github.ref_type == 'tag'"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"]
    assert jobs["attest"]["permissions"] == {"id-token": "write", "attestations": "write"}


def test_what_is_tried_is_what_is_published() -> None:
    """The files come from the job that built them."""
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    assert jobs["try"]["needs"] == ["build"]
    assert {"run": ".venv/bin/python -m tests.extras --dist dist"} in jobs["try"]["steps"]
    for name in ("try", "publish"):
        (fetched,) = [step for step in jobs[name]["steps"] if "download" in step.get("uses", "")]
        assert fetched["with"] == {"name": "dist", "path": "dist/"}


def release_notes(version: str) -> subprocess.CompletedProcess[str]:
    """What the workflow calls."""
    return subprocess.run(
        [sys.executable, "-m", "tools.release_notes", version],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_the_page_of_a_release() -> None:
    """It has what the changelog says of this version, and no link that leads nowhere."""
    made = release_notes(holdfast.__version__)
    assert made.returncode == 0, made.stderr
    assert "### Upgrading" in made.stdout
    assert "\n## " not in made.stdout
    assert re.findall(r"\]\((?!https?:)", made.stdout) == []
    assert release_notes("0.0.7").returncode == 1


def test_the_changelog_has_this_version() -> None:
    """As the workflow looks for it."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1] == holdfast.__version__
