"""The `jaxshape` command, also `python -m jaxshape`: the part that works without the `cli` extra.

0  done
1  the model or the run failed: one line on stderr says why (a JaxshapeError or the system's own);
   or `validate` found a difference: its report is on stdout
2  the command line is wrong, or the command line's packages are not installed
"""

import sys

EXTRA = ("rich", "typer")


def main(argv: list[str] | None = None) -> None:
    """Run the command line `argv` (the process's own if None); always leaves by SystemExit."""
    try:
        from jaxshape.cli import app
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in EXTRA:
            raise
        print(
            f"jaxshape: the command line needs {e.name}: pip install 'jaxshape[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    app(argv)


if __name__ == "__main__":
    main()
