# SPDX-License-Identifier: MIT
"""Functions whose gradients are written out: autograd would compute the same in two to four times as many passes over memory,
which is where a small model on a CPU spends more than half of its time. Gradients of gradients do not exist here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class RmsNorm(Function):
    """x / sqrt(mean x^2 + eps) over the last axis, times a weight (d,) if there is one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        scale = x.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(x, scale, weight)
        y = x * scale
        return y if weight is None else y.mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, scale, weight = ctx.saved_tensors
        unit, own = x * scale, None
        if ctx.needs_input_grad[1]:
            own = (grad * unit).flatten(0, -2).sum(dim=0)
        if weight is not None:
            grad = grad * weight
        along = torch.linalg.vecdot(grad, unit).div_(-x.shape[-1]).unsqueeze(-1)
        return torch.addcmul(grad, unit, along).mul_(scale), own, None


class GatedSilu(Function):
    """silu(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad * up, gate), F.silu(gate).mul_(grad)


class CrossEntropy(Function):
    """The mean over the targets y (R,) of -log softmax(logits)[y], logits (R, V); a target of -100 is none."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, y: Tensor) -> Tensor:
        logs = logits.log_softmax(dim=-1)
        ctx.save_for_backward(logs, y)
        return F.nll_loss(logs, y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logs, y = ctx.saved_tensors
        real = (y != -100)[:, None]
        out = logs.exp()
        out.scatter_add_(1, y.clamp_min(0)[:, None], -torch.ones_like(out[:, :1]))
        return out.mul_(real * (grad / real.sum())), None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, kind: str, sign: int) -> Tensor:
    """x with the first entries of its last axis rotated by an angle, or for a sign of -1 back."""
    dims = 2 * cos.shape[-1]
    out = torch.empty_like(x)
    pairs = (slice(dims // 2), slice(dims // 2, dims)) if kind == "half" else (slice(0, dims, 2), slice(1, dims, 2))
    a, b = (x[..., part] for part in pairs)
    out_a, out_b = (out[..., part] for part in pairs)
    torch.mul(a, cos, out=out_a).addcmul_(b, sin, value=-sign)
    torch.mul(b, cos, out=out_b).addcmul_(a, sin, value=sign)
    if dims < x.shape[-1]:
        out[..., dims:] = x[..., dims:]
    return out


class Rotation(Function):
    """rope.rotate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, kind: str) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.kind = kind
        return _turn(x, cos, sin, kind, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _turn(grad, *ctx.saved_tensors, ctx.kind, -1), None, None, None


def _in_one_call(x: Tensor, w: Tensor) -> bool:
    """Whether PyTorch has a function for the products of all experts: newer ones have it, for rows of whole 16 bytes. On a
    CPU it computes the same as a loop over the experts without the loop's cost, which small experts feel."""
    known = hasattr(F, "grouped_mm") and x.device.type == "cpu" and x.dtype == w.dtype == torch.float32
    return known and w.shape[1] % 4 == w.shape[2] % 4 == 0


def _ends(counts: list[int]) -> Tensor:
    return torch.tensor(counts).cumsum(0, dtype=torch.int32)


class GroupedProduct(Function):
    """y[rows of e] = x[rows of e] W[e]^T for rows that are sorted by expert."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, counts: list[int]) -> Tensor:
        """x (P, in), w (N, out, in), counts: rows of each expert -> (P, out)."""
        ctx.save_for_backward(x, w)
        ctx.counts = counts
        if _in_one_call(x, w):
            return F.grouped_mm(x, w.mT, offs=_ends(counts))
        y = x.new_empty(x.shape[0], w.shape[1])
        for rows, own, out in zip(x.split(counts), w.mT.unbind(), y.split(counts), strict=True):
            torch.mm(rows, own, out=out)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (x, w), counts, grad = ctx.saved_tensors, ctx.counts, grad.contiguous()
        learnt = ctx.needs_input_grad[1]
        if _in_one_call(x, w):
            ends = _ends(counts)
            return F.grouped_mm(grad, w, offs=ends), F.grouped_mm(grad.mT, x, offs=ends) if learnt else None, None
        gx, grads = torch.empty_like(x), grad.split(counts)
        for own, g, out in zip(w.unbind(), grads, gx.split(counts), strict=True):
            torch.mm(g, own, out=out)
        if not learnt:
            return gx, None, None
        gw = torch.empty_like(w)  # a product of no rows is 0
        for rows, g, out in zip(x.split(counts), grads, gw.unbind(), strict=True):
            torch.mm(g.T, rows, out=out)
        return gx, gw, None


class GroupedScale(Function):
    """y[rows of e] = x[rows of e] * w[e] for rows that are sorted by expert."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, counts: list[int]) -> Tensor:
        """x (P, f), w (N, f), counts: rows of each expert -> (P, f)."""
        ctx.save_for_backward(x, w)
        ctx.counts = counts
        y = torch.empty_like(x)
        for rows, own, out in zip(x.split(counts), w.unbind(), y.split(counts), strict=True):
            torch.mul(rows, own, out=out)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (x, w), counts = ctx.saved_tensors, ctx.counts
        gx, grads = torch.empty_like(x), grad.split(counts)
        for own, g, out in zip(w.unbind(), grads, gx.split(counts), strict=True):
            torch.mul(g, own, out=out)
        if not ctx.needs_input_grad[1]:
            return gx, None, None
        gw = torch.empty_like(w)
        for rows, g, out in zip(x.split(counts), grads, gw.unbind(), strict=True):
            torch.sum(g * rows, dim=0, out=out)
        return gx, gw, None


def dropout(x: Tensor, p: float) -> Tensor:
    """F.dropout, which draws a number per element; here an element takes 16 bits of a number. p is rounded to them."""
    if p == 0:
        return x
    drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    kept = drawn.view(torch.int16)[: x.numel()].view(x.shape) >= round(p * 2**16) - 2**15
    return x * kept.to(x.dtype).mul_(1 / (1 - p))
