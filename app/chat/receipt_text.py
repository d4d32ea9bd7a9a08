"""A receipt in words: for the receipt's window, its Copy button and the tour."""

from PySide6.QtCore import QCoreApplication

from app import wording
from app.wording import duration, number, size, speed, tokens
from engine.api import GenerationStats, LayerPosition, Receipt, ReceiptPart

translate = QCoreApplication.translate


def headline(receipt: Receipt) -> str:
    """What the receipt says, in one sentence."""
    if receipt.closed:
        return translate("receipt", "All {n} of the prompt were read").format(n=tokens(receipt.prompt_tokens))
    return translate("receipt", "{read} of {n} were read; nothing was answered from them").format(
        read=number(receipt.read), n=tokens(receipt.prompt_tokens)
    )


def parts(receipt: Receipt) -> list[ReceiptPart]:
    """The parts in order; the control tokens between them are summed up at the end."""
    said = [part for part in receipt.parts if part.kind != "format"]
    control = sum(part.tokens for part in receipt.parts if part.kind == "format")
    return [*said, ReceiptPart("format", "", control)] if control else said


def part_label(part: ReceiptPart) -> str:
    """What a part of the prompt is called."""
    kinds = {
        "format": translate("receipt", "Chat format"),
        "system": translate("receipt", "System prompt"),
        "document": translate("receipt", "Document"),
        "user": translate("receipt", "Question"),
        "assistant": translate("receipt", "Earlier answer"),
    }
    kind = kinds.get(part.kind, part.kind.capitalize())
    return f"{kind} · {part.label}" if part.label and part.kind == "document" else kind


def slice_label(start: int, end: int) -> str:
    """A slice by its first and last token, counted from 1 as people do."""
    return f"{number(start + 1)}–{number(end)}"


def layers_sentence(receipt: Receipt) -> str:
    """Whether the layers agree."""
    positions = {layer.position for layer in receipt.layers}
    if len(positions) == 1:
        return translate("receipt", "All {n} layer states stand at token {position}").format(
            n=len(receipt.layers), position=number(positions.pop())
        )
    return translate("receipt", "The layer states do not agree")


def layer_name(layer: LayerPosition) -> str:
    """A layer by number and kind."""
    return f"{layer.layer} {layer.kind.upper()}"


def measures(stats: GenerationStats) -> list[tuple[str, str]]:
    """Times, speeds and memory, as names with values."""
    return [
        (
            translate("receipt", "Reading"),
            f"{duration(stats.prefill_seconds)} · {speed(stats.prefill_tokens_per_second)}",
        ),
        (
            translate("receipt", "Writing"),
            f"{tokens(stats.generated_tokens)} · {duration(stats.decode_seconds)}"
            f" · {speed(stats.decode_tokens_per_second)}",
        ),
        (translate("receipt", "Peak memory"), size(stats.peak_memory_bytes)),
    ]


def as_text(receipt: Receipt, stats: GenerationStats | None) -> str:
    """The whole receipt as plain text."""
    lines = [headline(receipt), wording.account(receipt)]
    if receipt.problem:
        lines.append(receipt.problem)
    lines += ["", translate("receipt", "Parts")]
    lines += [f"  {part_label(part)}: {tokens(part.tokens)}" for part in parts(receipt)]
    lines += ["", translate("receipt", "Plan"), f"  {receipt.plan.explanation}"]
    if receipt.plan.reused:
        lines.append(f"  {translate('receipt', 'Reused from a snapshot')}: {tokens(receipt.plan.reused)}")
    lines += ["", translate("receipt", "Slices read")]
    lines += [f"  {slice_label(start, end)}: {tokens(end - start)}" for start, end in receipt.executed]
    lines += ["", layers_sentence(receipt)]
    lines += [f"  {layer_name(layer)}: {number(layer.position)}" for layer in receipt.layers]
    if stats is not None:
        lines += ["", translate("receipt", "Measured")]
        lines += [f"  {name}: {value}" for name, value in measures(stats)]
    lines.append("")
    lines.append(
        translate("receipt", "Receipt closed")
        if receipt.closed
        else translate("receipt", "Receipt not closed")
    )
    return "\n".join(lines)
