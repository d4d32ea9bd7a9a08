"""Receipts to show, without an engine that made them."""

from engine.api import (
    GenerationStats,
    LayerPosition,
    PrefillPlanInfo,
    Receipt,
    ReceiptPart,
)


def receipt(total: int, slices: tuple[tuple[int, int], ...], reused: int = 0, closed: bool = True) -> Receipt:
    plan = PrefillPlanInfo(total, reused, slices, "chunked", "5 chunks.", 2048)
    parts = (
        ReceiptPart("format", "", 3),
        ReceiptPart("document", "report.pdf", total - 24),
        ReceiptPart("format", "", 1),
        ReceiptPart("user", "question", 20),
    )
    layers = (LayerPosition(0, "kda", total), LayerPosition(1, "mla", total))
    return Receipt(total, parts, plan, slices, layers, closed)


STATS = GenerationStats(9214, 312, 7.0, 1316.0, 8.2, 38.04, 12_600_000)
FIVE = ((0, 2048), (2048, 4096), (4096, 6144), (6144, 8192), (8192, 9214))
