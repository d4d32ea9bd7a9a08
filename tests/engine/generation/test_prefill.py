"""How a prompt is to be read: the gate as a table, and the shape of every plan."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.api import PREFILL_CHUNK
from engine.errors import SettingError
from engine.generation.prefill import BLOCK, PrefillPlan, PrefillPolicy

CHUNK = 512


@pytest.mark.parametrize(
    ("configured", "tokens", "reused", "supported", "reason", "slices"),
    [
        # one chunk long is one pass, a token more is two
        (CHUNK, 1, 0, True, "fits", 1),
        (CHUNK, CHUNK - 1, 0, True, "fits", 1),
        (CHUNK, CHUNK, 0, True, "fits", 1),
        (CHUNK, CHUNK + 1, 0, True, "chunked", 2),
        (CHUNK, CHUNK + 2, 0, True, "chunked", 2),
        (CHUNK, 2 * CHUNK, 0, True, "chunked", 2),
        (CHUNK, 2 * CHUNK + 1, 0, True, "chunked", 3),
        # 0 never chunks
        (0, 1, 0, True, "off", 1),
        (0, 1_000_000, 0, True, "off", 1),
        (0, 1_000_000, 999, True, "off", 1),
        (0, 1_000_000, 0, False, "off", 1),
        # a model that opted out never chunks
        (CHUNK, CHUNK, 0, False, "single_pass_model", 1),
        (CHUNK, CHUNK + 1, 0, False, "single_pass_model", 1),
        (64, 1_000_000, 0, False, "single_pass_model", 1),
        # what is reused does not count
        (CHUNK, 4 * CHUNK, 3 * CHUNK, True, "fits", 1),
        (CHUNK, 4 * CHUNK, 3 * CHUNK - 1, True, "chunked", 2),
        (CHUNK, 100_000, 99_999, True, "fits", 1),
        (CHUNK, 100_000, 100_000 - CHUNK, True, "fits", 1),
        # the ends of the range
        (PREFILL_CHUNK.low, 65, 0, True, "chunked", 2),
        (PREFILL_CHUNK.high, 32768, 0, True, "fits", 1),
        (PREFILL_CHUNK.high, 32769, 0, True, "chunked", 2),
    ],
)
def test_the_gate(configured: int, tokens: int, reused: int, supported: bool, reason: str, slices: int):
    plan = PrefillPolicy(configured).plan(tokens, reused, supported=supported)
    assert (plan.reason, len(plan.slices)) == (reason, slices)


def test_a_remainder_of_one_token_is_rebalanced_with_its_neighbour():
    assert PrefillPolicy(512).plan(1025).slices == ((0, 512), (512, 960), (960, 1025))
    assert PrefillPolicy(512).plan(513).slices == ((0, 448), (448, 513))
    assert PrefillPolicy(64).plan(65).slices == ((0, 32), (32, 65))


def test_two_tokens_over_are_a_slice_of_their_own():
    assert PrefillPolicy(512).plan(1026).slices == ((0, 512), (512, 1024), (1024, 1026))


def test_a_reading_resumed_off_the_grid_meets_it_again_at_its_first_boundary():
    assert PrefillPolicy(512).plan(1400, 100).slices == ((100, 576), (576, 1088), (1088, 1400))


def test_the_default_chunk_and_its_range_are_those_of_the_design():
    assert (PREFILL_CHUNK.default, PREFILL_CHUNK.low, PREFILL_CHUNK.high) == (2048, 64, 32768)
    assert PREFILL_CHUNK.environment_variable == "PERIGEE_PREFILL_CHUNK"


chunks = st.one_of(
    st.integers(PREFILL_CHUNK.low, 3000),
    st.integers(1, 64).map(lambda n: 64 * n),
    st.integers(PREFILL_CHUNK.low, PREFILL_CHUNK.high),
)


@st.composite
def prompts(draw: st.DrawFn) -> tuple[int, int, int]:
    """(chunk, tokens, reused), with remainders near the boundaries more often than chance has them."""
    chunk = draw(chunks)
    reused = draw(st.one_of(st.just(0), st.integers(0, 5000), st.integers(0, 80).map(lambda n: 64 * n)))
    near = st.tuples(st.integers(0, 5), st.integers(-3, 3)).map(lambda p: p[0] * chunk + p[1])
    remaining = draw(st.one_of(near, st.integers(1, 20_000)))
    return chunk, reused + max(1, remaining), reused


@given(prompts())
def test_slices_cover_what_remains_exactly_and_none_is_empty_or_too_long(prompt: tuple[int, int, int]):
    chunk, tokens, reused = prompt
    plan = PrefillPolicy(chunk).plan(tokens, reused)
    position = reused
    for start, end in plan.slices:
        assert start == position
        assert 0 < end - start <= chunk
        position = end
    assert position == tokens


@given(prompts())
def test_no_slice_holds_one_token_unless_only_one_is_left_to_read(prompt: tuple[int, int, int]):
    chunk, tokens, reused = prompt
    sizes = [end - start for start, end in PrefillPolicy(chunk).plan(tokens, reused).slices]
    assert 1 not in sizes or sizes == [1] == [tokens - reused]


@given(prompts())
def test_a_prompt_is_chunked_exactly_if_more_remains_than_one_chunk(prompt: tuple[int, int, int]):
    chunk, tokens, reused = prompt
    plan = PrefillPolicy(chunk).plan(tokens, reused)
    assert (plan.reason == "chunked") == (tokens - reused > chunk) == (len(plan.slices) > 1)


@given(prompts())
def test_without_chunking_there_is_always_one_slice(prompt: tuple[int, int, int]):
    chunk, tokens, reused = prompt
    whole = ((reused, tokens),)
    assert PrefillPolicy(0).plan(tokens, reused).slices == whole
    assert PrefillPolicy(chunk).plan(tokens, reused, supported=False).slices == whole


@given(prompts())
def test_boundaries_stand_on_the_grid_when_the_chunk_is_whole_blocks(prompt: tuple[int, int, int]):
    chunk, tokens, reused = prompt
    chunk = max(2 * BLOCK, chunk // BLOCK * BLOCK)  # one block leaves no room to rebalance on the grid
    slices = PrefillPolicy(chunk).plan(tokens, reused).slices
    assert all(end % BLOCK == 0 for _, end in slices[:-1])


@given(st.integers(1, 5000))
def test_from_the_beginning_even_single_blocks_stand_on_the_grid(tokens: int):
    assume(tokens % BLOCK != 1)
    assert all(end % BLOCK == 0 for _, end in PrefillPolicy(BLOCK).plan(tokens).slices[:-1])


@given(prompts())
def test_a_plan_is_told_in_a_sentence_with_its_numbers(prompt: tuple[int, int, int]):
    chunk, tokens, reused = prompt
    plan = PrefillPolicy(chunk).plan(tokens, reused)
    assert plan.explanation.endswith(".")
    assert f"{chunk:,}" in plan.explanation
    if plan.reason == "chunked":
        assert str(len(plan.slices)) in plan.explanation


def test_a_model_s_own_sentence_is_shown():
    plan = PrefillPolicy(512).plan(2000, supported=False, single_pass_reason="it looks both ways.")
    assert plan.explanation.endswith("has no effect here: it looks both ways.")


@pytest.mark.parametrize(("tokens", "reused"), [(0, 0), (5, 5), (5, 6), (5, -1), (-3, 0)])
def test_a_plan_always_leaves_at_least_one_token_to_read(tokens: int, reused: int):
    with pytest.raises(SettingError, match="at least one must be read"):
        PrefillPolicy(512).plan(tokens, reused)


@pytest.mark.parametrize(
    "slices",
    [
        (),
        ((0, 10),),
        ((0, 50), (50, 50), (50, 100)),
        ((0, 60), (50, 100)),
        ((0, 40), (50, 100)),
        ((0, 101),),
        ((1, 100),),
    ],
)
def test_a_plan_that_does_not_cover_its_prompt_cannot_be_made(slices: tuple[tuple[int, int], ...]):
    with pytest.raises(ValueError, match="slices"):
        PrefillPlan(100, 0, slices, "chunked", "by hand", 64)


@pytest.mark.parametrize("value", [1, 63, -1, 32769, 10**9])
def test_a_setting_outside_the_range_is_refused_with_the_range(value: int):
    for make in (PrefillPolicy, PrefillPolicy.from_setting):
        with pytest.raises(SettingError, match=f"between 64 and 32768.*{value}"):
            make(value)


@pytest.mark.parametrize("value", [0, 64, 65, 2048, 32768])
def test_every_value_of_the_range_is_taken(value: int):
    assert PrefillPolicy.from_setting(value).configured == value


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("64", 64), ("512", 512), (" 512 ", 512)])
def test_the_environment_overrides_the_setting(text: str, value: int):
    policy = PrefillPolicy.from_setting(2048, {"PERIGEE_PREFILL_CHUNK": text})
    assert (policy.configured, policy.source) == (value, "environment")
    assert policy.plan(10_000).info().source == "environment"


def test_the_environment_overrides_even_a_setting_that_would_be_refused():
    assert PrefillPolicy.from_setting(7, {"PERIGEE_PREFILL_CHUNK": "512"}).configured == 512


@pytest.mark.parametrize("text", ["", "  ", "abc", "63", "-1", "32769", "999999999", "512.5", "0x40", "1e3"])
def test_a_bad_value_in_the_environment_is_refused_naming_the_variable_and_the_range(
    text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PERIGEE_PREFILL_CHUNK", text)
    with pytest.raises(SettingError) as refused:
        PrefillPolicy.from_setting(2048)
    message = str(refused.value)
    assert all(piece in message for piece in ("PERIGEE_PREFILL_CHUNK", "64", "32768", "0 "))


def test_without_the_variable_the_setting_is_in_force():
    policy = PrefillPolicy.from_setting(512, {})
    assert (policy.configured, policy.source) == (512, "setting")


def test_a_prefill_resumed_one_token_before_the_grid_meets_it_at_its_second_boundary():
    plan = PrefillPolicy(64).plan(400, 63)
    assert all(end % 64 == 0 for _, end in plan.slices[1:-1])
    assert all(2 <= end - start <= 64 for start, end in plan.slices)
