"""The READMEs' tables of costs, made from the committed results between two marks.

    python -m benchmarks.table

English and Chinese have the same rows with the same numbers; a test compares them with the JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.figures import Figure
from benchmarks.results import Sections, read

ROOT = Path(__file__).parent.parent
READMES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
BEGIN, END = "<!-- costs: written by `make bench` -->", "<!-- costs end -->"
CODE = {"en": 0, "zh": 1}

# What the table shows, in order: the figure, and its words in English and Chinese.
COSTS: dict[str, tuple[str, str]] = {
    "decode, control": ("the same call unrecorded, against itself", "同一调用都不记录，自己对自己"),
    "decode, empty hooks": (
        "decode, empty hooks on the modules of `layers`", "解码，`layers` 的模块上只挂空钩子"
    ),
    "decode, stages": ("decode, `stages`", "解码，`stages`"),
    "decode, layers": ("decode, `layers`", "解码，`layers`"),
    "decode, effects": (
        "decode, `layers`, `effects` of four processors", "解码，`layers`，四个处理器的 `effects`"
    ),
    "decode, modules": ("decode, `modules`", "解码，`modules`"),
    "decode, top_k 100": ("decode, `layers`, `top_k=100`", "解码，`layers`，`top_k=100`"),
    "decode, logits": ("decode, `layers`, `logits=True`", "解码，`layers`，`logits=True`"),
    "decode, values": ("decode, `layers`, `values=True`", "解码，`layers`，`values=True`"),
    "152k, decode, layers": ("vocabulary of 152k: `layers`", "词表 152k：`layers`"),
    "152k, decode, effects": ("vocabulary of 152k: `effects`", "词表 152k：`effects`"),
    "prefill, layers": ("prefill of 512 tokens, `layers`", "512 个词元 的预填充，`layers`"),
    "prefill, modules": ("prefill of 512 tokens, `modules`", "512 个词元 的预填充，`modules`"),
    "demo, decode, stages": ("toy demo model, `stages`", "玩具演示模型，`stages`"),
    "demo, decode, layers": ("toy demo model, `layers`", "玩具演示模型，`layers`"),
    "demo, decode, effects": ("toy demo model, `effects`", "玩具演示模型，`effects`"),
    "demo, decode, modules": ("toy demo model, `modules`", "玩具演示模型，`modules`"),
    "explorer, answer": ("an answer through the explorer", "经由探索器的一次回答"),
    "load 135m, control": ("a load unrecorded, against itself", "加载都不记录，自己对自己"),
    "load 135m": ("warm load of 135M, 272 tensors", "缓存已热的加载，135M，272 个张量"),
    "load 2gb": ("warm load of 2 GB, only mapped", "缓存已热的加载，2 GB，只做映射"),
    "load 2gb, cast": ("warm load of 2 GB, every value cast", "缓存已热的加载，2 GB，逐值转换"),
    "load 20k": ("warm load of 20,001 tiny tensors", "缓存已热的加载，20,001 个小张量"),
    "load 135m, a tensor, by itself": (
        "a tensor of that 135M load, as the recorder counts", "该 135M 加载中一个张量，按记录器自计"
    ),
    "load 20k, trace": ("trace of the 20,001 tensors", "20,001 个张量的记录"),
    "module call, bare pair": ("a pair of empty hooks of torch", "torch 的一对空钩子"),
    "module call, recorded": ("a module call recorded", "记录一次模块调用"),
    "module call, in bare pairs": ("that in pairs of empty hooks", "相当于几对空钩子"),
    "module call, in memory": ("a module call in memory", "一次模块调用在内存中"),
    "self-report, stages, apart by": (
        "told and measured share apart by, `stages`", "自报与实测的份额相差几倍，`stages`"
    ),
    "self-report, layers, apart by": ("the same, `layers`", "同上，`layers`"),
    "self-report, modules, apart by": ("the same, `modules`", "同上，`modules`"),
    "trace, layers": ("trace on disk a token, `layers`", "每个词元 的记录在磁盘上，`layers`"),
    "trace, modules": ("trace on disk a token, `modules`", "每个词元 的记录在磁盘上，`modules`"),
    "10M rows, open": ("open ten million module rows", "打开一千万行模块记录"),
    "10M rows, three columns": ("three columns of them as a frame", "读其中三列为数据框"),
    "1M rows, csv": ("a million rows to CSV", "一百万行写成 CSV"),
    "1M rows, to parquet": ("a million rows to Parquet", "一百万行写成 Parquet"),
    "10M rows, memory to csv": ("memory for CSV of ten million", "一千万行写成 CSV 所需内存"),
    "scale, slowest analysis": (
        "slowest analysis of a 70B-shaped trace of ten million rows",
        "一千万行的 70B 形状记录，最慢的分析",
    ),
    "scale, slowest chart": ("slowest chart of it", "同一记录，最慢的图表"),
    "scale, summary": ("its summary", "它的摘要"),
    "scale, audit": ("its audit", "它的审计"),
}  # fmt: skip
HEADS = {
    "en": ("| what | clock (quartiles) | processor (quartiles) | budget |", "**over**"),
    "zh": ("| 项目 | 时钟与四分位 | 处理器与四分位 | 预算 |", "**超出**"),
}
PEERS_HEADS = {
    "en": "| beside | forward | decode | load | where there is a dash |",
    "zh": "| 对照 | 前向 | 解码 | 加载 | 为何没有数字 |",
}
WORKS = ("forward", "decode", "load")


def costs_table(sections: Sections, language: str) -> str:
    """The table of what the lab costs; a figure over its budget says so."""
    figures = {one.name: one for part in sections.values() for one in part["figures"]}
    head, over = HEADS[language]
    lines = [head, "|---|---|---|---|"]
    for name, words in COSTS.items():
        one = figures.get(name)
        if one is not None:
            comma = ", " if language == "en" else "，"
            budget = "" if one.budget is None else number(one.budget, one.unit)
            budget += f"{comma}{over}" if one.is_over else ""
            cells = [words[CODE[language]], _clock(one), _processor(one), budget]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def peers_table(sections: Sections, language: str) -> str:
    """Peers on the same work: processor's time as a ratio, or a dash with its reason."""
    found: dict[str, dict[str, Figure]] = {}
    for one in sections.get("peers", {"figures": []})["figures"]:
        _, work, name = one.name.split(", ", 2)
        found.setdefault(name, {})[work] = one
    lines = [PEERS_HEADS[language], "|---|---|---|---|---|"]
    for name, works in found.items():
        cells = [_ratio(works.get(work)) for work in WORKS]
        reasons = dict.fromkeys(one.note for one in works.values() if one.value is None)
        told = " / ".join(f"`{reason.replace('`', '').replace('|', '/')}`" for reason in reasons)
        lines.append(f"| `{name}` | {' | '.join(cells)} | {told} |")
    return "\n".join(lines)


