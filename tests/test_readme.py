"""The README tells the truth: its example prints what stands there, its table is the registry's."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_prints_what_it_says():
    found = re.findall(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", README, re.S)
    assert len(found) == README.count("```python") == 1
    code, text = found[0]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})
    assert out.getvalue() == text


def test_the_table_of_operators_is_current():
    (table,) = re.findall(r"<!-- ops: begin -->\n(.*?)\n<!-- ops: end -->", README, re.S)
    release = ".".join(onnx.__version__.split(".")[:2])
    if f"onnx {release}." not in table:
        pytest.skip(f"the table is made with another onnx than {release}, whose standard differs")
    # In a process of its own: tests register operators, too.
    done = subprocess.run(
        [sys.executable, "-m", "jaxshape", "ops", "--markdown"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == table.strip(), "put in what `jaxshape ops --markdown` prints"


def test_the_commands_that_it_names_are_there():
    named = set(re.findall(r"^    make ([\w-]+)", README, re.M))
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    assert named and named <= set(re.findall(r"^([\w-]+):", makefile, re.M))
