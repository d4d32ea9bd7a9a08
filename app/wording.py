"""Numbers and short sentences as the window shows them: pure functions, no widgets."""

from pathlib import Path

from PySide6.QtCore import QCoreApplication

from app.resources import DEMO_MODEL
from engine.api import GenerationStats, PrefillProgress, Receipt

translate = QCoreApplication.translate


def number(value: float) -> str:
    """A whole number with its thousands grouped: 118,265."""
    return f"{round(value):,}"


def speed(tokens_per_second: float) -> str:
    """Tokens per second: two figures below ten, whole above."""
    shown = f"{tokens_per_second:.1f}" if tokens_per_second < 10 else number(tokens_per_second)
    return translate("wording", "{speed} tok/s").format(speed=shown)


def duration(seconds: float) -> str:
    """A time span: 0.8 s, 58 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 10:
        return translate("wording", "{n} s").format(n=f"{seconds:.1f}")
    whole = round(seconds)
    if whole < 60:
        return translate("wording", "{n} s").format(n=whole)
    if whole < 3600:
        return translate("wording", "{m} min {s} s").format(m=whole // 60, s=whole % 60)
    return translate("wording", "{h} h {m} min").format(h=whole // 3600, m=whole % 3600 // 60)


def brief_time(seconds: float) -> str:
    """A measured time in `seconds`, short: 0.82 ms, 35 ms, 2.6 s."""
    if seconds >= 1:
        return translate("wording", "{n} s").format(n=f"{seconds:.1f}")
    milliseconds = seconds * 1e3
    if milliseconds >= 10:
        shown = number(milliseconds)
    else:
        shown = f"{milliseconds:.2f}" if milliseconds >= 0.1 else f"{milliseconds:.3f}"
    return translate("wording", "{n} ms").format(n=shown)


def size(amount: int) -> str:
    """An amount of memory, `amount` in bytes: 12.6 MB, 38.3 GB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= factor:
            return f"{amount / factor:.1f} {unit}"
    return f"{amount} B"


def share(done: int, total: int) -> int:
    """Percent of `total`, never 100 before all is done."""
    return 100 if done >= total else done * 100 // total


def tokens(count: int) -> str:
    """A token count with its unit."""
    return (
        translate("wording", "1 token")
        if count == 1
        else translate("wording", "{n} tokens").format(n=number(count))
    )


def seconds_left(seconds: float) -> str:
    """A forecast: rounded the further away it is."""
    if seconds < 1.5:
        return translate("wording", "about 1 s left")
    if seconds < 59.5:
        return translate("wording", "about {n} s left").format(n=round(seconds))
    return translate("wording", "about {m} min left").format(m=max(1, round(seconds / 60)))


def reading(progress: PrefillProgress, left: float | None) -> str:
    """The line under the bar while a prompt is read; `left` is the time left by now, in seconds."""
    parts = [
        translate("wording", "{done} of {total} tokens").format(
            done=number(progress.done), total=number(progress.total)
        ),
        f"{share(progress.done, progress.total)} %",
    ]
    if progress.tokens_per_second > 0:
        parts.append(speed(progress.tokens_per_second))
    if left is not None and progress.done < progress.total:
        parts.append(seconds_left(left))
    return " · ".join(parts)


def passes(receipt: Receipt) -> str:
    """In how many slices the prompt was read."""
    if len(receipt.executed) == 1:
        return translate("wording", "in one pass")
    return translate("wording", "in {n} chunks").format(n=len(receipt.executed))


def account(receipt: Receipt) -> str:
    """What was read of the prompt, in one phrase."""
    total = number(receipt.prompt_tokens)
    if receipt.plan.reused:
        return translate("wording", "reused {reused}, read {read} of {total} tokens {passes}").format(
            reused=number(receipt.plan.reused),
            read=number(receipt.read - receipt.plan.reused),
            total=total,
            passes=passes(receipt),
        )
    return translate("wording", "read {read} of {total} tokens {passes}").format(
        read=number(receipt.read), total=total, passes=passes(receipt)
    )


def receipt_line(receipt: Receipt, stats: GenerationStats) -> str:
    """The line under an answer."""
    parts = [account(receipt), tokens(stats.generated_tokens)]
    if stats.generated_tokens and stats.decode_tokens_per_second > 0:
        parts.append(speed(stats.decode_tokens_per_second))
    return " · ".join(parts)


def stopped_while_reading(read: int, total: int) -> str:
    """What is said of a prompt whose reading was stopped; `total` 0 if it had not begun."""
    if total == 0:
        return translate("wording", "Stopped before reading began; nothing was answered")
    return translate("wording", "Stopped after {read} of {total} tokens; nothing was answered").format(
        read=number(read), total=number(total)
    )


def model_name(folder: Path | None) -> str:
    """A model by the name of its folder; the one that comes with the app by a name of its own."""
    if folder is None:
        return ""
    return "Kimi Linear demo" if folder.resolve() == DEMO_MODEL else folder.resolve().name
