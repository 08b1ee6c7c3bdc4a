"""Where parameters lie on a mesh of devices, by their names."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ._error import UnknownValueError

Rule: TypeAlias = tuple[str | re.Pattern[str], PartitionSpec]


def shardings(
    params: Any,
    mesh: Mesh | AbstractMesh,
    rules: Sequence[Rule] | Mapping[str | re.Pattern[str], PartitionSpec],
) -> Any:
    """Give each parameter a place on a mesh, by rules on names.

    The first rule that matches a name says along which mesh axes its dimensions are split. A
    dimension that the mesh does not divide is not split, nor is what no rule matches: it is copied
    to every device. Names are the last keys of the paths to the leaves, so that optimizer states
    which mirror the parameters are placed like them.

    Args:
      params: a `JaxModel`, or any pytree with parameters (*D) by name: `f.params`, the state of an
        optimizer.
      mesh: the mesh; make it with `axis_types=(jax.sharding.AxisType.Auto,) * n`.
      rules: pairs of a pattern and a `PartitionSpec`, or a mapping; a text is a glob on the whole
        name (`"*attn*weight"`), a compiled regular expression is searched for.

    Returns:
      The same pytree with a `NamedSharding` for each leaf: for `jax.device_put`, and for
      `in_shardings` and `out_shardings` of `jax.jit`.

    Raises:
      UnknownValueError: a rule names an axis that the mesh does not have.

    Example:
      >>> import jax, jaxshape as js
      >>> from jax.sharding import AxisType, PartitionSpec as P
      >>> mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
      >>> rules = [("*.up.weight", P(None, "model")), ("*.down.weight", P("model", None))]
      >>> params = {"h.0.up.weight": jax.numpy.ones((4, 8)), "h.0.up.bias": jax.numpy.ones(8)}
      >>> {name: tuple(s.spec) for name, s in js.shardings(params, mesh, rules).items()}
      {'h.0.up.bias': (), 'h.0.up.weight': (None, 'model')}
    """
    rules = [*rules.items()] if isinstance(rules, Mapping) else rules
    for _, spec in rules:
        for axis in (a for entry in spec for a in _axes(entry)):
            if axis not in mesh.shape:
                raise UnknownValueError(
                    f"a rule splits along {axis!r}; the mesh has {', '.join(map(repr, mesh.shape))}"
                )

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        names = [str(k.key) for k in path if isinstance(k, jax.tree_util.DictKey)]
        spec = next((s for p, s in rules if names and _matches(p, names[-1])), PartitionSpec())
        return NamedSharding(mesh, _fitting(spec, getattr(leaf, "shape", ()), mesh))

    return jax.tree_util.tree_map_with_path(place, params)


def _matches(pattern: str | re.Pattern[str], name: str) -> bool:
    if isinstance(pattern, str):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern.search(name) is not None


def _axes(entry: Any) -> tuple[Any, ...]:
    """The mesh axes that one dimension is split along."""
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


def _fitting(spec: PartitionSpec, shape: Sequence[int], mesh: Mesh | AbstractMesh) -> PartitionSpec:
    """The spec for an array of this shape, without the splits that leave a rest."""
    return PartitionSpec(
        *(
            entry if size % math.prod(mesh.shape[a] for a in _axes(entry)) == 0 else None
            for size, entry in zip(shape, spec, strict=False)
        )
    )
