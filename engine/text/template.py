"""A checkpoint's chat template, run in a sandbox.

A template is code from a stranger: it may not reach Python's internals, change what it is given,
write without end or loop without end. Whatever goes wrong in it is a `ChatTemplateError`.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import ChatTemplateError
from engine.text.bounds import LIMIT, MAX_INDENT, call_size, joined_size, replaced_size, result_size

OUTPUT_LIMIT = LIMIT
"""Longest text a template may write, in characters. Contents are not part of it, so this is plenty."""

TIME_LIMIT = 10.0
"""Longest time a template may run, in seconds."""

_REPAIR = "Put a working chat_template.jinja into the model's folder, or download the model again."
_UNBOUNDED_FILTERS = ("batch", "center", "filesizeformat", "format", "indent", "slice", "wordwrap")
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "format", "format_map", "expandtabs"})
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """The chat template of a checkpoint, compiled once and rendered for each prompt, one at a time."""

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        """Compile `source`; `variables` are the names of tokens that it may use.

        Raises:
            ChatTemplateError: the template has a syntax error.
        """
        self._environment = _Sandbox()
        self._variables = dict(variables)
        try:
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"The chat template of this model has an error in line {error.lineno}: "
                f"{error.message}. {_REPAIR}"
            ) from error
        except Exception as error:
            raise ChatTemplateError(
                f"The chat template of this model cannot be compiled "
                f"({type(error).__name__}: {error}). {_REPAIR}"
            ) from error

    def render(self, messages: list[dict[str, str]]) -> str:
        """The conversation as text, ending where the model's answer begins.

        Raises:
            ChatTemplateError: the template refuses the conversation, fails, or goes beyond a limit.
        """
        self._environment.start_clock()
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(
                {**self._variables, "messages": messages, "add_generation_prompt": True, "tools": None}
            ):
                size += len(piece)
                if size > OUTPUT_LIMIT:
                    raise ChatTemplateError(
                        f"The chat template of this model writes over {OUTPUT_LIMIT} characters. {_REPAIR}"
                    )
                self._environment.check_clock()
                pieces.append(piece)
        except ChatTemplateError:
            raise
        except Exception as error:  # The template is foreign code: it can raise anything.
            raise ChatTemplateError(
                f"The chat template of this model failed ({type(error).__name__}: {error}). {_REPAIR}"
            ) from error
        return "".join(pieces)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with the settings and helpers that chat templates expect, and with an end to patience."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        for name in _UNBOUNDED_FILTERS:
            self.filters.pop(name, None)
        own: dict[str, Callable[..., Any]] = {
            "tojson": _to_json,
            "replace": self._replace,
            "join": self._join,
            "_bounded": self._bounded,
        }
        self.filters.update(own)
        self.filters["_steps"] = self._steps
        helpers = cast(dict[str, object], self.globals)
        helpers.pop("lipsum", None)
        helpers.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        self._deadline = float("inf")

    def start_clock(self) -> None:
        """A new rendering begins."""
        self._deadline = time.monotonic() + TIME_LIMIT

    def check_clock(self) -> None:
        """Raise `ChatTemplateError` if the rendering has run for too long."""
        if time.monotonic() > self._deadline:
            raise ChatTemplateError(
                f"The chat template of this model did not end within {TIME_LIMIT:g} seconds. {_REPAIR}"
            )

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Every call of a template passes here, as (context, function, arguments...)."""
        self.check_clock()
        self._require_size(call_size(args[1], args[2:]))
        return super().call(*args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Operators that could ask for gigabytes in one step."""
        self._require_size(result_size(operator, left, right))
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> None:  # noqa: ARG002 - Jinja's signature
        """No formatting at all, not even the sandbox's own: a width in it can be any number."""
        return

    def _require_size(self, size: int) -> None:
        if size > OUTPUT_LIMIT:
            raise ChatTemplateError(
                "The chat template of this model repeats, pads or formats a text, or computes a huge "
                f"number, beyond what is allowed. {_REPAIR}"
            )

    def _bounded(self, text: Any) -> Any:
        """What `~` joined; it can at most have doubled."""
        self._require_size(len(text))
        return text

    def _replace(self, text: object, old: str, new: str, count: int = -1) -> str:
        self._require_size(replaced_size(str(text), old, new))
        return str(text).replace(old, new, count)

    def _join(self, items: Iterable[object], separator: str = "", attribute: str | None = None) -> str:
        found = [getattr(item, attribute) if attribute else item for item in items]
        self._require_size(joined_size(separator, found))
        return separator.join(map(str, found))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Also keep templates from padding a text to any width they like."""
        return attr not in _PADDING and super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse, and let every loop go through `_steps`."""
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "_steps", [], [], None, None, lineno=loop.lineno)
        _bound_concatenations(tree)
        return tree

    def _steps(self, items: Any) -> "Iterable[object]":
        return _Steps(items, self.check_clock)


