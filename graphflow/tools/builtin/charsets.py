"""Character sets that a page may declare.

The name comes from the page, and Python has codecs that no page is written in: `punycode` costs the square of the length,
`unicode_escape` turns text into other text, `undefined` and `idna` raise. So the name is looked up in a table, never with
`codecs.lookup`, which would also import a module of that name.
"""

from __future__ import annotations

from encodings import normalize_encoding
from encodings.aliases import aliases

_CODECS = frozenset(
    """
    utf_8 utf_8_sig utf_16 utf_16_be utf_16_le utf_32 utf_32_be utf_32_le ascii latin_1
    iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 iso8859_13
    iso8859_14 iso8859_15 iso8859_16 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp866 cp874 tis_620
    koi8_r koi8_u mac_roman mac_cyrillic gb2312 gbk gb18030 big5 big5hkscs shift_jis cp932 euc_jp iso2022_jp euc_kr cp949
    """.split()
)
"""Those of the WHATWG encoding standard that Python has, and the other forms of UTF and of ISO 8859."""
_OF_PAGES = {
    "unicode_1_1_utf_8": "utf_8", "unicode11utf8": "utf_8", "unicode20utf8": "utf_8", "x_unicode20utf8": "utf_8",
    "unicode": "utf_16_le", "csunicode": "utf_16_le", "ucs_2": "utf_16_le", "iso_10646_ucs_2": "utf_16_le",
    "iso88591": "latin_1", **{f"iso8859{part}": f"iso8859_{part}" for part in (*range(2, 12), *range(13, 17))},
    "csiso88596e": "iso8859_6", "csiso88596i": "iso8859_6", "iso_8859_6_e": "iso8859_6", "iso_8859_6_i": "iso8859_6",
    "sun_eu_greek": "iso8859_7", "csiso88598e": "iso8859_8", "csiso88598i": "iso8859_8", "iso_8859_8_e": "iso8859_8",
    "iso_8859_8_i": "iso8859_8", "logical": "iso8859_8", "visual": "iso8859_8", "csisolatin9": "iso8859_15",
    **{f"x_cp125{last}": f"cp125{last}" for last in range(9)}, "dos_874": "cp874", "windows_874": "cp874",
    "koi": "koi8_r", "koi8": "koi8_r", "koi8_ru": "koi8_u", "csmacintosh": "mac_roman", "mac": "mac_roman",
    "x_mac_roman": "mac_roman", "x_mac_cyrillic": "mac_cyrillic", "x_mac_ukrainian": "mac_cyrillic",
    "csgb2312": "gb2312", "gb_2312": "gb2312", "gb_2312_80": "gb2312", "x_gbk": "gbk", "cn_big5": "big5",
    "x_x_big5": "big5", "x_sjis": "shift_jis", "windows_31j": "cp932", "x_euc_jp": "euc_jp",
    "cseucpkdfmtjapanese": "euc_jp", "cseuckr": "euc_kr", "csksc56011987": "euc_kr", "iso_ir_149": "euc_kr",
    "ksc_5601": "euc_kr", "ks_c_5601_1989": "euc_kr", "windows_949": "cp949",
}  # fmt: skip
"""Names in the standard that Python does not know."""
_BY_NAME = {codec: codec for codec in _CODECS} | {
    name.replace(".", "_"): codec for name, codec in {**aliases, **_OF_PAGES}.items() if codec in _CODECS
}


def codec_of(content_type: str) -> str:
    """Python's name of the codec for a body of this content type; UTF-8 if it names none, or none that a page may have."""
    for parameter in content_type.split(";")[1:]:
        name, _, charset = parameter.partition("=")
        if name.strip().lower() == "charset":
            # Pages quote the name and spell it with dots, dashes and capitals.
            known = normalize_encoding(charset.strip(" \t\"'")).lower().replace(".", "_")
            return _BY_NAME.get(known, "utf_8")
    return "utf_8"