def _ratio(one: Figure | None) -> str:
    if one is None or one.value is None:
        return "-"
    return number(one.value if one.processor is None else one.processor, one.unit)


def _clock(one: Figure) -> str:
    return "-" if one.value is None else _spread(one.value, one.low, one.high, one.unit)


def _processor(one: Figure) -> str:
    if one.processor is None:
        return ""
    return _spread(one.processor, one.processor_low, one.processor_high, one.unit)


def _spread(middle: float, low: float | None, high: float | None, unit: str) -> str:
    text = number(middle, unit)
    if low is None or high is None or low == high:
        return text
    return f"{text} ({number(low, unit)} - {number(high, unit)})"


def number(value: float, unit: str) -> str:
    """A number with its unit, as short as it can be read."""
    if unit == "x":
        return f"{value:.2f}"
    if unit == "share":
        return f"{value:.1%}"
    if unit == "bytes":
        scale = next((n for n in (2, 1) if value >= 1000**n), 0)
        return f"{value / 1000**scale:,.{1 if scale else 0}f} {('B', 'kB', 'MB')[scale]}"
    nanoseconds = value * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    scale = next((n for n in (3, 2, 1) if nanoseconds >= 1000**n), 0)
    return f"{nanoseconds / 1000**scale:.2f} {('ns', 'µs', 'ms', 's')[scale]}"


def shown(one: Figure) -> str:
    """A figure as one line of a terminal."""
    over = "  OVER" if one.is_over else ""
    budget = "" if one.budget is None else f"  budget {number(one.budget, one.unit)}{over}"
    processor = f"  processor {_processor(one)}" if one.processor is not None else ""
    return f"{one.name:<44} {_clock(one)}{processor}{budget}  {one.note}".rstrip()


def costs(sections: Sections, language: str) -> str:
    """What stands between the marks: when and on what, the costs, the peers."""
    known = [part["machine"] for name, part in sections.items() if name != "peers"]
    # Of one day the busiest part: it says how far to trust the figures.
    told = max(known, key=lambda one: (str(one["date"]), one["load"])) if known else {}
    parts = [_measured(told, language), costs_table(sections, language)]
    if "peers" in sections:
        load = sections["peers"]["machine"].get("load", "?")
        parts += [_beside(language).format(load=load), peers_table(sections, language)]
    return "\n\n".join(parts)


def _measured(told: dict[str, Any], language: str) -> str:
    words = {name: told.get(name, "?") for name in ("date", "transformers", "torch", "pyarrow",
             "processor", "cores", "torch_threads", "load")}  # fmt: skip
    if language == "en":
        return (
            "Paired runs in turn, medians with quartiles; a ratio is of the same call recorded and "
            "not. Budgets are judged by the processor's time where it was measured, since the "
            "clock counts others' work too. 135M-shaped model, 64 tokens, unless it says so. "
            "{date}, transformers {transformers}, torch {torch}, pyarrow {pyarrow}, {processor}, "
            "{cores} cores shared with other work (load {load}), torch threads: {torch_threads}."
        ).format(**words)
    return (
        "交替成对运行，取中位数和四分位；比值是同一调用记录与不记录之比。测了处理器时间的，"
        "按它对照预算，因为时钟也算上了别人的工作。未注明者为 135M 形状的模型，64 个词元。"
        "{date}，transformers {transformers}，torch {torch}，pyarrow {pyarrow}，{processor}，"
        "{cores} 个核与其他工作共用（负载 {load}），torch 线程数：{torch_threads}。"
    ).format(**words)


def _beside(language: str) -> str:
    if language == "en":
        return (
            "Beside what else one could take, on the same 135M-shaped work (`make bench-peers`): "
            "processor's time of attach, work and detach over the work alone, three pairs each, on "
            "a machine with other work (load {load})."
        )
    return (
        "与其他可选工具在同一份 135M 形状的工作上对照（`make bench-peers`）："
        "挂上、工作、卸下的处理器时间与单做工作之比，各三对，机器上另有工作（负载 {load}）。"
    )


def written(text: str, sections: Sections, language: str) -> str:
    """A README with what stands between its marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{costs(sections, language)}\n\n{END}{after}"


def write_readmes() -> None:
    """Put the committed results into both READMEs."""
    for language, path in READMES.items():
        text = path.read_text("utf-8")
        path.write_text(written(text, read(), language), "utf-8")


if __name__ == "__main__":
    write_readmes()
