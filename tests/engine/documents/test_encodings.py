"""The encoding of a text file is found and stated; what cannot be decoded is counted."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.documents.text import decode_text
from engine.errors import DocumentError

GERMAN = "Über die Brücke gingen die Leute, und für Käthe war es schön. Die Größe prüfen wir später. "
QUOTED = "„Größe“ – sagte Jürgen – „ist nicht alles.“ Das kostet 5 €. "
FRENCH = "L’été dernier, nous avons mangé à la crêperie; ça coûtait cher. Où est le garçon? "
SPANISH = "¿Qué pasó mañana? El niño comió piñas y dijo: ¡adiós, señor! "
PORTUGUESE = "A ação não é só uma questão de coração; também há lições. "
SWEDISH = "Kött och ägg är gott på ön. Åsa åkte till sjön för att fiska. "
ITALIAN = "Perché non è così? La città più bella è lì. "
ENGLISH = "The price was £5 for 3 m³ – about 20 °C; a “naïve” café. "
POLISH = "Zażółć gęślą jaźń. Wczoraj byłem w sklepie i kupiłem chleb, masło oraz jabłka. "
CZECH = "Příliš žluťoučký kůň úpěl ďábelské ódy. Dnes večer půjdeme do divadla. "
HUNGARIAN = "Árvíztűrő tükörfúrógép. A gyerekek magyarul és angolul is tanulnak. "
TURKISH = "Bugün hava çok güzel, çocuklar bahçede oynuyor. İstanbul'da ışıklar söndü. "
LITHUANIAN = "Šiandien labai gražus oras, vaikai žaidžia kieme. Ąžuolas auga prie upės. "
RUSSIAN = "Сегодня хорошая погода, дети играют во дворе. Мы пошли в магазин и купили хлеб. " * 5
GREEK = "Σήμερα ο καιρός είναι καλός και τα παιδιά παίζουν στην αυλή. "
CHINESE = "今天天气很好，孩子们在院子里玩耍。我们去商店买了面包。"
TRADITIONAL = "今天天氣很好，孩子們在院子裡玩耍。我們去商店買了麵包。"
JAPANESE = "今日は天気がいいので、子供たちは庭で遊んでいます。パンを買いに行きました。"
KOREAN = "오늘은 날씨가 좋아서 아이들이 마당에서 놀고 있습니다. 빵을 사러 갔습니다."
CODE = "int x = 1; // コメントです\nreturn 0;\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-8"])
@pytest.mark.parametrize("text", [GERMAN, CHINESE, "plain\n", "👩‍🚀"])
def test_marked_files_and_utf8_are_certain(text: str, encoding: str):
    decoded = decode_text(text.encode(encoding), "f")
    assert (decoded.text, decoded.replaced) == (text, 0)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text", ["Plain ASCII.\nTwo lines.\n", "a b", GERMAN, RUSSIAN + "\n", f"{CHINESE}\n{CHINESE}\n"]
)
def test_wide_encodings_are_found_without_a_mark(text: str, encoding: str):
    decoded = decode_text(text.encode(encoding), "f")
    assert (decoded.text, decoded.encoding) == (text, encoding)


@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        (GERMAN, "latin-1", "cp1252"),
        (QUOTED, "cp1252", "cp1252"),
        (FRENCH, "cp1252", "cp1252"),
        (SPANISH, "cp1252", "cp1252"),
        (PORTUGUESE, "cp1252", "cp1252"),
        (SWEDISH, "cp1252", "cp1252"),
        (ITALIAN, "cp1252", "cp1252"),
        (ENGLISH, "cp1252", "cp1252"),
        ("café au lait", "cp1252", "cp1252"),
        ("It costs £5.", "cp1252", "cp1252"),
        (QUOTED, "mac_roman", "mac-roman"),
        (FRENCH, "mac_roman", "mac-roman"),
        (GERMAN, "cp850", "cp850"),
        (POLISH, "cp1250", "cp1250"),
        ("Mały kłopot: żółw łapał kłosy, a żaba żałowała. ", "cp1250", "cp1250"),
        (POLISH, "iso8859-2", "iso8859-2"),
        (CZECH, "cp1250", "cp1250"),
        (HUNGARIAN, "cp1250", "cp1250"),
        (TURKISH, "cp1254", "cp1254"),
        (LITHUANIAN, "cp1257", "cp1257"),
        (RUSSIAN, "cp1251", "cp1251"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (GREEK, "cp1253", "cp1253"),
        (CHINESE, "gb18030", "gb18030"),
        (TRADITIONAL, "big5", "big5"),
        (JAPANESE, "cp932", "cp932"),
        (JAPANESE, "euc-jp", "euc-jis-2004"),
        (JAPANESE, "iso2022-jp", "iso2022-jp"),
        (CODE, "cp932", "cp932"),
        (KOREAN, "cp949", "cp949"),
    ],
)
@pytest.mark.parametrize("times", [1, 30])
def test_older_encodings_are_told_apart(text: str, encoding: str, said: str, times: int):
    decoded = decode_text((text * times).encode(encoding), "f")
    assert (decoded.text, decoded.encoding, decoded.replaced) == (text * times, said, 0)


def test_an_accent_at_the_end_of_a_long_line_is_seen():
    text = "word " * 100_000 + "café"
    assert decode_text(text.encode("cp1252"), "f").text == text


def test_a_long_file_is_judged_by_a_sample_that_cuts_no_character():
    text = "今天天气很好\n" * 200_000
    begun = time.monotonic()
    assert decode_text(text.encode("gb18030"), "f").text == text
    assert time.monotonic() - begun < 10


def test_two_encodings_in_one_file_are_counted_not_hidden():
    data = GERMAN.encode() * 10 + b"\n" + "größe".encode("cp1252")
    decoded = decode_text(data, "f")
    assert (decoded.encoding, decoded.replaced) == ("utf-8", 2)
    assert decoded.text.startswith(GERMAN)
    assert decoded.text.endswith("gr\ufffd\ufffde")


def test_replacement_characters_that_stand_in_the_file_are_not_counted():
    assert decode_text("a real \ufffd".encode(), "f").replaced == 0
    damaged = decode_text("a real \ufffd, größe".encode() + b"\xff", "f")
    assert damaged.replaced == 1


def test_half_a_character_at_the_end_is_counted():
    assert decode_text(b"\xff\xfea\0b\0c", "f").replaced == 1
    assert decode_text(CHINESE.encode()[:-1], "f").replaced == 1


@given(data=st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes):
    try:
        decoded = decode_text(data, "f")
    except DocumentError as error:
        assert "binary" in str(error)  # noqa: PT017
    else:
        assert "\0" not in decoded.text
        assert decoded.replaced <= decoded.text.count("\ufffd")
