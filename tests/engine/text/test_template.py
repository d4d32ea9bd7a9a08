"""A chat template is code from a stranger: it gets the usual helpers, and no way to do harm."""

import time
from datetime import datetime

import pytest

from engine.errors import ChatTemplateError
from engine.text import template as module
from engine.text.template import ChatTemplate

MESSAGES = [{"role": "user", "content": "Q"}]


def render(source: str) -> str:
    return ChatTemplate(source, {"bos_token": "[BOS]"}).render(MESSAGES)


# --- what templates expect ---


def test_block_lines_leave_no_white_space():
    assert (
        render("{% for m in messages %}\n    {% if m %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n")
        == "Q\n"
    )


def test_break_and_continue_work():
    assert render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}"
                  "{% if i == 3 %}{% break %}{% endif %}{% endfor %}") == "023"  # fmt: skip


def test_json_is_written_as_models_were_trained_to_see_it():
    assert render("{{ {'b': '<é>', 'a': 1} | tojson }}") == '{"b": "<é>", "a": 1}'
    assert render("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}") == '{"a":2,"b":1}'
    assert render("{{ [1] | tojson(indent=2) }}") == "[\n  1\n]"


def test_loops_know_their_length_and_ends():
    counted = (
        "{% for c in 'abc' %}{{ loop.index }}/{{ loop.length }}{{ '.' if loop.last else ',' }}{% endfor %}"
    )
    assert render(counted) == "1/3,2/3,3/3."
    assert render("{% for x in nothing %}x{% else %}none{% endfor %}") == "none"
    assert render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}") == "a1"


def test_recursive_loops_and_macros_work():
    nested = "{% for n in [[1, [2]], 3] recursive %}{{ loop(n) if n is iterable else n }}{% endfor %}"
    assert render(nested) == "123"
    assert render("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) }}") == "<1>"


def test_the_date_and_the_names_of_tokens_are_there():
    assert render("{{ strftime_now('%Y') }}") == datetime.now().astimezone().strftime("%Y")
    assert render("{{ bos_token }}{{ add_generation_prompt }}{{ tools is none }}") == "[BOS]TrueTrue"


def test_text_is_not_escaped_for_html():
    assert render("{{ '<|im_end|>' }}") == "<|im_end|>"


# --- what they may not do ---


def test_a_refusal_of_the_template_is_passed_on_in_its_words():
    with pytest.raises(ChatTemplateError, match="refuses the conversation: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ self.__init__.__globals__.json }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ range(10**9) | list }}",
        "{{ undefined_thing.field }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages[7].content }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ '{0.__class__.__mro__}'.format(1).nope.nope }}",
    ],
)
def test_what_goes_wrong_in_a_template_is_one_kind_of_error(source: str):
    with pytest.raises(ChatTemplateError, match="chat template"):
        render(source)


@pytest.mark.parametrize("source", ["{% for %}", "{{ 'a", "{% unknown %}", "{{ x | no_such_filter }}"])
def test_a_syntax_error_is_found_when_the_template_is_read(source: str):
    with pytest.raises(ChatTemplateError, match="line 1"):
        ChatTemplate(source, {})


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = a %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}",
        "{% for n in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
    ],
)
def test_an_endless_template_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TIME_LIMIT", 0.2)
    begun = time.monotonic()
    with pytest.raises(ChatTemplateError, match=r"did not end|RecursionError"):
        render(source)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [0] * 10**9 }}",
        "{{ 10**10**10 }}",
        "{% for i in range(9999) %}{{ 'a' * 9999 }}{% endfor %}",
    ],
)
def test_a_template_that_writes_without_end_is_stopped(source: str):
    begun = time.monotonic()
    with pytest.raises(ChatTemplateError, match=r"repeats|huge|writes over"):
        render(source)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    "source",
    [
        '{{ "%0999999999d" % 1 }}',
        '{{ "%999999999s" % "x" }}',
        '{% set form = "%0999999999d" %}{{ form % (1,) }}',
        '{{ "x".center(10**10) }}',
        '{{ "x".ljust(10**10) }}',
        '{{ "x".rjust(10**10) }}',
        '{{ "1".zfill(10**10) }}',
        '{{ "\\t".expandtabs(10**10) }}',
        '{{ "{:9999999}".format(1) }}',
        '{{ "{x:9999999}".format_map({"x": 1}) }}',
        '{% set pad = "x".center %}{{ pad(10**10) }}',
        '{{ ("x" | attr("center"))(10**10) }}',
        '{{ "x"["center"](10**10) }}',
        "{{ 'x' | center(10**10) }}",
        "{{ '%0999999999d' | format(1) }}",
        "{{ 'x y' | wordwrap(1, wrapstring='x' * 4000000) }}",
        "{{ 'x' | indent(10**10, first=true) }}",
        "{{ ['x'] | map('center', 10**10) | join }}",
        "{{ ['%0999999999d'] | map('format', 1) | join }}",
        "{% filter indent(10**10, true) %}x{% endfilter %}",
    ],
)
def test_a_text_cannot_be_padded_to_any_width(source: str):
    begun = time.monotonic()
    with pytest.raises(ChatTemplateError) as refused:
        render(source)
    assert time.monotonic() - begun < 2
    assert "writes over" not in str(refused.value)  # by then the text has been made


def test_remainders_of_numbers_are_still_computed():
    """Every second turn is what templates use them for."""
    assert render("{% for m in [1, 2, 3] %}{{ loop.index0 % 2 }}{% endfor %}{{ 7 % 4 }}") == "0103"


@pytest.mark.parametrize(
    "source",
    [
        "{% set ns = namespace(s='abcd') %}{% for i in range(21) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"
        "{{ ns.s | length }}",
        "{% set ns = namespace(s='abcd') %}{% for i in range(21) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
        "{{ ns.s | length }}",
        "{{ [1] | tojson(indent=10**7) | length }}",
        "{{ [1] | batch(5 * 10**6, 'x') | list | length }}",
        "{{ ('a' * 4000).replace('a', 'a' * 4000) | length }}",
        "{{ (['a' * 1000000] * 8) | join | length }}",
    ],
)
def test_a_text_cannot_grow_beyond_the_limit_without_being_written(source: str):
    """Small enough here to do no harm: one more zero, or thirty rounds, and it is all the memory there is."""
    with pytest.raises(ChatTemplateError):
        render(source)


def test_after_a_failure_the_template_can_be_used_again():
    template = ChatTemplate("{% if messages | length > 1 %}{{ 1 / 0 }}{% endif %}fine", {})
    with pytest.raises(ChatTemplateError):
        template.render(MESSAGES * 2)
    assert template.render(MESSAGES) == "fine"
