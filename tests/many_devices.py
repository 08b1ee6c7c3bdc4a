"""What the tests of sharding run in processes of their own: `python many_devices.py WHAT ...`.

mesh                     eight devices in this process: data and tensor parallelism
process I COUNT PORT     process I of COUNT, with two devices each, which form one mesh
"""

import sys

import jax
import numpy as np
from builders import model
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from onnx import numpy_helper

import jaxshape as js

# a layer of a transformer: 4 heads of 4, a hidden layer of 32
TEXT = """g (float[N, S, 16] x) => (float[N, S, 16] y)
<float root = {0.5}, int64[4] apart = {0, 0, 4, 4}, int64[3] together = {0, 0, 16}> {
    q0 = MatMul (x, q_w)
    k0 = MatMul (x, k_w)
    v0 = MatMul (x, v_w)
    q1 = Reshape (q0, apart)
    k1 = Reshape (k0, apart)
    v1 = Reshape (v0, apart)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    s = MatMul (q, k)
    t = Mul (s, root)
    p = Softmax (t)
    a = MatMul (p, v)
    c = Transpose <perm = [0, 2, 1, 3]> (a)
    d = Reshape (c, together)
    e = MatMul (d, o_w)
    f = Add (e, o_b)
    r = Add (x, f)
    n = LayerNormalization (r, g, b)
    h = MatMul (n, up_w)
    i = Add (h, up_b)
    j = Gelu (i)
    l = MatMul (j, down_w)
    y = Add (r, l)
}"""

SHAPES = {
    **dict.fromkeys(("q_w", "k_w", "v_w", "o_w"), (16, 16)),
    "o_b": (16,),
    "up_w": (16, 32),
    "up_b": (32,),
    "down_w": (32, 16),
    "g": (16,),
    "b": (16,),
}
RULES = [  # columns of what goes in, rows of what comes out
    ("[qkv]_w", P(None, "model")),
    ("up_w", P(None, "model")),
    ("up_b", P("model")),
    ("o_w", P("model", None)),
    ("down_w", P("model", None)),
]


def layer():
    """The model with weights, an input (8, 5, 16), and the output and gradient of one device."""
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=s) / s[0] ** 0.5 for n, s in SHAPES.items()}
    proto = model(TEXT)
    proto.graph.initializer.extend(
        numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()
    )
    f = js.to_jax(proto, freeze="o_b")
    x = rng.normal(size=(8, 5, 16)).astype(np.float32)
    one = jax.device_put((f, x), jax.local_devices()[0])
    return f, x, jax.device_get((jax.jit(lambda f, x: f(x))(*one), slope(*one)))


@jax.jit
def slope(f, x):
    return jax.grad(lambda f: (f(x) ** 2).mean())(f).params


def close(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def mesh():
    assert len(jax.devices()) == 8
    f, x, (y, g) = layer()
    for shape in ((8, 1), (2, 4)):
        m = jax.make_mesh(shape, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
        places = js.shardings(f, m, RULES)
        placed, batch = jax.device_put(f, places), NamedSharding(m, P("data"))
        assert placed.params["q_w"].sharding.shard_shape((16, 16)) == (16, 16 // shape[1])
        assert placed.params["g"].sharding.is_fully_replicated
        forward = jax.jit(lambda f, x: f(x), in_shardings=(places, batch), out_shardings=batch)
        out = forward(placed, jax.device_put(x, batch))
        assert out.sharding.shard_shape(out.shape) == (8 // shape[0], 5, 16)
        close(out, y)
    close(slope(placed, jax.device_put(x, batch)), g)
    each = jax.shard_map(f.apply, mesh=m, in_specs=(P(), P("data")), out_specs=P("data"))
    close(jax.jit(each)(f.params, x), y)


def process(index, count, port):
    jax.distributed.initialize(f"localhost:{port}", count, index)
    assert len(jax.devices()) == 2 * count and len(jax.local_devices()) == 2
    f, x, (y, _) = layer()
    m = jax.make_mesh((count, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def everywhere(array, sharding):
        array = np.asarray(array)
        return jax.make_array_from_callback(array.shape, sharding, lambda i: array[i])

    places, batch = js.shardings(f, m, RULES), NamedSharding(m, P("data"))
    placed = jax.tree.map(everywhere, f, places)
    forward = jax.jit(lambda f, x: f(x), in_shardings=(places, batch), out_shardings=batch)
    for out in (forward(placed, everywhere(x, batch)), placed(everywhere(x, batch))):
        for shard in out.addressable_shards:
            close(shard.data, y[shard.index])


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    {"mesh": mesh, "process": process}[what](*map(int, numbers))
    print("same")
