"""The style sheet: only what a palette cannot say."""

from PySide6.QtGui import QColor

from app.colours import DARK, Colours, tinted


def style_sheet(colours: Colours, scale: float) -> str:
    """Rules of the whole application in `colours`, text at `scale`."""
    return _SHEET.format(
        page=colours.page,
        sidebar=colours.sidebar,
        card=colours.card,
        own=colours.own,
        text=colours.text,
        secondary=colours.secondary,
        accent=colours.accent,
        on_accent=colours.on_accent,
        error=colours.error,
        good=colours.good,
        warning=colours.warning,
        raised=colours.card if colours is not DARK else "#2B303A",
        hairline=_rgba(colours.faint(0.10)),
        selected=_rgba(colours.faint(0.08)),
        hover=_rgba(colours.faint(0.06)),
        pressed=_rgba(colours.faint(0.11)),
        handle=_rgba(colours.faint(0.18)),
        edge=_rgba(colours.faint(0.16)),
        accent_hover=_rgba(tinted(colours.accent, 0.88)),
        accent_faint=_rgba(tinted(colours.accent, 0.14)),
        half_round=round(32 * scale) // 2,
        small=round(12 * scale),
        body=round(14 * scale),
        heading=round(17 * scale),
        title=round(20 * scale),
    )


def _rgba(colour: QColor) -> str:
    return f"rgba({colour.red()},{colour.green()},{colour.blue()},{colour.alphaF():.3f})"


_SHEET = """
QToolTip {{ background: {card}; color: {text}; border: 1px solid {hairline}; padding: 4px 6px; }}
QLabel[role="secondary"], QLabel[role="error"], QLabel[role="good"], QLabel[role="warning"] {{
    font-size: {small}px; }}
QLabel[role="secondary"] {{ color: {secondary}; }}
QLabel[role="error"] {{ color: {error}; }}
QLabel[role="good"] {{ color: {good}; }}
QLabel[role="warning"] {{ color: {warning}; }}
QLabel[role="heading"] {{ font-size: {heading}px; font-weight: 600; }}
QLabel[role="title"] {{ font-size: {title}px; font-weight: 600; }}
QLabel[role="section"] {{ color: {secondary}; font-size: {small}px; font-weight: 600; }}
QLabel[role="strong"] {{ font-weight: 600; }}

QFrame#sidebar {{ background: {sidebar}; border: none; border-right: 1px solid {hairline}; }}
QFrame#header {{ border: none; border-bottom: 1px solid {hairline}; }}
QFrame#card {{ background: {card}; border: 1px solid {hairline}; border-radius: 10px; }}
QFrame#own {{ background: {own}; border: none; border-radius: 10px; }}
QFrame#chip {{ background: {card}; border: 1px solid {hairline}; border-radius: 8px; }}
QFrame#own QFrame#chip {{ border: none; }}
QFrame#chip[failed="true"] {{ border-color: {error}; }}
QFrame#notice {{ background: {card}; border: 1px solid {hairline}; border-radius: 10px; }}
QFrame#rule {{ background: {hairline}; border: none; }}

QTextEdit, QPlainTextEdit {{ background: transparent; border: none; }}
QTextEdit[role="secondary"] {{ color: {secondary}; }}
QPlainTextEdit#details {{ background: {hover}; border-radius: 8px; padding: 6px; }}
QScrollArea, QScrollArea > QWidget > QWidget#page {{ background: transparent; border: none; }}
QDialog, QMainWindow {{ background: {page}; }}

QToolButton {{ border: none; border-radius: 8px; padding: 5px; background: transparent; }}
QToolButton:hover {{ background: {hover}; }}
QToolButton:pressed, QToolButton:checked {{ background: {pressed}; }}
QToolButton:focus {{ background: {accent_faint}; }}
QToolButton::menu-indicator {{ image: none; }}
QToolButton[kind="quiet"] {{ color: {secondary}; font-size: {small}px; padding: 3px 6px; }}
QToolButton[kind="quiet"]:hover {{ color: {text}; }}
QToolButton[kind="row"] {{ padding: 7px 10px; text-align: left; }}
QToolButton[kind="round"] {{ background: {accent}; border-radius: {half_round}px; padding: 0px; }}
QToolButton[kind="round"]:hover {{ background: {accent_hover}; }}
QToolButton[kind="round"]:disabled {{ background: {pressed}; }}
QToolButton[kind="round"]:focus {{ border: 2px solid {page}; }}

QToolButton[kind="float"] {{ background: {card}; border: 1px solid {edge}; border-radius: 16px;
    padding: 6px; }}
QToolButton[kind="float"]:hover {{ background: {sidebar}; }}

QPushButton {{ background: {card}; border: 1px solid {edge}; border-radius: 8px; padding: 5px 14px; }}
QPushButton:hover {{ background: {hover}; }}
QPushButton:pressed {{ background: {pressed}; }}
QPushButton:focus {{ border-color: {accent}; }}
QPushButton:disabled {{ color: {secondary}; }}
QPushButton[kind="primary"] {{ background: {accent}; color: {on_accent}; border: 1px solid {accent}; }}
QPushButton[kind="primary"]:hover {{ background: {accent_hover}; }}
QPushButton[kind="primary"]:focus {{ border-color: {text}; }}
QPushButton[kind="link"] {{ background: transparent; border: none; color: {accent}; padding: 2px 0px;
    text-align: left; }}
QPushButton[kind="link"]:hover, QPushButton[kind="link"]:focus {{ text-decoration: underline; }}
QPushButton[kind="small"] {{ padding: 3px 10px; font-size: {small}px; }}

QLineEdit, QSpinBox, QDoubleSpinBox {{ background: {card}; border: 1px solid {edge};
    border-radius: 8px; padding: 5px 8px; selection-background-color: {accent}; min-height: 20px; }}
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus {{ border-color: {accent}; }}
QLineEdit#qt_spinbox_lineedit {{ border: none; background: transparent; padding: 0px; min-height: 0px; }}
QFrame#choices {{ background: {hover}; border: none; border-radius: 8px; }}
QToolButton[kind="segment"] {{ padding: 3px 11px; border: 1px solid transparent; border-radius: 6px; }}
QToolButton[kind="segment"]:checked {{ background: {raised}; }}
QToolButton[kind="segment"]:focus {{ border-color: {accent}; }}
QLineEdit[failed="true"] {{ border-color: {error}; }}
QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button, QDoubleSpinBox::down-button {{
    width: 0px; border: none; }}

QListView {{ background: transparent; border: none; outline: none; }}
QListView::item {{ border-radius: 8px; padding: 7px 10px; color: {text}; }}
QListView::item:hover {{ background: {hover}; }}
QListView::item:selected {{ background: {selected}; color: {text}; }}
QListView::item:selected:focus {{ background: {accent_faint}; }}

QMenu {{ background: {card}; border: 1px solid {hairline}; border-radius: 8px; padding: 4px; }}
QMenu::item {{ padding: 5px 24px 5px 12px; border-radius: 6px; }}
QMenu::item:selected {{ background: {hover}; color: {text}; }}
QMenu::item:disabled {{ color: {secondary}; }}
QMenu::separator {{ height: 1px; background: {hairline}; margin: 4px 8px; }}

QScrollBar:vertical {{ background: transparent; width: 10px; margin: 2px; }}
QScrollBar::handle:vertical {{ background: {handle}; border-radius: 3px; min-height: 32px; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 2px; }}
QScrollBar::handle:horizontal {{ background: {handle}; border-radius: 3px; min-width: 32px; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0px; height: 0px; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""
