"""Files whose users would not see each other are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast import BadOption, Misconfigured
from holdfast.stores.sqlite import system
from holdfast.stores.sqlite.mounts import Mount, mount_of

LINE = "36 35 98:0 / {point} rw,noatime master:1 shared:7 - {kind} somewhere rw,errors=continue"


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the system tells of its mounts, for the test to fill."""
    told = tmp_path / "mountinfo"
    told.write_text("")
    monkeypatch.setattr(system, "MOUNTS", told)
    return told


def tell(mounted: Path, *found: tuple[object, str]) -> None:
    """These are mounted."""
    lines = [LINE.format(point=str(p).replace(" ", r"\040"), kind=kind) for p, kind in found]
    mounted.write_text("\n".join(lines) + "\n")


def test_the_nearest_mount(mounted: Path) -> None:
    """The deepest one counts, and of two in one place the later."""
    tell(mounted, ("/", "ext4"), ("/a b", "nfs4"), ("/a b", "xfs"), ("/a b/c", "tmpfs"), ("/", "x"))
    assert mount_of(Path("/a b/file")) == Mount(Path("/a b"), "xfs")
    assert mount_of(Path("/a b/c/d/file")) == Mount(Path("/a b/c"), "tmpfs")
    assert mount_of(Path("/a bc/file")) == Mount(Path("/"), "x")


def test_what_this_system_tells(tmp_path: Path) -> None:
    """Its own words are understood."""
    if system.MOUNTS.exists():
        mount = mount_of(tmp_path)
        assert mount is not None
        assert tmp_path.is_relative_to(mount.point)
        assert mount.kind


def test_a_system_that_tells_nothing(path: Path, mounted: Path) -> None:
    """There it is for the user to know."""
    mounted.unlink()
    holdfast.connect(f"sqlite://{path}").close()


def test_a_network_file_system(path: Path, mounted: Path) -> None:
    """Refused before anything is written, unless it is said that there is one machine only."""
    tell(mounted, ("/", "ext4"), (path.parent, "nfs4"))
    with pytest.raises(Misconfigured, match=r"network file system \(nfs4\).*one_machine"):
        holdfast.connect(f"sqlite://{path}")
    assert not path.exists()
    with holdfast.connect(f"sqlite://{path}?one_machine=yes") as locks, locks.acquire("k"):
        pass
    with pytest.raises(BadOption, match="one_machine"):
        holdfast.connect(f"sqlite://{path}?one_machine=perhaps")


def test_a_file_that_is_mounted_alone(path: Path, mounted: Path) -> None:
    """As into a container; also by way of a link to it."""
    tell(mounted, ("/", "overlay"), (path, "ext4"))
    link = path.with_name("link.db")
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(Misconfigured, match="mount its folder"):
            holdfast.connect(f"sqlite://{name}")
