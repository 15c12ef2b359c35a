"""The wheels: they are built, and work outside the repository, the zoo as an extra."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, folder: Path, code: int = 0) -> str:
    """What a command says, in an environment that knows nothing of the repository."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.long
def test_wheels_work_outside_the_repository(tmp_path):
    pip = (sys.executable, "-m", "pip")
    dist = tmp_path / "dist"
    run(*pip, "wheel", "--no-deps", "--quiet", "--wheel-dir", dist, ROOT, ROOT / "zoo", folder=tmp_path)
    [wheel], [zoo] = dist.glob("drasp-*.whl"), dist.glob("drasp_zoo-*.whl")
    names = {name for file in (wheel, zoo) for name in zipfile.ZipFile(file).namelist()}
    in_tree = [path for path in (ROOT / "src/drasp").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in in_tree} == {
        n for n in names if n.startswith("drasp/")
    }
    assert wheel.stat().st_size < zoo.stat().st_size / 5

    # An environment of its own, with all that is installed here but drasp.
    run(sys.executable, "-m", "venv", "--without-pip", "clean", folder=tmp_path)
    [packages] = (tmp_path / "clean").glob("lib/python*/site-packages")
    [ours] = {Path(path) for path in sys.path if path.endswith("site-packages")}
    for place in ours.iterdir():
        if "drasp" not in place.name and place.suffix != ".pth":
            (packages / place.name).symlink_to(place)
    python, drasp = tmp_path / "clean/bin/python", tmp_path / "clean/bin/drasp"
    install = (*pip, "--python", python, "install", "--no-deps", "--quiet")
    run(*install, wheel, folder=tmp_path)
    assert run(python, "-c", "import drasp; print(drasp.__file__)", folder=tmp_path).startswith(str(packages))
    assert run(drasp, "--version", folder=tmp_path).startswith("drasp ")
    decompile = (drasp, "decompile", "tomita2", "--quick", "--quiet", "--out", "result")
    assert "the zoo is not installed (pip install 'drasp[zoo]')" in run(*decompile, folder=tmp_path, code=1)
    run(*install, zoo, folder=tmp_path)
    assert "decompiled (complete): 2 lines" in run(*decompile, folder=tmp_path).splitlines()[-1]
    assert (tmp_path / "result/report.html").exists()
    assert "allows 0 where the token is 1" in run(drasp, "explain", "result", folder=tmp_path)
