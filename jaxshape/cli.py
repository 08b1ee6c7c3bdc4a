"""The command line: a thin layer that reads text and files, calls the public functions and prints.

Everything is computed before the first file is written, and each file appears whole or not at all:
it is written beside its place and then moved there.
"""

import functools
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import jaxshape as js
from jaxshape._array_files import flat, read_array, read_npz, write_arrays
from jaxshape._file import whole

app = typer.Typer(
    help="Trace, run and check ONNX models with JAX.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
Shapes = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=DIMS", help="An input's shape: x=batch,3,h,w (? is unknown)."),
]
Facts = Annotated[
    list[str] | None, typer.Option(metavar="FACT", help="What holds: 'h % 32 == 0', 'h >= 4'.")
]
Values = Annotated[
    list[str] | None,
    typer.Option(metavar="VALUE", help="Compute this value, and not the model's outputs."),
]
Device = Annotated[str | None, typer.Option(help="cpu or gpu; JAX's default if left out.")]
Seed = Annotated[int, typer.Option(help="Of what is drawn.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write it as JSON (- for stdout).")]
Html = Annotated[Path | None, typer.Option("--html", help="Write it as a page, without a network.")]


def command(function: Callable[..., None], status: int = 1) -> Callable[..., None]:
    """A command of `app`; what it foresees to fail is one line on stderr and this exit status."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = say
                function(*args, **kwargs)
        except (js.JaxshapeError, OSError) as e:
            typer.echo(f"jaxshape: {' '.join(str(e).split())}", err=True)
            raise typer.Exit(status) from None

    return app.command()(run)


def say(message: Warning | str, *_: Any) -> None:
    typer.echo(f"jaxshape: warning: {message}", err=True)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Print it.")] = False) -> None:
    if version:
        typer.echo(f"jaxshape {js.__version__}")
        raise typer.Exit


def pair(text: str, option: str) -> tuple[str, str]:
    """NAME=VALUE, split at the last `=`: a value's name may hold any character."""
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value


def parse_shape(text: str) -> tuple[int | str | None, ...]:
    """The dims that `text` lists, in brackets or not: numbers, names, expressions, ? for unknown.

    >>> parse_shape("batch, 3, max(h, w), ?")
    ('batch', 3, 'max(h, w)', None)
    >>> parse_shape("[1, 3]"), parse_shape("")
    ((1, 3), ())
    """
    text = text.strip().removeprefix("[").removesuffix("]")
    # A comma inside parentheses belongs to max(a, b) or min(a, b).
    dims, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            dims.append(text[start:i].strip())
            start = i + 1
    if text.strip():
        dims.append(text[start:].strip())
    return tuple(None if d in ("", "?") else int(d) if d.isdecimal() else d for d in dims)


def parse_shapes(items: list[str] | None) -> dict[str, tuple[int | str | None, ...]]:
    return {name: parse_shape(dims) for name, dims in (pair(s, "--shape") for s in items or ())}


def parse_size(text: str) -> tuple[str, int]:
    """A named dim and its size: batch=4."""
    name, size = pair(text, "--size")
    if not size.isdecimal():
        raise typer.BadParameter(f"{size!r} is not a size", param_hint="--size")
    return name, int(size)


# Files


def write(path: Path, content: bytes) -> None:
    """Write `content` to `path`, or to stdout where `path` is a dash."""
    if str(path) == "-":
        sys.stdout.buffer.write(content)
    else:
        with whole(path) as f:
            f.write(content)


def show(
    found: Any,
    text: str,
    title: str,
    json_file: Path | None,
    html_file: Path | None,
    files: Sequence[tuple[Path | None, bytes]] = (),
) -> None:
    """Write the files that were asked for, `found` itself as JSON and HTML, and print `text`."""
    wanted = [(path, content) for path, content in files if path]
    if html_file:
        wanted.append((html_file, page(title, found._repr_html_()).encode()))
    if json_file:
        wanted.append((json_file, json.dumps(found.to_json(), indent=1).encode() + b"\n"))
    for path, content in wanted:
        write(path, content)
    if all(str(path) != "-" for path, _ in wanted):
        typer.echo(text)


