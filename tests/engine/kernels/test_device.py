"""Kernels of our own: the sources for both languages, and the results where there is a GPU."""

import re

import mlx.core as mx
import pytest

from engine.kernels import kda_gates, kda_scan, mixing
from engine.kernels.delta_rule import delta_rule_blocks, delta_rule_step
from engine.kernels.device import DeviceKernel, Language, language
from engine.kernels.mixing import mix_rows, mix_rows_kernel
from engine.layers.kda_core import chosen_cores, kernel_core, plain_core, random_core
from engine.scalars import as_float

KERNELS = (kda_gates._prepare, kda_gates._finish, kda_scan._kernel, mixing._kernel)
ONE_LANGUAGE_ONLY = re.compile(
    r"__syncthreads|__shared__|__shfl|threadIdx|blockIdx|expf|logf|rsqrtf|fmaf"
    r"|\bthreadgroup|simd_|metal::|thread_position|\bhalf\b|__nv"
)
needs_gpu = pytest.mark.skipif(language() is None, reason="there is no GPU here")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_body_uses_only_what_both_preludes_define(kernel: DeviceKernel):
    assert not ONE_LANGUAGE_ONLY.search(kernel.body)
    used = set(re.findall(r"\b(?:pg_|PG_)\w+", kernel.body))
    for form in ("cuda", "metal"):
        header, source = kernel.source(form)
        assert source.endswith(kernel.body)
        before = header + source[: -len(kernel.body)]
        assert all(re.search(rf"\b{name}\b", before) for name in used)
        assert source.count("{") == source.count("}")
        assert source.count("(") == source.count(")")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("form", ["cuda", "metal"])
def test_a_body_reads_every_input_and_writes_every_output(kernel: DeviceKernel, form: Language):
    _, source = kernel.source(form)
    for name in kernel.inputs:
        assert re.search(rf"\b{name}(_shape)?\[", source)
    for name in kernel.outputs:
        assert re.search(rf"\b{name}\[[^;]*\] = ", source)
    # Metal hands over a thread attribute only if the source names it, and knows no other names for them.
    attributes = {"cuda": "threadIdx.x", "metal": "thread_position_in_threadgroup"}
    assert attributes[form] in source


@pytest.mark.skipif(language() is not None, reason="there is a GPU here")
def test_on_a_cpu_there_are_no_kernels_and_the_plain_core_is_used():
    cores = chosen_cores(2, 32, 4, 6 * 32 + 66, mx.float32)
    assert cores.one is cores.many is plain_core
    assert cores.choices == ()
    with pytest.raises(RuntimeError, match="no device kernels on a CPU"):
        mx.eval(mix_rows_kernel(mx.zeros((4, 8)), mx.zeros((2, 2), mx.int32), mx.ones((2, 2))))


@needs_gpu
@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 64, 200])
def test_the_scan_is_the_recurrence(tokens: int):
    keys = mx.random.split(mx.random.key(tokens), 6)
    heads, width = 3, 64
    q, k, v = (mx.random.normal((2, tokens, heads, width), key=key) * width**-0.5 for key in keys[:3])
    k = k / mx.linalg.norm(k, axis=-1, keepdims=True)
    g = -mx.exp(mx.random.uniform(-7, 2, (2, tokens, heads, width), key=keys[3]))
    beta = mx.random.uniform(0, 1, (2, tokens, heads), key=keys[4])
    state = mx.random.normal((2, heads, width, width), key=keys[5])
    out, after = kda_scan.kda_scan(q, k, v, g, beta, state)
    expected, memory = [], state
    for t in range(tokens):
        o, memory = delta_rule_step(q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], memory)
        expected.append(o)
    assert as_float(mx.abs(out - mx.stack(expected, axis=1)).max()) < 1e-5
    assert as_float(mx.abs(after - memory).max()) < 1e-5
    blocks, _ = delta_rule_blocks(q, k, v, g, beta, state)
    assert as_float(mx.abs(out - blocks).max()) < 5e-3  # products in TF32


@needs_gpu
@pytest.mark.parametrize("cut", [1, 3, 64, 199])
def test_a_cut_changes_no_bit(cut: int):
    p, x = random_core(4, 64, 4, 3 * 256 + 132, mx.bfloat16, 200)
    whole, window, memory = kernel_core(p, x, 200)
    first = type(x)(x.projected[:, :cut], x.forget[:, :cut], x.gate[:, :cut], x.window, x.memory)
    y, window_between, memory_between = kernel_core(p, first, cut)
    rest = type(x)(x.projected[:, cut:], x.forget[:, cut:], x.gate[:, cut:], window_between, memory_between)
    z, window_after, memory_after = kernel_core(p, rest, 200 - cut)
    assert mx.array_equal(mx.concatenate([y, z], axis=1), whole).item()
    assert mx.array_equal(window, window_after).item()
    assert mx.array_equal(memory, memory_after).item()


@needs_gpu
@pytest.mark.parametrize("tokens", [1, 64])
def test_the_weighted_sum_is_its_twin(tokens: int):
    rows = mx.random.normal((100, 300)).astype(mx.bfloat16)
    places = mx.random.randint(0, 100, (tokens, 8)).astype(mx.int32)
    weights = mx.random.uniform(0, 1, (tokens, 8))
    gap = mx.abs(mix_rows_kernel(rows, places, weights) - mix_rows(rows, places, weights)).max()
    assert as_float(gap) < 0.05
