"""An array whose size is data, at its bound: what a bounded conversion gives for such outputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ._error import ExecutionError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Padded:
    """An array of which only a leading part along some axes is meant; a pytree.

    Attributes:
      array: any dtype, every axis at its bound; zeros (False) beyond the counts.
      count: integer (), how many of `array` along `axis` are meant; a tuple with several axes.
      axis: the axis it counts; a tuple with several. Static.
      overflow: bool (), whether the result is not to be trusted: a count passed the bound that the
        caller gave, or sizes that the model demands of each other differ (`run` would raise).

    Under `vmap` each part carries the axes of the batch in front; `axis` is that of one example.

    Example:
      >>> import numpy as np, jaxshape as js
      >>> p = Padded(np.array([3, 1, 0, 0]), np.array(2), 0, np.array(False))
      >>> p.exact()
      array([3, 1])
    """

    array: Any
    count: Any
    axis: int | tuple[int, ...] = dataclasses.field(metadata={"static": True})
    overflow: Any

    def exact(self) -> Any:
        """What `run` gives, as a NumPy array; under `vmap` a list of them, an example each.

        Raises:
          ExecutionError: `overflow` is set.
        """
        overflow = np.asarray(self.overflow)
        if overflow.ndim:
            examples = [jax.tree.map(lambda x, i=i: x[i], self) for i in range(len(overflow))]
            return [p.exact() for p in examples]
        if overflow:
            raise ExecutionError(
                "a count passed the bound given for it, or sizes that must agree do not: "
                "raise the bound, or use jaxshape.run, which tells which"
            )
        found = np.asarray(self.array)
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        counts = self.count if isinstance(self.axis, tuple) else (self.count,)
        for axis, count in zip(axes, counts, strict=True):
            found = found[(slice(None),) * axis + (slice(0, int(count)),)]
        return found
