"""The README tells the truth: its example prints what stands there, its table is the registry's.

`python tests/test_readme.py` (or `make docs`) puts both in anew.
"""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", re.S)
TABLE = re.compile(r"<!-- ops: begin -->\n\n(.*?)\n\n<!-- ops: end -->", re.S)


def printed(code: str) -> str:
    """What the example prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    return out.getvalue()


def table() -> str:
    """The table of operators, from a process of its own: tests register operators, too."""
    command = [sys.executable, "-m", "jaxshape", "ops", "--markdown"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()


def test_the_example_prints_what_it_says():
    text = README.read_text()
    ((code, output),) = EXAMPLE.findall(text)
    assert text.count("```python") == 1
    assert printed(code) == output, "make docs"


def test_the_table_of_operators_is_current():
    (written,) = TABLE.findall(README.read_text())
    release = ".".join(onnx.__version__.split(".")[:2])
    if f"onnx {release}." not in written:
        pytest.skip(f"the table is made with another onnx than {release}, whose standard differs")
    assert table() == written, "make docs"


def test_the_commands_that_it_names_are_there():
    named = set(re.findall(r"^    make ([\w-]+)", README.read_text(), re.M))
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert named and named <= set(targets)


if __name__ == "__main__":
    text = README.read_text()
    code, output = EXAMPLE.findall(text)[0]
    text = text.replace(f"```text\n{output}```", f"```text\n{printed(code)}```")
    text = TABLE.sub(lambda _: f"<!-- ops: begin -->\n\n{table()}\n\n<!-- ops: end -->", text)
    README.write_text(text)
