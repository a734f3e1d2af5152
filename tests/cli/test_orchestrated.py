"""The CronJob, the Deployment and the systemd units of the docs: their commands run as written."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import holdfast
from tests.helpers import until
from tests.pages import code

PAGE = "frameworks/kubernetes-and-systemd.md"
PROGRAM = str(Path(sys.executable).parent / "holdfast")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The store in the environment, and a report that says who it is run by."""
    report = tmp_path / "report"
    report.write_text('#!/bin/sh\necho "$HOLDFAST_KEY $HOLDFAST_FENCE" >> "$DIARY"\necho ran\n')
    report.chmod(0o755)
    return {
        "PATH": f"{Path(PROGRAM).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "DIARY": str(tmp_path / "diary"),
        "HOLDFAST_URL": f"sqlite://{tmp_path}/locks.db",
    }


def localised(text: str, folder: Path) -> str:
    """The text of a page with the paths of this machine."""
    text = text.replace("/usr/bin/holdfast", PROGRAM).replace("/opt/app/report", f"{folder}/report")
    text = text.replace("/etc/holdfast.env", f"{folder}/holdfast.env")
    return text.replace("/shared/reports", f"{folder}/reports")


def seconds(words: list[str], flag: str) -> int:
    """The value of a flag that is a duration in seconds."""
    return int(words[words.index(flag) + 1].removesuffix("s"))


def container_of(manifest: dict[str, Any]) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Returns the pod, the command and the environment that Kubernetes makes of a manifest."""
    spec = manifest["spec"]
    pod = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {"secretKeyRef": "the store's URL", "fieldRef": "the-pod"}
    variables = {one["name"]: given[next(iter(one["valueFrom"]))] for one in container["env"]}
    return pod, [*container["command"], *container["args"]], variables


def test_the_cron_job(environment: dict[str, str], tmp_path: Path) -> None:
    """Its command runs the report under the lock, as the pod, and skips it while others have it."""
    (text,) = code(PAGE, "Kubernetes CronJob", "yaml")
    manifest = yaml.safe_load(localised(text, tmp_path))
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "CronJob")
    pod, command, variables = container_of(manifest)
    assert set(variables) == {"HOLDFAST_URL", "HOLDFAST_RUN_OWNER"}
    assert pod["terminationGracePeriodSeconds"] > seconds(command, "--grace")
    assert all(isinstance(word, str) for word in command)
    environment["HOLDFAST_RUN_OWNER"] = variables["HOLDFAST_RUN_OWNER"]
    assert run(command, environment).stdout == "ran\n"
    with holdfast.connect(environment["HOLDFAST_URL"]) as locks, locks.acquire("nightly-report"):
        skipped = run(command, environment)
    assert (skipped.returncode, skipped.stdout) == (0, "")
    assert len((tmp_path / "diary").read_text().splitlines()) == 1


def test_the_deployment(environment: dict[str, str], tmp_path: Path) -> None:
    """One of two pods leads; the other one follows when it is deleted."""
    (text,) = code(PAGE, "Kubernetes Deployment of which one pod is active", "yaml")
    manifest = yaml.safe_load(text)
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"] == labels
    pod, command, variables = container_of(manifest)
    assert set(variables) == {"HOLDFAST_URL", "HOLDFAST_LEAD_OWNER"}
    assert pod["terminationGracePeriodSeconds"] > seconds(command, "--grace")
    command = ["sleep" if word == "/opt/app/scheduler" else word for word in command] + ["300"]
    pods: dict[str, subprocess.Popen[bytes]] = {}
    with holdfast.connect(environment["HOLDFAST_URL"]) as locks:

        def leads(name: str) -> bool:
            leader = locks.leader("scheduler")
            return leader is not None and leader.owner == name

        try:
            for name in ("one", "two"):
                settings = {**environment, "HOLDFAST_LEAD_OWNER": name}
                pods[name] = subprocess.Popen(command, env=settings)
                until(lambda: leads("one"), 60)
            until(lambda: locks.show("scheduler").waiters, 60)
            pods["one"].send_signal(signal.SIGTERM)
            pods["one"].wait(60)
            until(lambda: leads("two"), 60)
            pods["two"].send_signal(signal.SIGTERM)
            pods["two"].wait(60)
        finally:
            for process in pods.values():
                process.kill()
                process.wait(10)


def test_the_units(environment: dict[str, str], tmp_path: Path) -> None:
    """systemd accepts them, and the service's command runs the report."""
    units = [localised(text, tmp_path) for text in code(PAGE, "systemd timer", "ini")]
    for kind, text in zip(("service", "timer"), units, strict=True):
        (tmp_path / f"report.{kind}").write_text(text)
    (tmp_path / "holdfast.env").write_text(f"HOLDFAST_URL={environment['HOLDFAST_URL']}\n")
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(units[0])
    service = parsed["Service"]
    command = shlex.split(service["ExecStart"])
    assert int(service["TimeoutStopSec"]) > seconds(command, "--grace")
    assert run(command, environment).stdout == "ran\n"
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:  # it is not in every container; the rest above holds without it
        verified = subprocess.run(
            [analyze, "verify", "--man=no", "report.service", "report.timer"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        ours = [line for line in verified.stderr.splitlines() if "report." in line]
        assert (verified.returncode, ours) == (0, [])


def test_once_a_night(environment: dict[str, str], tmp_path: Path) -> None:
    """Two machines, one run, and the same output for both."""
    (line,) = code(PAGE, "Once a night, and not once on each machine", "sh")
    command = ["/bin/sh", "-c", localised(line, tmp_path).replace("date +%F", "echo tonight")]
    (tmp_path / "reports").mkdir()
    assert [run(command, environment).stdout for _ in "ab"] == ["ran\n"] * 2
    assert len((tmp_path / "diary").read_text().splitlines()) == 1


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, cwd=os.sep
    )
