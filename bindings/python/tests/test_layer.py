# SPDX-License-Identifier: MIT
"""A single MoE layer against a reference in NumPy; arrays of other packages; wrong inputs."""

import numpy as np
import pytest

import moe

D_MODEL, D_FF, N = 24, 40, 5
RNG = np.random.default_rng(1)


def normal(*shape):
    return RNG.standard_normal(shape, np.float32)


EXPERTS = [moe.Expert(gate=normal(D_FF, D_MODEL), up=normal(D_FF, D_MODEL),
                      down=normal(D_MODEL, D_FF)) for _ in range(N)]
ROUTER = normal(N, D_MODEL)
X = normal(7, D_MODEL)


def reference(x, k):
    """Top-k of a softmax over all experts, without renormalization."""
    logits = x @ ROUTER.T
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = np.zeros_like(x)
    for row, (probabilities, value) in enumerate(zip(p, x)):
        for i in np.argsort(-probabilities)[:k]:
            e = EXPERTS[i]
            gate = e.gate @ value
            y[row] += probabilities[i] * (e.down @ (gate / (1 + np.exp(-gate)) * (e.up @ value)))
    return y


@pytest.fixture
def layer(environment):
    with moe.MoeLayer(EXPERTS, ROUTER, router="topk:2", environment=environment) as made:
        yield made


def test_forward(layer):
    np.testing.assert_allclose(layer(X), reference(X, 2), rtol=1e-4, atol=1e-4)


def test_shapes_and_places(layer):
    y = layer(X)
    np.testing.assert_array_equal(layer(X.reshape(1, 7, D_MODEL)), y[None])
    np.testing.assert_array_equal(layer(X[3]), y[3])
    assert layer(X[:0]).shape == (0, D_MODEL)
    out = np.zeros_like(X)
    assert layer(X, out) is out
    np.testing.assert_array_equal(out, y)
    in_place = X.copy()
    layer(in_place, in_place)
    np.testing.assert_array_equal(in_place, y)


