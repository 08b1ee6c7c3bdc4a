"""The operator sets that a model or a function is written in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from ._error import ModelError, warn


def check_text(*names: Iterable[object]) -> None:
    """Refuse names that are no text: protobuf gives bytes for what is not UTF-8."""
    for name in itertools.chain(*names):
        if type(name) is not str:
            raise ModelError(f"the name {name!r} is not UTF-8")


def opsets_of(imports: Iterable[Any], outer: Mapping[str, int]) -> dict[str, int]:
    opsets = {}
    for domain, version in ((domain_of(i.domain), i.version) for i in imports):
        check_text([domain])
        if version < 1:
            raise ModelError(f"imports opset {version} of domain {domain!r}; they start at 1")
        newest = onnx.defs.onnx_opset_version()
        if not domain and version > newest:
            raise ModelError(
                f"is written in opset {version}; the installed onnx package knows opsets up to "
                f"{newest}: a newer one is needed"
            )
        if opsets.get(domain, version) != version:
            warn(
                f"domain {domain!r} is imported as opset {opsets[domain]} and {version}; "
                f"taken as {version}"
            )
        opsets[domain] = version
    return {**outer, **opsets}


def domain_of(name: str) -> str:
    return "" if name == "ai.onnx" else name
