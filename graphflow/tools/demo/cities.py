"""Cities by their Chinese and English names, and the time zone of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

_TABLE = """
Asia/Shanghai: Beijing 北京 Peking, Shanghai 上海, Guangzhou 广州 Canton, Shenzhen 深圳, Hangzhou 杭州, Nanjing 南京, Suzhou 苏州,
  Chengdu 成都, Chongqing 重庆, Wuhan 武汉, Xi'an 西安 Xian, Tianjin 天津, Qingdao 青岛, Xiamen 厦门, Changsha 长沙, Zhengzhou 郑州,
  Shenyang 沈阳, Dalian 大连, Harbin 哈尔滨, Jinan 济南, Fuzhou 福州, Hefei 合肥, Kunming 昆明, Guiyang 贵阳, Nanning 南宁, Haikou 海口,
  Sanya 三亚, Lanzhou 兰州, Taiyuan 太原, Nanchang 南昌, Changchun 长春, Shijiazhuang 石家庄, Hohhot 呼和浩特, Yinchuan 银川, Xining 西宁,
  Lhasa 拉萨, Wuxi 无锡, Ningbo 宁波, Dongguan 东莞, Foshan 佛山, Zhuhai 珠海, Guilin 桂林, Lijiang 丽江, Dali 大理
Asia/Urumqi: Urumqi 乌鲁木齐
Asia/Hong_Kong: Hong Kong_香港
Asia/Macau: Macau 澳门 Macao
Asia/Taipei: Taipei 台北
Asia/Tokyo: Tokyo 东京, Osaka 大阪, Kyoto 京都
Asia/Seoul: Seoul 首尔
Asia/Singapore: Singapore 新加坡
Asia/Bangkok: Bangkok 曼谷
Asia/Kuala_Lumpur: Kuala Lumpur_吉隆坡
Asia/Jakarta: Jakarta 雅加达
Asia/Kolkata: Delhi 德里, New Delhi_新德里, Mumbai 孟买, Bangalore 班加罗尔
Asia/Dubai: Dubai 迪拜
Europe/London: London 伦敦
Europe/Paris: Paris 巴黎
Europe/Berlin: Berlin 柏林, Munich 慕尼黑, Frankfurt 法兰克福
Europe/Rome: Rome 罗马, Milan 米兰
Europe/Madrid: Madrid 马德里, Barcelona 巴塞罗那
Europe/Amsterdam: Amsterdam 阿姆斯特丹
Europe/Zurich: Zurich 苏黎世
Europe/Moscow: Moscow 莫斯科
Africa/Cairo: Cairo 开罗
America/New_York: New York_纽约, Boston 波士顿, Washington 华盛顿
America/Chicago: Chicago 芝加哥
America/Los_Angeles: Los Angeles_洛杉矶, San Francisco_旧金山, Seattle 西雅图
America/Toronto: Toronto 多伦多
America/Vancouver: Vancouver 温哥华
America/Sao_Paulo: Sao Paulo_圣保罗
Australia/Sydney: Sydney 悉尼, Melbourne 墨尔本
"""


@dataclass(frozen=True, kw_only=True)
class City:
    """One city."""

    name: str
    """In English; the same for all its names."""
    timezone: str


def find_city(name: str) -> City | None:
    """The city behind a name in English or Chinese (also with 市), or behind an IANA time zone; None if unknown."""
    known = _cities()
    folded = _folded(name)
    city = known.get(folded) or known.get(folded.removesuffix("市"))
    return city or _zone_city(name, folded)


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of an IANA name, or None."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a name that is a folder of zones
        return None


def _folded(name: str) -> str:
    return name.strip().casefold().replace("_", " ").replace("'", "")


def _zone_city(name: str, folded: str) -> City | None:
    """`Asia/Shanghai`, or the last part of a zone: `Lisbon`."""
    # A zone is its own city: its name stands in the result as it was given.
    if "/" in name:
        return City(name=name.strip(), timezone=name.strip()) if zone_of(name.strip()) else None
    zone = _zones().get(folded)
    return City(name=zone.rpartition("/")[2].replace("_", " "), timezone=zone) if zone else None


@cache
def _zones() -> dict[str, str]:
    """Folded last part → zone, of all zones that are named after places."""
    areas = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/")
    # Sorted, and laid out in reverse: of zones with the same last part the first in the alphabet wins on every machine.
    names = sorted(zone for zone in available_timezones() if zone.startswith(areas))
    return {_folded(zone.rpartition("/")[2]): zone for zone in reversed(names)}


@cache
def _cities() -> dict[str, City]:
    """Folded name → city. In the table a name with a space ends in `_`, and others stand behind it."""
    found: dict[str, City] = {}
    for line in _TABLE.replace(",\n", ",").strip().splitlines():
        zone, _, cities = line.partition(": ")
        for entry in cities.split(","):
            first, *others = entry.strip().split("_") if "_" in entry else entry.split()
            city = City(name=first, timezone=zone)
            found |= {_folded(name): city for name in (first, *others)}
    return found