def _bound_concatenations(node: nodes.Node) -> None:
    """Let the result of every `~` below `node` go through `_bounded`."""
    for field, value in list(node.iter_fields()):
        members = cast(list[object], value) if isinstance(value, list) else [value]
        for place, member in enumerate(members):
            if not isinstance(member, nodes.Node):
                continue
            _bound_concatenations(member)
            if isinstance(member, nodes.Concat):
                members[place] = nodes.Filter(member, "_bounded", [], [], None, None, lineno=member.lineno)
        if not isinstance(value, list):
            setattr(node, field, members[0])


class _Steps:
    """What a loop runs over, with a look at the clock before each step."""

    def __init__(self, items: Any, check: Callable[[], None]) -> None:
        self._items = items
        self._check = check

    def __iter__(self) -> Iterator[object]:
        for item in self._items:
            self._check()
            yield item

    def __len__(self) -> int:
        return len(self._items)


def _raise_exception(message: object) -> NoReturn:
    raise ChatTemplateError(f"The chat template of this model refuses the conversation: {message}")


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as a model was trained to see it: not escaped for HTML, unlike Jinja's own filter."""
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise ChatTemplateError(
            f"The chat template of this model indents JSON by {indent}, which is too much. {_REPAIR}"
        )
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


# --- where a checkpoint keeps its template ---


def load_template(folder: Path) -> ChatTemplate | None:
    """The template of the checkpoint in `folder`, or None if there is none.

    Looked for in this order: chat_template.jinja, chat_template.json, tokenizer_config.json.

    Raises:
        ChatTemplateError: a file with a template is unreadable or damaged, or the template is.
    """
    config = _read_object(folder / "tokenizer_config.json")
    source = _read_text(folder / "chat_template.jinja")
    for holder in (_read_object(folder / "chat_template.json"), config):
        if source is None:
            source = _default_template(holder.get("chat_template"))
    if source is None or not source.strip():
        return None
    return ChatTemplate(source, _token_variables(config))


def _default_template(value: object) -> str | None:
    """The template itself, or the one called "default" in a list of {name, template}."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else None
    named: dict[object, object] = {
        cast(dict[str, object], entry).get("name"): cast(dict[str, object], entry).get("template")
        for entry in cast(list[object], value)
        if isinstance(entry, dict)
    }
    chosen = named.get("default")
    if named and not isinstance(chosen, str):
        raise ChatTemplateError(
            f"This model has chat templates named {', '.join(map(str, named))}, "
            f"but none named default. {_REPAIR}"
        )
    return chosen if isinstance(chosen, str) else None


def _token_variables(config: dict[str, Any]) -> dict[str, str]:
    """Spelling of the named tokens, which templates may use by name."""
    variables: dict[str, str] = {}
    for name in _TOKEN_NAMES:
        value = config.get(name)
        spelled = cast(dict[str, object], value).get("content") if isinstance(value, dict) else value
        if isinstance(spelled, str):
            variables[name] = spelled
    return variables


def _read_text(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatTemplateError(
            f"{path.name} in {path.parent} cannot be read ({error}). {_REPAIR}"
        ) from error


def _read_object(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    if text is None:
        return {}
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChatTemplateError(f"{path.name} in {path.parent} is damaged ({error}). {_REPAIR}") from error
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
