"""A table of small models to export, by family of operators, and the sizes to call them at."""

import numpy as np
from builders import model, node

F = np.float32


def ones(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(F) / 4


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


IMAGE = "float32[N, 4, H, W]"
SEQUENCE = "float32[N, T, 8]"
# what is exported, then the sizes to call it at
ROWS = {
    "Conv": (node("Conv", IMAGE, ones(6, 4, 3, 3), pads=[1] * 4, strides=[2, 2]), "N H W"),
    "Conv grouped, dilated": (
        node("Conv", IMAGE, ones(6, 2, 2, 2), ones(6), group=2, dilations=[2, 1]), "N H W"),
    "Conv same": (
        node("Conv", IMAGE, ones(6, 4, 3, 2), auto_pad="SAME_LOWER", strides=[2, 3]), "N H W"),
    "ConvTranspose": (
        node("ConvTranspose", IMAGE, ones(4, 3, 3, 3), strides=[2, 2], pads=[1] * 4,
             output_padding=[1, 1]), "N H W"),
    "ConvInteger": (node("ConvInteger", "uint8[N, 4, H]", ones(2, 4, 3).astype("i1")), "N H"),
    "DeformConv": (
        node("DeformConv", "float32[N, 2, H, W]", ones(2, 2, 2, 2), "float32[N, 8, P, Q]"),
        [{"N": 2, "H": 3, "W": 4, "P": 2, "Q": 3}, {"N": 1, "H": 5, "W": 3, "P": 4, "Q": 2}]),
    "MaxPool": (node("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1), "N H W"),
    "MaxPool with places": (
        node("MaxPool", IMAGE, outputs=2, kernel_shape=[2, 2], strides=[2, 1]), "N H W"),
    "MaxPool dilated": (node("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2]), "N H W"),
    "AveragePool": (
        node("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), "N H W"),
    "AveragePool ceil": (
        node("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), "N H W"),
    "LpPool": (node("LpPool", IMAGE, kernel_shape=[2, 2]), "N H W"),
    "GlobalAveragePool": (node("GlobalAveragePool", IMAGE), "N H W"),
    "Resize scales": (
        node("Resize", IMAGE, None, np.array([1, 1, 2, 0.5], F), mode="linear"), "N H W"),
    "Resize cubic": (
        node("Resize", IMAGE, None, np.array([1, 1, 1.5, 2], F), mode="cubic"), "N H W"),
    "Resize nearest": (node("Resize", IMAGE, None, np.array([1, 1, 2, 3], F)), "N H W"),
    "Resize sizes": (
        node("Resize", IMAGE, None, None, ints(1, 4, 6, 5), mode="linear",
             coordinate_transformation_mode="align_corners"),
        [{"N": 1, "H": 4, "W": 9}, {"N": 1, "H": 7, "W": 2}]),
    "Resize antialias": (
        node("Resize", "float32[N, H]", None, np.array([1, 0.5], F), mode="linear", antialias=1),
        "N H"),
    "DepthToSpace": (node("DepthToSpace", IMAGE, blocksize=2, mode="CRD"), "N H W"),
    "SpaceToDepth": (node("SpaceToDepth", IMAGE, blocksize=2), "N H W"),
    "GridSample": (node("GridSample", IMAGE, "float32[N, P, Q, 2]"), "N H W P Q"),
    "AffineGrid": (
        model("""g (float[N, 2, 3] t, float[N, C, H, W] x) => (float[a, b, c, d] y) {
            s = Shape (x)
            y = AffineGrid (t, s)
        }"""), "N C H W"),
    "RoiAlign": (
        node("RoiAlign", IMAGE, "float32[R, 4]", "int64[R]", output_height=2, output_width=2),
        [{"N": 2, "H": 5, "W": 6, "R": 3}, {"N": 3, "H": 4, "W": 9, "R": 1}]),
    "MatMul": (node("MatMul", "float32[B, M, K]", "float32[B, K, N]"), "B M K N"),
    "MatMul broadcast": (node("MatMul", "float32[B, M, 8]", "float32[8, N]"), "B M N"),
    "Gemm": (node("Gemm", "float32[N, 8]", ones(3, 8), ones(3), transB=1, alpha=0.5), "N"),
    "Einsum": (
        node("Einsum", "float32[B, M, K]", "float32[B, N, K]", equation="bmk,bnk->bnm"),
        "B M K N"),
    "Det": (node("Det", "float32[N, 3, 3]"), "N"),
    "Softmax": (node("Softmax", "float32[N, T]"), "N T"),
    "LogSoftmax": (node("LogSoftmax", "float32[N, T]", axis=0), "N T"),
    "Hardmax": (node("Hardmax", "float32[N, T]"), "N T"),
    "PRelu": (node("PRelu", IMAGE, ones(4, 1, 1)), "N H W"),
    "Add": (node("Add", "float32[N, 1, T]", "float32[M, T]"), "N M T"),
    "Where": (node("Where", "bool[N, 1]", "float32[N, T]", "float32[T]"), "N T"),
    "Cast": (node("Cast", "int64[N]", to=1), "N"),
    "Clip": (node("Clip", "float32[N]", np.array(0, F), np.array(1, F)), "N"),
    "Mod": (node("Mod", "int64[N]", ints(3)), "N"),
    "BatchNormalization": (
        node("BatchNormalization", IMAGE, *[ones(4) ** 2 + 1] * 4), "N H W"),
    "InstanceNormalization": (
        node("InstanceNormalization", IMAGE, ones(4), ones(4)), "N H W"),
    "GroupNormalization": (
        node("GroupNormalization", IMAGE, ones(4), ones(4), num_groups=2), "N H W"),
    "LayerNormalization": (
        node("LayerNormalization", SEQUENCE, ones(8), ones(8), outputs=3), "N T"),
    "RMSNormalization": (node("RMSNormalization", SEQUENCE, ones(8)), "N T"),
    "LRN": (node("LRN", IMAGE, size=3), "N H W"),
    "MeanVarianceNormalization": (node("MeanVarianceNormalization", IMAGE), "N H W"),
    "ReduceMean": (node("ReduceMean", "float32[N, T, H]", ints(1), keepdims=0), "N T H"),
    "ReduceSum of all": (node("ReduceSum", "float32[N, T]"), "N T"),
    "ReduceLogSumExp": (node("ReduceLogSumExp", "float32[N, T]", ints(-1)), "N T"),
    "ReduceMax": (node("ReduceMax", "int64[N, T]", ints(0)), "N T"),
    "ArgMax": (node("ArgMax", "float32[N, T]", axis=1, select_last_index=1), "N T"),
    "CumSum": (node("CumSum", "float32[N, T]", ints(1), exclusive=1, reverse=1), "N T"),
    "CumSum of integers": (node("CumSum", "int64[N, T]", ints(0)), "N T"),
    "TopK": (node("TopK", "float32[N, T]", ints(2), outputs=2), "N T"),
    "TopK smallest": (node("TopK", "float32[N, T]", ints(2), outputs=2, largest=0), "N T"),
    "OneHot": (node("OneHot", "int64[N, T]", ints(5), np.array([0, 1], F)), "N T"),
    "Trilu": (node("Trilu", "float32[N, T, H]", np.array(1), upper=0), "N T H"),
    "EyeLike": (node("EyeLike", "float32[N, T]", k=1), "N T"),
    "Gather": (node("Gather", ones(9, 4), "int64[N, T]"), "N T"),
    "Gather last": (node("Gather", "float32[N, T]", ints(-1), axis=1), "N T"),
    "GatherElements": (node("GatherElements", "float32[N, T]", "int64[N, 2]", axis=1), "N T"),
    "GatherND": (node("GatherND", "float32[N, T, 3]", "int64[N, 1]", batch_dims=1), "N T"),
    "ScatterElements": (
        node("ScatterElements", "float32[N, T]", ints(0, 1).reshape(1, 2), ones(1, 2), axis=1),
        "N T"),
    "ScatterND": (
        node("ScatterND", "float32[N, T]", ints(1).reshape(1, 1), "float32[1, T]"), "N T"),
    "Slice": (node("Slice", "float32[N, T]", ints(1), ints(-1), ints(1)), "N T"),
    "Slice backward": (
        node("Slice", "float32[N, T]", ints(-1), ints(-(2**63)), ints(1), ints(-2)), "N T"),
    "Slice clamped": (node("Slice", "float32[N, T]", ints(2), ints(4), ints(1)), "N T"),
    "Slice of a table": (
        model("""g (int64[N, T] x) => (float[a, b] y) {
            one = Constant <value_ints = [1]> ()
            two = Constant <value_ints = [2]> ()
            zero = Constant <value_ints = [0]> ()
            t = Shape <start = 1> (x)
            table = Constant <value = float[2, 6] {0,1,2,3,4,5,6,7,8,9,10,11}> ()
            y = Slice (table, zero, t, one)
        }"""), [{"N": 2, "T": 3}, {"N": 1, "T": 6}]),
    "Split": (node("Split", "float32[N, T]", outputs=2, axis=1, num_outputs=2), "N T"),
    "Split by sizes": (node("Split", SEQUENCE, ints(3, 5), outputs=2, axis=2), "N T"),
    "Concat": (node("Concat", "float32[N, T]", "float32[N, H]", axis=1), "N T H"),
    "Pad": (node("Pad", "float32[N, T]", ints(1, 0, 0, 2)), "N T"),
    "Pad reflect": (node("Pad", "float32[N, T]", ints(0, 2, 0, 1), mode="reflect"), "N T"),
    "Pad edge and cut": (node("Pad", "float32[N, T]", ints(0, 2, 0, -1), mode="edge"), "N T"),
    "Pad wrap": (node("Pad", "float32[N, T]", ints(0, 1, 0, 1), mode="wrap"), "N T"),
    "Reshape": (node("Reshape", "float32[N, T, 6]", ints(0, -1, 3)), "N T"),
    "Reshape divided": (node("Reshape", "float32[N, 3]", ints(-1, 4)), [{"N": 4}, {"N": 12}]),
    "Reshape of a product": (node("Reshape", "float32[N, T]", ints(-1, 4)),
        [{"N": 2, "T": 6}, {"N": 3, "T": 4}]),
    "Flatten": (node("Flatten", "float32[N, T, H]", axis=2), "N T H"),
    "Squeeze, Unsqueeze": (node("Unsqueeze", "float32[N, T]", ints(0, 3)), "N T"),
    "Transpose": (node("Transpose", "float32[N, T, H]", perm=[2, 0, 1]), "N T H"),
    "Expand": (
        model("""g (float[N, 1] x, float[T] z) => (float[a, b] y) {
            s = Shape (z)
            y = Expand (x, s)
        }"""), "N T"),
    "Tile": (node("Tile", "float32[N, T]", ints(2, 3)), "N T"),
    "ReverseSequence": (node("ReverseSequence", "float32[T, N]", "int64[N]"), "N T"),
    "Range": (
        model("""g (float[N, T] x) => (int64[a] y, float[b] z) {
            zero = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            s = Size (x)
            y = Range (zero, s, one)
            fzero = Constant <value_float = 0.0> ()
            half = Constant <value_float = 0.5> ()
            f = CastLike (s, half)
            z = Range (fzero, f, half)
        }"""), "N T"),
    "ConstantOfShape": (
        model("""g (float[N, T] x) => (float[a, b] y) {
            s = Shape (x)
            y = ConstantOfShape (s)
        }"""), "N T"),
    "sizes as numbers": (
        model("""g (float[N, T] x) => (float[a, b] y, int64[2] s, float r) {
            s = Shape (x)
            one = Constant <value_ints = [1]> ()
            t = Gather (s, one)
            f = Cast <to = 1> (t)
            q = Sqrt (f)
            y = Div (x, q)
            n = Size (x)
            c = Cast <to = 1> (n)
            half = Constant <value_float = 0.5> ()
            r = Mul (c, half)
        }"""), "N T"),
    "Attention": (
        node("Attention", "float32[N, T, 16]", "float32[N, S, 16]", "float32[N, S, 16]",
             q_num_heads=2, kv_num_heads=2), "N T S"),
    "Attention causal, 4-D": (
        node("Attention", *["float32[N, 2, T, 4]"] * 3, is_causal=1), "N T"),
    "RotaryEmbedding": (
        node("RotaryEmbedding", "float32[N, 2, T, 4]", ones(5, 2), ones(5, 2), "int64[N, T]"),
        "N T"),
    "LSTM": (
        node("LSTM", "float32[T, N, 3]", ones(2, 16, 3), ones(2, 16, 4), outputs=3,
             hidden_size=4, direction="bidirectional"), "N T"),
    "GRU with lengths": (
        node("GRU", "float32[T, N, 3]", ones(1, 12, 3), ones(1, 12, 4), None, "int32[N]",
             hidden_size=4, linear_before_reset=1), "N T"),
    "RNN batch first": (
        node("RNN", "float32[N, T, 3]", ones(1, 4, 3), ones(1, 4, 4), hidden_size=4, layout=1,
             outputs=2), "N T"),
    "Loop": (
        model("""g (float[N, T] x) => (float[N, T] y, float[a, N, T] z) {
            m = Constant <value = int64 {20}> ()
            yes = Constant <value = bool {1}> ()
            y, z = Loop (m, yes, x) <body = b (int64 i, bool c, float[N, T] v)
                => (bool d, float[N, T] w, float[N, T] s) {
                d = Identity (c)
                h = Constant <value_float = 0.5> ()
                w = Mul (v, h)
                s = Add (w, h)
            }>
        }"""), "N T"),
    "Loop over a size": (
        model("""g (float[N, T] x) => (float[N] y) {
            zero = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            s = Shape (x)
            t = Gather (s, one)
            o = Constant <value_ints = [1]> ()
            n = Slice (s, o, o)
            yes = Constant <value = bool {1}> ()
            start = ReduceSum <keepdims = 0> (x, o)
            y = Loop (t, yes, start) <body = b (int64 i, bool c, float[N] v)
                => (bool d, float[N] w) {
                d = Identity (c)
                e = Gather <axis = 1> (x, i)
                w = Sub (e, v)
            }>
        }"""), "N T"),
    "Scan": (
        model("""g (float[N, T] x) => (float[N] y, float[T, N] z) {
            o = Constant <value_ints = [1]> ()
            start = ReduceMax <keepdims = 0> (x, o)
            y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1],
                body = b (float[N] v, float[N] e) => (float[N] w, float[N] s) {
                w = Sub (e, v)
                s = Mul (w, w)
            }> (start, x)
        }"""), "N T"),
    "If on data": (
        model("""g (float[N, T] x, bool c) => (float[N, T] y) {
            y = If (c) <then_branch = t () => (float[N, T] u) { u = Neg (x) },
                        else_branch = e () => (float[N, T] v) { v = Mul (x, x) }>
        }"""), "N T"),
    "If on a size": (
        model("""g (float[N, T] x) => (float[N, T] y) {
            three = Constant <value_int = 3> ()
            one = Constant <value_int = 1> ()
            s = Shape (x)
            t = Gather (s, one)
            c = Less (t, three)
            y = If (c) <then_branch = t () => (float[N, T] u) { u = Neg (x) },
                        else_branch = e () => (float[N, T] v) { v = Mul (x, x) }>
        }"""), [{"N": 2, "T": 2}, {"N": 2, "T": 5}]),
    "DFT": (node("DFT", "float32[N, 8, 1]", None, np.array(1)), "N"),
    "DFT of any length": (node("DFT", "float32[N, T, 2]", None, np.array(1)), "N T"),
    "DFT one-sided": (node("DFT", "float32[N, T, 1]", None, np.array(1), onesided=1), "N T"),
    "DFT back": (
        node("DFT", "float32[N, T, 2]", None, np.array(1), onesided=1, inverse=1), "N T"),
    "DFT padded": (
        model("""g (float[N, T, 1] x) => (float[a, b, 2] y) {
            axis = Constant <value_int = 1> ()
            two = Constant <value_int = 2> ()
            s = Shape <start = 1, end = 2> (x)
            n = Mul (s, two)
            l = Squeeze (n)
            y = DFT <inverse = 1> (x, l, axis)
        }"""), "N T"),
    "STFT": (
        node("STFT", "float32[N, T, 1]", np.array(2), np.array([1, 2, 2, 1], F)),
        [{"N": 2, "T": 9}, {"N": 1, "T": 12}]),
    "HannWindow": (
        model("""g (float[N, T] x) => (float[a] y) {
            s = Size (x)
            y = HannWindow (s)
        }"""), "N T"),
    "QuantizeLinear": (
        node("QuantizeLinear", "float32[N, 4]", ones(4) ** 2 + 1, np.zeros(4, np.uint8)), "N"),
    "DynamicQuantizeLinear": (node("DynamicQuantizeLinear", "float32[N, T]", outputs=3), "N T"),
    "MatMulInteger": (node("MatMulInteger", "uint8[N, 4]", ones(4, 3).astype("i1")), "N"),
    "NegativeLogLikelihoodLoss": (
        node("NegativeLogLikelihoodLoss", "float32[N, 4, T]", "int64[N, T]"), "N T"),
    "MaxUnpool": (
        model("""g (float[N, 1, H, W] x) => (float[a, b, c, d] y) {
            p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
            s = Shape (x)
            y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (p, i, s)
        }"""), "N H W"),
    "Col2Im": (node("Col2Im", "float32[N, 4, 4]", ints(3, 3), ints(2, 2)), "N"),
    "CenterCropPad": (node("CenterCropPad", "float32[N, T]", ints(3), axes=[1]), "N T"),
}  # fmt: skip
SIZES = (dict(zip("NTHWBMKSCPQ", (2, 3, 4, 6, 3, 2, 5, 4, 3, 2, 3), strict=True)),
         dict(zip("NTHWBMKSCPQ", (3, 6, 8, 10, 1, 4, 2, 2, 2, 4, 1), strict=True)))  # fmt: skip