class Lent:
    """An array of another library, which supports only DLPack."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_dlpack(layer):
    np.testing.assert_array_equal(layer(Lent(X)), layer(X))
    with pytest.raises(TypeError, match="CPU memory"):
        layer(Lent(X, device=(2, 0)))


def test_torch(layer):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.from_numpy(X)
    y = layer(x)
    assert isinstance(y, torch.Tensor)
    np.testing.assert_array_equal(y.numpy(), layer(X))
    out = torch.zeros_like(x)
    assert layer(x, out) is out and torch.equal(out, y)
    in_place = x.clone()
    pointer = in_place.data_ptr()
    assert layer(in_place, in_place) is in_place and in_place.data_ptr() == pointer
    assert torch.equal(in_place, y) and torch.equal(x, torch.from_numpy(X))
    experts = [moe.Expert(gate=torch.from_numpy(e.gate), up=torch.from_numpy(e.up),
                          down=torch.from_numpy(e.down)) for e in EXPERTS]
    with moe.MoeLayer(experts, torch.from_numpy(ROUTER), router="topk:2") as same:
        assert torch.equal(same(x), y)
    for wrong in (x.double(), x.T, x.clone().requires_grad_()):
        with pytest.raises(TypeError):
            layer(wrong)


@pytest.mark.parametrize("x, error, text", [
    (X.astype(np.float64), TypeError, "expected float32, found float64"),
    (np.asfortranarray(X), TypeError, "C-contiguous"), (X[:, ::2], TypeError, "C-contiguous"),
    (X.tolist(), TypeError, "found list"), (normal(7, D_MODEL + 1), moe.ShapeError, "24"),
    (np.float32(1), TypeError, "float32"), (np.full_like(X, np.nan), moe.NonFiniteError, "")])
def test_wrong_inputs(layer, x, error, text):
    with pytest.raises(error, match=text):
        layer(x)


def test_wrong_out(layer):
    buffer = normal(8, D_MODEL)
    locked = np.empty_like(X)
    locked.flags.writeable = False
    for x, out, error in ((X, np.empty((6, D_MODEL), np.float32), moe.ShapeError),
                          (X, np.empty_like(X, np.float64), TypeError),
                          (X, locked, moe.ArgumentError),
                          (buffer[:7], buffer[1:], moe.ArgumentError)):
        with pytest.raises(error):
            layer(x, out)


@pytest.mark.parametrize("change, error, text", [
    ({"experts": []}, moe.ArgumentError, "at least one"),
    ({"experts": [moe.Expert(up=EXPERTS[0].up, down=EXPERTS[0].up)]}, moe.ShapeError,
     r"experts\[0\].down"),
    ({"router_weight": ROUTER[:4]}, moe.ShapeError, "router_weight"),
    ({"router_weight": None}, moe.MoeError, "router"),
    ({"router_weight": ROUTER.astype(np.float16)}, TypeError, "float16"),
    ({"router": "nonsense"}, moe.ArgumentError, "nonsense"),
    ({"router_proj": ROUTER}, moe.ArgumentError, "cosine"),
    ({"router": "cosine:1"}, moe.MoeError, "router_proj"),
    ({"head_bias": np.zeros(D_MODEL, np.float32)}, moe.ArgumentError, "head_bias"),
    ({"merge_bias": np.zeros(D_MODEL, np.float32)}, moe.ArgumentError, "merge_bias"),
    ({"n_subheads": 2**31}, ValueError, "d_model"),
    ({"weights": "int9"}, moe.ArgumentError, "int9")])
def test_wrong_parameters(environment, change, error, text):
    given = {"experts": EXPERTS, "router_weight": ROUTER, **change}
    with pytest.raises(error, match=text):
        moe.MoeLayer(**given, environment=environment)


def test_subheads_shared_and_formats(environment):
    half = D_MODEL // 2
    experts = [moe.Expert(up=normal(D_FF, half), down=normal(half, D_FF)) for _ in range(N)]
    outputs = [moe.MoeLayer(experts, normal(N, half), n_subheads=2, head=normal(D_MODEL, D_MODEL),
                            merge=normal(D_MODEL, D_MODEL), weights=weights, activation="relu",
                            shared=moe.Expert(up=normal(8, D_MODEL), down=normal(D_MODEL, 8)),
                            environment=environment)(X)
               for weights in ("f32", "int8", "ternary2")]
    assert all(np.isfinite(y).all() and y.shape == X.shape for y in outputs)


def test_head_and_merge_layer_are_two_switches(environment):
    half = D_MODEL // 2
    experts = [moe.Expert(up=normal(D_FF, half), down=normal(half, D_FF)) for _ in range(N)]
    router, head, merge = normal(N, half), normal(D_MODEL, D_MODEL), normal(D_MODEL, D_MODEL)

    def layer(x, **given):
        return moe.MoeLayer(experts, router, n_subheads=2, activation="relu", **given,
                            environment=environment)(x)

    plain = layer(X)
    assert np.allclose(layer(X, merge=merge), plain @ merge.T, atol=1e-4)
    assert np.allclose(layer(X, head=head), layer(np.ascontiguousarray(X @ head.T)), atol=1e-4)
    assert np.allclose(layer(X, head=head, merge=merge), layer(X, head=head) @ merge.T, atol=1e-4)


def test_cosine(environment):
    proj, embedding = normal(6, D_MODEL), normal(N, 6)
    layer = moe.MoeLayer(EXPERTS, embedding, router="cosine:1,tau=0.07", router_proj=proj,
                         environment=environment)
    assert np.isfinite(layer(X)).all()


@pytest.mark.parametrize("gate, rule", [("softmax", "raw"), ("softmax", "renormalised"), ("sigmoid", "raw"), ("sigmoid", "renormalised")])
def test_gates_of_a_cosine_router(gate, rule, environment):
    """X-MoE, eq. 7 and 8, expert by expert."""
    proj, embedding, tau = normal(6, D_MODEL), normal(N, 6), 0.3
    layer = moe.MoeLayer(EXPERTS, embedding, router=f"cosine:2,{rule},gate={gate},tau={tau}", router_proj=proj,
                         environment=environment)
    z = X @ proj.T
    scores = z / np.linalg.norm(z, axis=1, keepdims=True) @ (embedding / np.linalg.norm(embedding, axis=1, keepdims=True)).T / tau
    p = 1 / (1 + np.exp(-scores)) if gate == "sigmoid" else np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    expected = np.zeros_like(X)
    for row, (value, score, weight) in enumerate(zip(X, scores, p)):
        best = np.argsort(-score)[:2]
        for i in best:
            e, gated = EXPERTS[i], EXPERTS[i].gate @ value
            share = weight[best].sum() if rule == "renormalised" else 1
            expected[row] += weight[i] / share * (e.down @ (gated / (1 + np.exp(-gated)) * (e.up @ value)))
    np.testing.assert_allclose(layer(X), expected, rtol=1e-3, atol=1e-3)


def test_own_environment_and_closing():
    layer = moe.MoeLayer(EXPERTS, ROUTER)
    assert layer(X).shape == X.shape
    layer.close()
    with pytest.raises(moe.StateError, match="layer is closed"):
        layer(X)
