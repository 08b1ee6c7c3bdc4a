"""The notebooks run from first cell to last, and the text stored in them is what they print.

`python tests/test_notebooks.py` (or `make docs`) stores their outputs anew.
"""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def execute(path: Path) -> tuple[nbformat.NotebookNode, nbformat.NotebookNode]:
    """The notebook as it is stored, and as it is after running; a cell that raises ends it."""
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        fresh,
        timeout=300,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    fresh.metadata = stored.metadata  # not the patch version of this Python
    return stored, fresh


def printed(cell: nbformat.NotebookNode) -> list[str]:
    """What a cell prints or evaluates to, as text."""
    return [o.get("text") or o["data"]["text/plain"] for o in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_and_prints_what_is_stored(path):
    stored, fresh = execute(path)
    for before, after in zip(stored.cells, fresh.cells, strict=True):
        assert printed(after) == printed(before), before.source
        assert after.get("execution_count") == before.get("execution_count"), before.source


def test_the_notebooks_are_there():
    assert [p.stem for p in NOTEBOOKS] == ["add_an_op", "convert", "tour"]


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(execute(path)[1], path)