def page(title: str, body: str) -> str:
    """A whole HTML document around `body`."""
    title = title.replace("&", "&amp;").replace("<", "&lt;")
    return f'<!doctype html>\n<meta charset="utf-8">\n<title>{title}</title>\n{body}\n'


def read_arrays(items: list[str]) -> dict[str, np.ndarray]:
    """The arrays of `items`, each NAME=FILE.npy (or a tensor's .pb) or a FILE.npz of several."""
    arrays = {}
    for item in items:
        if item.endswith(".npz") and "=" not in item:
            arrays.update(read_npz(Path(item)))
        else:
            name, file = pair(item, "--input")
            arrays[name] = read_array(Path(file))
    return arrays


# Commands


@command
def trace(
    model: ModelFile,
    shape: Shapes = None,
    require: Facts = None,
    explain: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Print why this value has its shape, instead of all."),
    ] = None,
    json_file: Json = None,
    onnx_file: Annotated[
        Path | None, typer.Option("--onnx", help="Write the model with every value's shape.")
    ] = None,
    html_file: Html = None,
) -> None:
    """Print the dtype and shape of every value of MODEL."""
    shapes = parse_shapes(shape)
    loaded = js.load(model)
    try:
        traced = js.trace(loaded, shapes, requirements=list(require or ()))
    except js.JaxshapeError:
        raise
    except ValueError as e:
        raise typer.BadParameter(str(e)) from e
    text = "\n\n".join(str(traced.explain(name)) for name in explain or ()) or str(traced)
    onnx_bytes = traced.to_onnx().SerializeToString() if onnx_file else b""
    show(traced, text, loaded.name, json_file, html_file, [(onnx_file, onnx_bytes)])


@command
def run(
    model: ModelFile,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=NPY", help="x=x.npy, or an npz of several."),
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Draw the inputs that are not given.")
    ] = False,
    size: Annotated[
        list[str] | None, typer.Option(metavar="DIM=N", help="A size of what is drawn.")
    ] = None,
    seed: Seed = 0,
    value: Values = None,
    output: Annotated[
        Path | None, typer.Option(help="A file.npz, or a folder for an npy of each output.")
    ] = None,
    device: Device = None,
) -> None:
    """Run MODEL once and print a summary of its outputs.

    Files hold the outputs as they are, but for dtypes NumPy's files do not know: bfloat16 and
    the 8- and 4-bit floats are written as float32, the 4- and 2-bit integers as 8-bit ones.
    """
    loaded = js.load(model)
    feed, sizes = read_arrays(inputs or []), {}
    if random:
        drawn, sizes = draw(loaded, feed, dict(parse_size(s) for s in size or ()), seed)
        feed = drawn | feed
    arrays = flat(js.run(loaded, feed, outputs=value, device=device))
    if output:
        write_arrays(output, arrays)
    if sizes:
        typer.echo(f"at {', '.join(f'{name}={n}' for name, n in sizes.items())}")
    for name, array in arrays.items():
        typer.echo(f"{name}  {summary(array)}")


