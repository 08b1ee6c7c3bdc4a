"""The command line as a user types it."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from builders import model

from jaxshape.__main__ import main

NET = """
net (float[N, 4] x, float[4, M] w) => (float[N, M] y, float[M] total) {
    p = MatMul(x, w)
    y = Relu(p)
    axes = Constant<value_ints: ints = [0]>()
    total = ReduceSum<keepdims: int = 0>(y, axes)
}
"""

COMMANDS = ("trace", "run", "validate", "export", "ops")


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(model(NET), path)
    return str(path)


@pytest.fixture
def cli(capsys):
    """Run one command line -> (exit status, stdout, stderr)."""

    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in args])
        code = stop.value.code
        out, err = capsys.readouterr()
        return (code if isinstance(code, int) else 0), out, err

    return run


def test_trace_prints_every_value(cli, net):
    code, out, err = cli("trace", net)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for name, dims in (("p", "[N, M]"), ("y", "[N, M]"), ("total", "[M]")):
        assert any(name in line.split() and f"float32{dims}" in line for line in lines), (name, out)


def test_trace_takes_shapes_and_requirements(cli, net):
    code, out, _ = cli("trace", net, "--shape", "x=batch, 4", "--require", "batch % 8 == 0")
    assert code == 0
    assert "float32[batch, M]" in out and "batch % 8 == 0" in out


def test_trace_explains(cli, net):
    code, out, err = cli("trace", net, "--explain", "total", "--explain", "y")
    assert (code, err) == (0, "")
    assert out.startswith("total: float32[M]\n") and "\n\ny: float32[N, M]\n" in out


def test_trace_writes_files(cli, net, tmp_path):
    paths = {kind: tmp_path / f"t.{kind}" for kind in ("json", "onnx", "html")}
    code, _, err = cli("trace", net, *(x for k, p in paths.items() for x in (f"--{k}", p)))
    assert (code, err) == (0, "")
    assert "total" in json.dumps(json.loads(paths["json"].read_text()))
    infos = {v.name: v.type.tensor_type for v in onnx.load(paths["onnx"]).graph.value_info}
    assert [d.dim_param for d in infos["p"].shape.dim] == ["N", "M"]
    page = paths["html"].read_text()
    assert page.startswith("<!doctype html>") and "total" in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "t.html", "t.json", "t.onnx"]


def test_json_to_stdout_is_nothing_but_json(net):
    done = subprocess.run(
        [sys.executable, "-m", "jaxshape", "trace", net, "--json", "-"],
        capture_output=True,
        check=True,
    )
    json.loads(done.stdout)


@pytest.mark.parametrize("place", ["out.npz", "out"])
def test_run_reads_and_writes_arrays(cli, net, tmp_path, place):
    x, w = np.eye(4, dtype="f"), np.arange(-4, 8, dtype="f").reshape(4, 3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "rest.npz", w=w)
    code, out, err = cli(
        "run", net, "--input", f"x={tmp_path / 'x.npy'}", "--input", tmp_path / "rest.npz",
        "--output", tmp_path / place,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "y  float32[4, 3]" in out and "total  float32[3]" in out
    if place.endswith("npz"):
        y = np.load(tmp_path / place)["y"]
    else:
        y = np.load(tmp_path / place / "y.npy")
    np.testing.assert_array_equal(y, np.maximum(w, 0))


def test_run_draws_the_same_inputs_from_the_same_seed(cli, net):
    drawn = ("run", net, "--random", "--size", "N=5", "--size", "M=3")
    first, again, other = cli(*drawn), cli(*drawn), cli(*drawn, "--seed", "1")
    assert first[0] == 0 and first == again and first != other
    assert "y  float32[5, 3]" in first[1]


def test_run_draws_what_is_not_given(cli, net, tmp_path):
    np.save(tmp_path / "w.npy", np.ones((4, 3), "f"))
    code, out, err = cli("run", net, "--random", "--input", f"w={tmp_path / 'w.npy'}")
    assert (code, err) == (0, "")
    n = re.search("^at N=([0-9]+)$", out, re.M)
    assert n and f"y  float32[{n[1]}, 3]" in out


def test_validate_reports(cli, net, tmp_path):
    page, data = tmp_path / "r.html", tmp_path / "r.json"
    code, out, err = cli(
        "validate", net, "--reference", "onnx", "--bisect", "--html", page, "--json", data
    )
    assert (code, err) == (0, "") and "agrees with onnx" in out
    assert json.loads(data.read_text())["ok"]
    assert "total" in page.read_text()


def test_validate_exits_with_1_on_a_difference(cli, net, monkeypatch):
    from jaxshape._op import select

    relu = select("", "Relu", 20)
    assert relu is not None
    monkeypatch.setattr(relu, "function", lambda x, /: x + 1)
    code, out, err = cli("validate", net, "--reference", "onnx", "--seed", "2")
    assert (code, err) == (1, "") and "DIFFERS" in out and "first to differ: Relu -> y" in out


def test_validate_exits_with_2_where_it_does_not_run(cli, net, monkeypatch):
    from jaxshape._op import select

    relu = select("", "Relu", 20)
    monkeypatch.setattr(relu, "function", lambda x, /: 1 // 0)
    code, out, err = cli("validate", net, "--reference", "onnx")
    assert (code, err) == (2, "") and "ZeroDivisionError" in out


def test_run_computes_values_in_place_of_the_outputs(cli, net, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.eye(4, dtype="f"), w=-np.ones((4, 3), "f"))
    code, out, err = cli("run", net, "--input", tmp_path / "in.npz", "--value", "p", "--value", "x")
    assert (code, err) == (0, "")
    assert [line.split("  ")[0] for line in out.splitlines()] == ["p", "x"] and "min -1" in out


@pytest.mark.parametrize(("scale", "code"), [(1, 0), (1.01, 1)])
def test_validate_takes_test_data(cli, net, tmp_path, scale, code):
    from onnx.numpy_helper import from_array

    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    x, w = np.ones((2, 4), "f"), np.ones((4, 3), "f")
    y = np.full((2, 3), 4 * scale, "f")
    for name, a in {"input_0": x, "input_1": w, "output_0": y, "output_1": y.sum(0)}.items():
        (folder / f"{name}.pb").write_bytes(from_array(a).SerializeToString())
    got, out, err = cli("validate", net, "--inputs", folder)
    assert (got, err) == (code, "") and "stored outputs" in out
    got, out, err = cli("validate", net, "--inputs", folder, "--reference", net)
    assert (got, err) == (0, "") and f"agrees with {net}" in out
    one = f"x={folder / 'input_0.pb'}", "--input", f"w={folder / 'input_1.pb'}"
    assert cli("validate", net, "--input", *one, "--reference", "onnx")[0] == 0


def test_export_writes_what_jax_can_call(cli, net, tmp_path):
    from jax import export

    out, text = tmp_path / "net.bin", tmp_path / "net.mlir"
    code, told, err = cli(
        "export", net, out, "--shape", "x=batch,4", "--require", "batch % 2 == 0",
        "--platform", "cpu", "--platform", "cuda", "--mlir", text,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert told == (
        "float32[2*batch_2,4], float32[4,M] -> float32[2*batch_2,M], float32[M]  for cpu, cuda\n"
    )
    assert "stablehlo" in text.read_text()
    w = np.arange(-4, 8, dtype="f").reshape(4, 3)
    y, total = export.deserialize(out.read_bytes()).call(np.eye(4, dtype="f"), w)
    np.testing.assert_array_equal(y, np.maximum(w, 0))
    np.testing.assert_array_equal(total, np.maximum(w, 0).sum(0))


def test_export_of_a_part_in_another_precision(cli, net, tmp_path):
    out = tmp_path / "net.bin"
    code, told, err = cli("export", net, out, "--value", "y", "--dtype", "bfloat16")
    assert (code, err) == (0, "")
    assert told == "float32[N,4], float32[4,M] -> bfloat16[N,M]  for cpu\n"


def test_export_of_what_is_data(cli, tmp_path):
    from jax import export

    onnx.save(model("g (float[4] x) => (int64[1, C] y) { y = NonZero (x) }"), tmp_path / "m.onnx")
    code, _, err = cli("export", tmp_path / "m.onnx", tmp_path / "m.bin")
    assert code == 1 and "bounded" in err
    code, _, err = cli("export", tmp_path / "m.onnx", tmp_path / "m.bin", "--bounded")
    assert (code, err) == (0, "")
    called: Any = export.deserialize((tmp_path / "m.bin").read_bytes()).call(
        np.eye(4, dtype="f")[1]
    )
    assert {n: np.asarray(v).tolist() for n, v in called.items()} == {
        "array": [[1, 0, 0, 0]],
        "count": 1,
        "overflow": False,
    }


def test_export_says_what_to_install(cli, net, tmp_path, monkeypatch):
    from jax import export

    def serialize(self):
        raise ImportError("no flatbuffers")

    monkeypatch.setattr(export.Exported, "serialize", serialize)
    code, told, err = cli("export", net, tmp_path / "net.bin", "--mlir", tmp_path / "net.mlir")
    assert (code, told) == (1, "") and err.endswith("pip install 'jaxshape[export]'\n")
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_ops_lists_and_describes(cli):
    code, out, err = cli("ops")
    assert (code, err) == (0, "")
    assert re.search(r"^ +Softmax +activation +1 11 13$", out, re.M)
    assert cli("ops", "--domain", "ai.onnx.preview")[1].startswith("ai.onnx.preview: 1 operator\n")
    code, out, _ = cli("ops", "Flatten", "--opset", "9")
    assert code == 0 and "Flatten (opset 9)" in out and "axis=1" in out


def test_ops_shows_what_is_not_supported(monkeypatch):
    from jaxshape import _support

    monkeypatch.setattr(_support, "registered", lambda: [])
    monkeypatch.setattr(_support, "select", lambda *key: None)
    found = _support.support("ai.onnx.preview.training")
    assert _support.support_text(found).startswith("ai.onnx.preview.training: 0 of 4 operators")
    assert _support.support_markdown(found).endswith("ai.onnx.preview.training: 0 of 4 operators.")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("trace missing.onnx", 1, "missing.onnx"),
        ("trace NET --shape q=1,4", 1, "q"),
        ("trace NET --shape x=N,5", 1, "5"),
        ("trace NET --shape 1,4", 2, "NAME=VALUE"),
        ("trace NET --require N%%", 2, "N%%"),
        ("trace NET --explain q", 1, "q"),
        ("trace NET --json no/such/folder/t.json", 1, "no/such/folder/t.json'"),
        ("run NET --random --size Q=2", 1, "'Q'"),
        ("run NET --random --size N=x", 2, "'x'"),
        ("run NET --input x=missing.npy", 1, "missing.npy"),
        (f"run NET --input x={__file__}", 1, "no npy file"),
        (f"run NET --input {__file__}.npz", 1, "test_cli.py.npz"),
        ("run NET --random --value q", 1, "'q'"),
        ("run NET", 1, "x"),
        ("validate NET --inputs no/such/folder", 2, "nor a folder"),
        ("validate NET --reference nobody", 2, "nobody"),
        ("validate missing.onnx", 2, "missing.onnx"),
        ("export NET no/such/folder/net.bin", 1, "no/such/folder"),
        ("export NET net.bin --shape q=1,4", 1, "'q'"),
        ("export NET net.bin --weights none", 2, "'none'"),
        ("export NET net.bin --dtype int8", 1, "int8"),
        ("export NET net.bin --value q", 1, "'q'"),
        ("export NET net.bin --platform abacus", 2, "abacus"),
        ("ops --domain nobody", 1, "nobody"),
        ("ops Flattn", 1, "Flatten"),
        ("walk NET", 2, "walk"),
    ],
)
def test_failures_are_told_in_one_line(cli, net, line, code, words):
    got, out, err = cli(*(net if a == "NET" else a for a in line.split()))
    assert (got, out) == (code, "")
    assert words in err and "Traceback" not in err
    if not err.startswith("Usage"):
        assert err.startswith("jaxshape: ") and err.count("\n") == 1


def test_a_failed_write_leaves_the_old_file(cli, net, tmp_path):
    kept, folder = tmp_path / "t.html", tmp_path / "folder"
    kept.write_text("old")
    folder.mkdir()
    assert cli("trace", net, "--shape", "x=N,5", "--html", kept)[0] == 1
    assert cli("trace", net, "--json", folder)[0] == 1
    assert kept.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "net.onnx", "t.html"]


def test_a_link_and_a_pipe_stay_what_they_are(tmp_path):
    from jaxshape.cli import write

    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    target.write_text("old")
    link.symlink_to(target)
    write(link, b"new")
    assert link.is_symlink() and target.read_text() == "new"

    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, b"new")
    assert pipe.is_fifo() and os.read(reader, 9) == b"new"
    os.close(reader)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "target"]


def test_output_names_stay_in_the_folder(tmp_path):
    from jaxshape.cli import write_arrays

    one = np.ones(1)
    write_arrays(tmp_path / "out", {"../../a": one, "/b": one, "_b": one, "file": one})
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["_._.._a.npy", "_b.npy", "_b_.npy", "file.npy"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("argv", [["--help"], *([c, "--help"] for c in COMMANDS)])
def test_help(cli, argv):
    code, out, _ = cli(*argv)
    assert code == 0 and "Usage" in out


def test_without_the_extra_it_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; from jaxshape.__main__ import main; main([])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("pip install 'jaxshape[cli]'")
