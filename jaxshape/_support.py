"""Which operators are there: what `jaxshape ops` prints and the table in the README.

A version of the standard is supported where a registered form answers for it (each serves until
the next one: most versions change only the types that are allowed) or the standard gives a
function body. Operators of other domains have the versions that are registered.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import onnx.defs

from ._describe import load_ops, versions_of
from ._op import registered, select
from ._schema import schema
from .show.text import table

DEFAULT = "ai.onnx"  # how the domain "" is shown
_MANY = 40  # operators: more of them are listed by letter


@dataclasses.dataclass(frozen=True)
class Support:
    """One operator: the versions that work, and the module of `jaxshape.ops` that it is in.

    `versions` is empty for an operator of the standard that is not supported; `first` is the
    standard's first version, where that is not among them.
    """

    domain: str
    name: str
    versions: tuple[int, ...]
    family: str = ""
    first: int | None = None


def support(domain: str | None = None) -> list[Support]:
    """Every operator, registered or of the standard, sorted by domain and name.

    >>> [(s.name, s.versions, s.family) for s in support("ai.onnx") if s.name == "Softmax"]
    [('Softmax', (1, 11, 13), 'activation')]
    """
    load_ops()
    standard = {(s.domain, s.name) for s in onnx.defs.get_all_schemas()}
    names = standard | {(v.domain, v.name) for v in registered()}
    wanted = None if domain is None else "" if domain == DEFAULT else domain
    return [_support(d, n) for d, n in sorted(names) if wanted is None or d == wanted]


def _support(domain: str, name: str) -> Support:
    versions = versions_of(domain, name)
    works = tuple(v for v in versions if _works(domain, name, v))
    found = select(domain, name, works[-1]) if works else None
    family = found.function.__module__.removeprefix("jaxshape.ops.") if found else ""
    missed = versions[0] if works and works[0] != versions[0] else None
    return Support(domain, name, works, family, missed)


def _works(domain: str, name: str, version: int) -> bool:
    standard, found = schema(domain, name, version), select(domain, name, version)
    if standard is not None and standard.deprecated:
        # GroupNormalization-18 is withdrawn but defined; Upsample-10 only says that it is gone.
        return found is not None and found.since == version
    return found is not None or (
        standard is not None and (standard.has_function or standard.has_context_dependent_function)
    )


def support_text(found: list[Support]) -> str:
    """A table of the supported operators with their versions, and the names of the others."""
    parts = []
    for domain, several in _by_domain(found):
        there = [s for s in several if s.versions]
        rows = [(s.name, s.family or "-", " ".join(map(str, s.versions))) for s in there]
        parts.append(f"{_heading(domain, several)}\n")
        if rows:
            parts.append(table(rows, ("operator", "family", "versions"), indent="  ") + "\n")
        if absent := _absent(several):
            parts.append(f"  not supported: {absent}\n")
    return "\n".join(parts).rstrip()


def support_markdown(found: list[Support]) -> str:
    """The same for a README: names only, in a large domain a row for each letter."""
    parts = [f"The standard is that of onnx {_release()}."]
    for domain, several in _by_domain(found):
        there = [s for s in several if s.versions]
        heading = _heading(domain, several)
        if len(there) > _MANY:
            lines = [f"| | {heading} |", "|---|---|"]
            for letter, names in itertools.groupby(there, key=lambda s: s.name[0].upper()):
                lines.append(f"| {letter} | {', '.join(map(_name, names))} |")
            parts.append("\n".join(lines))
        else:
            parts.append(f"{heading}{': ' if there else ''}{', '.join(map(_name, there))}.")
        if there and (absent := _absent(several)):
            parts.append(f"Not supported: {absent}.")
    return "\n\n".join(parts)


def _name(s: Support) -> str:
    return s.name if s.first is None else f"{s.name} (from version {s.versions[0]})"


def _release() -> str:
    """The minor release of the onnx package, whose standard it is."""
    return ".".join(onnx.__version__.split(".")[:2])


def _by_domain(found: list[Support]) -> Iterator[tuple[str, list[Support]]]:
    for domain, several in itertools.groupby(found, key=lambda s: s.domain):
        yield domain or DEFAULT, list(several)


def _heading(domain: str, several: list[Support]) -> str:
    there = sum(bool(s.versions) for s in several)
    counted = str(there) if there == len(several) else f"{there} of {len(several)}"
    return f"{domain}: {counted} operator{'' if len(several) == 1 else 's'}"


def _absent(several: list[Support]) -> str:
    return ", ".join(s.name for s in several if not s.versions)