def draw(
    model: js.Model, feed: dict[str, np.ndarray], sizes: dict[str, int], seed: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """A random value for each input, beside those of `feed` at `sizes`; and the sizes drawn."""
    from ._draw import draw_inputs, draw_sizes

    rng = np.random.default_rng(seed)
    traced = js.trace(model, {name: array.shape for name, array in feed.items()})
    if sizes:
        traced = traced.at(**sizes)
    (drawn,) = draw_sizes(traced, 1, rng)
    return draw_inputs(traced, drawn, rng), drawn


def summary(array: np.ndarray) -> str:
    """The dtype and shape of `array`, and what its numbers are like.

    >>> summary(np.array([[1.0, 2.0, 6.0]], "f"))
    'float32[1, 3]  min 1, mean 3, max 6'
    """
    text = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
    if array.dtype.kind in "iuf" and array.size:
        text += f"  min {array.min():.6g}, mean {array.mean(dtype='d'):.6g}, max {array.max():.6g}"
    return text


@functools.partial(command, status=2)
def validate(
    model: ModelFile,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            "--inputs",
            metavar="NAME=NPY",
            help="As for run; or a test_data_set folder, whose outputs are then the reference. "
            "Drawn if left out.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(help="onnxruntime, onnx, or the file of another model. [onnxruntime]"),
    ] = None,
    device: Device = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Compare every value; name the node that differs.")
    ] = False,
    bindings: Annotated[int, typer.Option(min=1, help="Sizes to draw inputs at.")] = 2,
    seed: Seed = 0,
    json_file: Json = None,
    html_file: Html = None,
) -> None:
    """Compare MODEL's numbers with a reference's.

    Exit status: 0 where they agree, 1 where they differ, 2 where one of the two does not run.
    """
    from jaxshape._dataset import data_set

    loaded = js.load(model)
    feed, stored = None, {}
    for item in inputs or ():
        if "=" not in item and Path(item).is_dir():
            given, stored = data_set(loaded, Path(item))
        elif "=" in item or item.endswith(".npz"):
            given = read_arrays([item])
        else:
            text = f"{item!r} is neither NAME=NPY nor a folder that is there"
            raise typer.BadParameter(text, param_hint="--input")
        feed = (feed or {}) | given
    report = js.validate(
        loaded,
        feed,
        reference=reference or stored or "onnxruntime",
        device=device,
        bisect=bisect,
        bindings=bindings,
        seed=seed,
    )
    show(report, str(report), report.model, json_file, html_file)
    if not report.ok:
        raise typer.Exit(2 if report.error else 1)


@command
def export(
    model: ModelFile,
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="The file to write (- for stdout).")
    ],
    shape: Shapes = None,
    require: Facts = None,
    value: Values = None,
    dtype: Annotated[
        str | None, typer.Option(help="To compute in: bfloat16, float16, float32 or float64.")
    ] = None,
    bounded: Annotated[
        bool, typer.Option("--bounded", help="Compute sizes that are data at their bounds.")
    ] = False,
    platform: Annotated[
        list[str] | None,
        typer.Option(help="To run on: cpu, cuda, rocm, tpu; JAX's default if left out."),
    ] = None,
    weights: Annotated[
        str, typer.Option(help="constants: in the file; arguments: given at each call.")
    ] = "constants",
    x64: Annotated[
        bool, typer.Option("--x64", help="Keep 64-bit types; whoever calls it needs x64 too.")
    ] = False,
    mlir_file: Annotated[
        Path | None, typer.Option("--mlir", help="Write the StableHLO as text, too.")
    ] = None,
) -> None:
    """Write MODEL as StableHLO that a process without jaxshape can load and call, at many sizes.

    There: jax.export.deserialize(open(OUT, "rb").read()).call(x).
    """
    try:
        made = js.to_jax(model, dtype=dtype, outputs=value, bounded=bounded).export(
            parse_shapes(shape),
            requirements=require or (),
            platforms=platform,
            params=weights,
            x64=x64,
        )
    except js.JaxshapeError:
        raise
    except ValueError as e:
        raise typer.BadParameter(str(e)) from e
    try:
        content = bytes(made.serialize())
    except ImportError as e:
        raise js.JaxshapeError(f"{e}: pip install 'jaxshape[export]'") from e
    if mlir_file:
        write(mlir_file, made.mlir_module().encode())
    write(output, content)
    if str(output) != "-" and str(mlir_file) != "-":
        text = [
            ", ".join(a.str_short() for a in avals) for avals in (made.in_avals, made.out_avals)
        ]
        typer.echo(f"{text[0]} -> {text[1]}  for {', '.join(made.platforms)}")


@command
def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Describe this operator alone.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="Of this domain: ai.onnx, com.microsoft.")
    ] = None,
    opset: Annotated[int | None, typer.Option(help="NAME as in this opset.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the README shows it.")] = False,
) -> None:
    """List the operators by domain, or say what one takes and gives."""
    if name is not None:
        typer.echo(str(js.operator(name, opset, domain or "")))
        return
    from ._support import support, support_markdown, support_text

    found = support(domain)
    if not found:
        raise js.UnsupportedError(f"no operator of domain {domain!r} is known")
    typer.echo((support_markdown if markdown else support_text)(found))
