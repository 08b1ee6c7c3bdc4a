"""What a user gets: a wheel that holds the package alone and installs by itself, an import that is
light, a documented interface.
"""

import inspect
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import jaxshape as js

ROOT = Path(__file__).parent.parent
HEAVY = "matplotlib onnxruntime typer rich PIL scipy IPython jaxshape.ops jaxshape.cli".split()
PUBLIC = [name for name in dir(js) if not name.startswith("_")]


def run(*command: object, cwd: Path | None = None) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_import_is_light():
    # The extras too may be installed where jaxshape is imported: then they must not be looked at.
    code = f"import sys, jaxshape; print([m for m in {HEAVY} if m in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_the_import_sets_nothing():
    code = """
import jax
before = dict(jax.config.values)
import jaxshape as js
_ = [getattr(js, name) for name in dir(js)]
assert dict(jax.config.values) == before
"""
    run(sys.executable, "-c", code)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name):
    value = getattr(js, name)
    doc = inspect.getdoc(value) or ""
    if name != "Static":  # an annotation, described by `op`
        assert len(doc.split("\n")[0]) > 20, f"jaxshape.{name} has no docstring"
    if inspect.isfunction(value):
        assert ">>>" in doc, f"jaxshape.{name} has no example"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, cwd=ROOT)
    (made,) = out.glob("*.whl")
    return made


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    info = f"jaxshape-{js.__version__}.dist-info/"
    sources = {
        str(p.relative_to(ROOT))
        for p in (ROOT / "jaxshape").rglob("*")
        if p.suffix == ".py" or p.name == "py.typed"
    }
    assert {n for n in names if not n.startswith(info)} == sources
    assert info + "licenses/LICENSE" in names


@pytest.mark.slow
def test_the_wheel_installs_by_itself(wheel, tmp_path):
    """In a new environment what the wheel declares is enough to trace and run."""
    venv.create(tmp_path / "env", with_pip=True)
    folder = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    python = folder / "python"
    quiet = ("--quiet", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", *quiet, wheel)
    run(python, "-m", "pip", "check")
    assert "pip install 'jaxshape[cli]'" in refused(folder / "jaxshape")
    code = """
import numpy, onnx.parser, jaxshape as js
m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20]>
g (float[N, 4] x) => (float[N, 8] y) { y = Concat <axis = 1> (x, x) }''')
onnx.save(m, "m.onnx")
print(js.trace(m)["y"], js.run(m, {"x": numpy.ones((2, 4), "f")})["y"].shape)
"""
    assert run(python, "-c", code, cwd=tmp_path) == "float32[N, 8] (2, 8)\n"
    run(python, "-m", "pip", "install", *quiet, f"{wheel}[cli]")
    assert "float32[N, 8]" in run(folder / "jaxshape", "trace", "m.onnx", cwd=tmp_path)


def refused(command: Path) -> str:
    """What a command that fails by its command line's fault says."""
    done = subprocess.run([command], capture_output=True, text=True)
    assert done.returncode == 2
    return done.stderr
