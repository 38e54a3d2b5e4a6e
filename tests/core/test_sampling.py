"""Draws: laws and moments, keys, blocks, threads, types, mirrors, refusals."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from anyinit._core import sampling
from anyinit._core.sampling import BLOCK, base_shape, draw, draw_block, draw_group, draw_span, table
from anyinit.errors import ConfigError

LAWS = ("normal", "truncated_normal", "uniform")
TYPES = ("float32", "float64", "complex64", "complex128")
GOLDEN = {
    "normal": "a3499c175b61",
    "truncated_normal": "e1059109db62",
    "uniform": "cffdc27dcdb3",
    "orthogonal": "5d6c6f636f72",
}
CUT_STD = 0.8796256610342398  # of a standard normal cut at two


def truth(law: str) -> stats.rv_continuous:
    if law == "normal":
        return stats.norm()
    if law == "uniform":
        return stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))
    return stats.truncnorm(-2, 2, scale=1 / CUT_STD)


@pytest.mark.parametrize("law", LAWS)
def test_the_table_has_the_moments_of_its_law(law: str) -> None:
    values = table(law)
    assert values.mean() == 0
    for order in (2, 4, 6):
        assert np.mean(values**order) == pytest.approx(truth(law).moment(order), rel=1e-8)
    assert len(np.unique(values)) == 2**16
    np.testing.assert_array_equal(values, -values[::-1])
    assert values.max() <= truth(law).support()[1]


@pytest.mark.parametrize("law", LAWS)
def test_the_table_follows_the_distribution_function(law: str) -> None:
    centre = (np.arange(2**16) + 0.5) / 2**16
    assert np.abs(truth(law).cdf(table(law)) - centre).max() < 1e-4


@pytest.mark.parametrize("law", ["normal", "truncated_normal"])
def test_no_table_entry_hangs_on_the_last_bits_of_a_math_library(law: str) -> None:
    """Every entry is at least 200 double roundings away from where float32 would round the other way."""
    half = sampling._quantile(law, (np.arange(2**15) + 0.5) / 2**16)
    exact = sampling._bend(half, sampling._moments(law))
    near = exact.astype(np.float32)
    up, down = (np.nextafter(near, np.float32(to)).astype(float) for to in (9, 0))
    gap = np.minimum((near + up) / 2 - exact, exact - (near.astype(float) + down) / 2)
    assert (gap / exact).min() > 200 * 2.0**-53


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("law", LAWS)
def test_a_draw_follows_its_law(law: str, dtype: str) -> None:
    values = draw(3, 0, "", (1, 512, 400), law, 0.2, dtype, mean=1.0).astype(np.float64)
    z = (values.ravel() - 1.0) / 0.2
    assert stats.kstest(z, truth(law).cdf).pvalue > 1e-4
    assert abs(z.mean()) < 5 / len(z) ** 0.5
    assert abs(np.mean(z**2) - 1) < 5 * (truth(law).moment(4) - 1) ** 0.5 / len(z) ** 0.5
    lag = np.mean(z[:-1] * z[1:])
    assert abs(lag) < 5 / len(z) ** 0.5


def test_truncated_normal_states_the_deviation_after_the_cut_and_never_passes_it() -> None:
    for dtype in ("float32", "float64"):
        values = draw(0, 0, "", (1, 1000, 1000), "truncated_normal", 0.5, dtype)
        assert np.std(values, dtype=np.float64) == pytest.approx(0.5, rel=3e-3)
        assert 0.99 * 2 < np.abs(values).max() / 0.5 * CUT_STD <= 2 + 1e-7


def test_float64_draws_carry_float64_precision() -> None:
    for law in LAWS:
        values = draw(0, 0, "", (1, 200, 500), law, 1.0, "float64")
        assert len(np.unique(values)) == values.size
        rounded = values.astype(np.float32).astype(np.float64)
        assert np.mean(values != rounded) > 0.999


def test_float64_normals_reach_past_the_tails_of_the_table() -> None:
    values = draw(0, 0, "", (1, 1000, 2000), "normal", 1.0, "float64")
    assert 4.5 < np.abs(values).max() < 7.5


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_draws_have_independent_parts_and_the_modulus_at_std(law: str, dtype: str) -> None:
    w = draw(1, 0, "", (2, 300, 300), law, 0.7, dtype, mean=0.25) - 0.25
    assert w.dtype == dtype
    assert np.mean(np.abs(w) ** 2) == pytest.approx(0.49, rel=0.01)
    assert np.mean(w.real**2) == pytest.approx(0.245, rel=0.02)
    assert abs(np.mean(w.real * w.imag)) < 0.49 * 5 / w.size**0.5


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 24, 10), (3, 10, 24), (1, 16, 16), (20, 1, 9)])
def test_orthogonal_draws_are_isometries_with_the_stated_rms(shape: tuple[int, int, int], dtype: str) -> None:
    w = draw(1, 4, "q", shape, "orthogonal", 0.3, dtype)
    assert w.shape == shape and w.dtype == dtype and w.flags.c_contiguous
    eps = float(np.finfo(dtype).eps)
    assert np.mean(np.abs(w) ** 2) ** 0.5 == pytest.approx(0.3, rel=8 * eps)
    q = w / (0.3 * math.sqrt(max(shape[1:])))
    tall = q if shape[1] >= shape[2] else q.swapaxes(1, 2)
    gram = tall.conj().swapaxes(1, 2) @ tall
    assert np.abs(gram - np.eye(gram.shape[1])).max() < 20 * eps


def test_float32_orthogonal_draws_are_the_float64_ones_rounded() -> None:
    single = draw(1, 4, "", (1, 100, 80), "orthogonal", 1.0, "float32")
    double = draw(1, 4, "", (1, 100, 80), "orthogonal", 1.0, "float64")
    assert np.abs(single - double).max() < 2e-7 * np.abs(double).max()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("law", [*LAWS, "orthogonal"])
def test_the_bytes_do_not_depend_on_the_number_of_threads(law: str, dtype: str) -> None:
    shape = (2, 300, 280)
    alone = draw(9, 1, "w", shape, law, 0.1, dtype, threads=1)
    assert all(draw(9, 1, "w", shape, law, 0.1, dtype, threads=n).tobytes() == alone.tobytes() for n in (2, 5))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("law", [*LAWS, "constant"])
def test_blocks_put_together_are_the_draw(law: str, dtype: str) -> None:
    shape = (2, 250, 300)
    per = BLOCK // 2 if dtype.startswith("complex") else BLOCK
    whole = draw(9, 1, "w", shape, law, 0.1, dtype, mean=0.5).ravel()
    blocks = [draw_block(9, 1, "w", shape, b, law, 0.1, dtype, 0.5) for b in range(-(-whole.size // per))]
    assert np.concatenate(blocks).tobytes() == whole.tobytes()


@given(st.integers(0, 150_000), st.integers(0, 70_000), st.sampled_from(TYPES), st.sampled_from(LAWS))
@settings(max_examples=30, deadline=None)
def test_any_span_is_what_the_whole_draw_holds_there(start: int, count: int, dtype: str, law: str) -> None:
    whole = draw(2, 7, "k", (1, 1, 220_000), law, 0.3, dtype).ravel()
    span = draw_span(2, 7, "k", start, start + count, law, 0.3, dtype)
    assert span.tobytes() == whole[start : start + count].tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_group_of_an_orthogonal_draw_can_be_made_alone(dtype: str) -> None:
    whole = draw(2, 7, "k", (5, 30, 20), "orthogonal", 0.3, dtype)
    assert all(draw_group(2, 7, "k", (5, 30, 20), g, 0.3, dtype).tobytes() == whole[g].tobytes() for g in range(5))


def test_seed_key_part_and_nothing_else_choose_the_numbers() -> None:
    base = draw(1, 2, "q", (1, 30, 30))
    state = np.random.get_state()[1].copy()
    assert draw(1, 2, "q", (1, 30, 30)).tobytes() == base.tobytes()
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    for other in (draw(2, 2, "q", (1, 30, 30)), draw(1, 3, "q", (1, 30, 30)), draw(1, 2, "k", (1, 30, 30))):
        assert abs(np.corrcoef(base.ravel(), other.ravel())[0, 1]) < 5 / 30
    assert draw(1, 2, "q", (1, 90, 10)).tobytes() == base.tobytes()
    np.testing.assert_allclose(draw(1, 2, "q", (1, 30, 30), std=0.5), 0.5 * base, rtol=1e-6)


def test_blocks_are_independent_of_each_other() -> None:
    values = draw(0, 0, "", (1, 4, BLOCK))[0].astype(np.float64)
    correlation = np.corrcoef(values) - np.eye(4)
    assert np.abs(correlation).max() < 5 / BLOCK**0.5


def test_small_and_large_draws_agree_on_what_they_share() -> None:
    """Below half a table the scaled table is not made; the values must not show it."""
    large = draw(0, 0, "", (1, 1, 40_000), "normal", 0.123, mean=0.7)
    small = draw(0, 0, "", (1, 1, 20_000), "normal", 0.123, mean=0.7)
    assert large.ravel()[:20_000].tobytes() == small.tobytes()


@pytest.mark.parametrize("law", [*LAWS, "orthogonal"])
@pytest.mark.parametrize("mode", ["rows", "cols", "both"])
@pytest.mark.parametrize("shape", [(2, 8, 6), (2, 7, 6), (2, 8, 5), (1, 7, 5), (1, 1, 1)])
def test_mirrored_draws_repeat_their_base_with_signs(shape: tuple[int, int, int], mode: str, law: str) -> None:
    w = draw(5, 1, "", shape, law, 0.4, mirrored=mode)
    base = draw(5, 1, "", base_shape(shape, mode), law, 0.4)
    rows, cols = (n // 2 for n in shape[1:])
    part = w[:, : base.shape[1] - shape[1] % 2 * (mode != "cols"), : base.shape[2] - shape[2] % 2 * (mode != "rows")]
    np.testing.assert_allclose(part, base[:, : part.shape[1], : part.shape[2]], atol=1e-6)
    if mode != "cols":
        np.testing.assert_array_equal(w[:, rows : 2 * rows], -w[:, :rows])
    if mode != "rows":
        np.testing.assert_array_equal(w[:, :, cols : 2 * cols], -w[:, :, :cols])
    if mode != "cols" and shape[1] % 2:
        last = np.abs(w[:, -1, : part.shape[2]])
        np.testing.assert_allclose(last, np.abs(base[:, -1, : part.shape[2]]), atol=1e-6)


def test_a_mean_is_added_after_mirroring() -> None:
    w = draw(5, 1, "", (1, 8, 6), "normal", 0.4, mirrored="both", mean=0.25)
    assert w.mean(dtype=np.float64) == pytest.approx(0.25, abs=1e-7)
    np.testing.assert_allclose(w - 0.25, draw(5, 1, "", (1, 8, 6), "normal", 0.4, mirrored="both"), atol=1e-6)


@pytest.mark.parametrize("mode", ["rows", "cols", "both"])
def test_mirrored_orthogonal_entries_have_rms_std(mode: str) -> None:
    w = draw(5, 1, "", (2, 30, 50), "orthogonal", 0.4, "float64", mode)
    assert np.mean(w**2) ** 0.5 == pytest.approx(0.4, rel=1e-12)


def test_a_mirrored_orthogonal_relu_net_is_an_exact_isometry_at_any_depth() -> None:
    """relu(z) - relu(-z) = z, so [B; -B], [[A, -A], [-A, A]] ..., [A, -A] is linear (Balduzzi et al. 2017)."""
    width, depth = 24, 40
    unit = 1 / math.sqrt(width)  # the rms of an orthogonal matrix of this side
    x = np.random.default_rng(0).standard_normal((width, 5))
    h = np.maximum(draw(0, 0, "", (1, 2 * width, width), "orthogonal", unit, "float64", "rows")[0] @ x, 0)
    for key in range(1, depth):
        h = np.maximum(draw(0, key, "", (1, 2 * width, 2 * width), "orthogonal", unit, "float64", "both")[0] @ h, 0)
    y = draw(0, depth, "", (1, width, 2 * width), "orthogonal", unit, "float64", "cols")[0] @ h
    np.testing.assert_allclose(y.T @ y, x.T @ x, rtol=1e-11, atol=1e-11)


def test_constants_zero_scales_and_empty_shapes_are_plain() -> None:
    assert (draw(0, 0, "", (1, 3, 4), "constant", mean=0.1) == np.float32(0.1)).all()
    zero = draw(0, 0, "", (1, 3, 4), "orthogonal", 0.0)
    assert not zero.any() and not np.signbit(zero).any()
    assert draw(0, 0, "", (1, 0, 4), "orthogonal").shape == (1, 0, 4)


def test_float32_bytes_are_those_promised_for_every_cpu() -> None:
    shape = (1, 70, 90)
    draws = {law: draw(0, 1, "w", shape, law, 0.1).astype("<f4") for law in GOLDEN}
    digests = {law: hashlib.sha256(w.tobytes()).hexdigest()[:12] for law, w in draws.items()}
    assert digests == GOLDEN


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distribution": "cauchy"}, r"Unknown distribution\. Got: cauchy\. Use one of 'normal'"),
        ({"dtype": "float16"}, r"Unknown dtype\. Got: float16"),
        ({"mirrored": "diagonal"}, r"Unknown mirrored mode\. Got: diagonal"),
        ({"seed": -1}, r"seed is negative\. Got: -1"),
        ({"std": -1.0}, r"scale is negative or not finite"),
        ({"std": math.nan}, r"scale is negative or not finite"),
        ({"mean": math.inf}, r"scale is negative or not finite"),
        ({"shape": (2, 3)}, r"Not a canonical shape\. Got: \(2, 3\)"),
    ],
)
def test_unusable_arguments_are_refused_with_the_value(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw(**{"seed": 0, "key": 0, **arguments})  # type: ignore[arg-type]


def test_blocks_and_groups_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"No such block\. Got: 1"):
        draw_block(0, 0, "", (1, 2, 2), 1)
    with pytest.raises(ConfigError, match=r"No such group\. Got: 3"):
        draw_group(0, 0, "", (3, 2, 2), 3)
    with pytest.raises(ConfigError, match="group by group"):
        draw_span(0, 0, "", 0, 4, "orthogonal")
