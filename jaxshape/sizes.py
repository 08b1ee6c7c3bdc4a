"""What an operator of your own may say of its sizes.

In a lowering `x.shape` holds ints or symbols of JAX, in a shape rule ints or formulas. `hostdims`
makes formulas of either; the statements below take them. A statement that holds at all sizes costs
nothing; one that holds at none is a `ShapeError` that names the node; any other becomes a
requirement of the trace.

`same(a, b, why)` demands equality and gives the simpler of the two; `least(d, k, why)` demands
d >= k; `divisible(d, k, why)` demands d % k == 0; `broadcast(*dims)` gives the size that they have
together; `fit(x, shape)` is x with the agreed shape; `count(stem, least, most)` a size that data
decides, named after `stem`. `equal` and `at_least` answer True, False, or None where it depends.
`to_export` makes a size for `jax.numpy` of a formula.

Example:
  >>> import onnx.parser, jaxshape as js
  >>> from jaxshape.sizes import divisible, hostdims, to_export
  >>> @js.op("Halves", domain="my.sizes")
  ... def halves(x, /):
  ...     '''Two rows of x (N), one after the other -> (2, N/2).'''
  ...     (n,) = hostdims(x.shape)
  ...     divisible(n, 2, "the length")
  ...     return x.reshape(2, to_export(n // 2))
  >>> m = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 20, "my.sizes": 1]>
  ... g (float[N] x) => (float[] y) { y = my.sizes.Halves (x) }''')
  >>> traced = js.trace(m)
  >>> print(traced["y"], [str(r) for r in traced.requirements])
  float32[2, N//2] ['N % 2 == 0']
"""

from ._facts import at_least, broadcast, count, divisible, equal, least, same
from ._symbol import fit, hostdims, to_export

__all__ = [
    "at_least",
    "broadcast",
    "count",
    "divisible",
    "equal",
    "fit",
    "hostdims",
    "least",
    "same",
    "to_export",
]
