"""Answers worked out again from a scene and the words of a question, apart from the package.

It knows the questions only as patterns of text, so a slip in how the package asks or answers
shows as a difference.
"""

import re

ENGLISH = {
    "红色": "red",
    "绿色": "green",
    "蓝色": "blue",
    "黄色": "yellow",
    "紫色": "purple",
    "橙色": "orange",
    "圆形": "circle",
    "三角形": "triangle",
    "方形": "square",
    "星形": "star",
    "左上角": "top left",
    "右上角": "top right",
    "左下角": "bottom left",
    "右下角": "bottom right",
}
CHINESE = {english: chinese for chinese, english in ENGLISH.items()}
COUNTS = ["zero", "one", "two", "three", "four"]
SIGNS = ["零", "一", "两", "三", "四"]
COLOUR = "red|green|blue|yellow|purple|orange"
FORM = "circle|square|triangle|star"
PLACE = "top left|top right|bottom left|bottom right"
THING = f"(?:(?:{COLOUR}) )?(?:{FORM})"


def to_english(question):
    """Put colours, forms and places of a Chinese question into English, in spaces."""
    for chinese, english in sorted(ENGLISH.items(), key=lambda item: -len(item[0])):
        question = question.replace(chinese, f" {english} ")
    return re.sub(r"\s+的\s+", " ", question)


def fits(shape, words):
    """Say whether a shape (place, colour, form) is meant by words such as `red circle`."""
    return set(words.split()) <= {shape[1], shape[2], "shape"}


def describe_english(shapes):
    if not shapes:
        return "I don't see any shapes"
    parts = [f"{article(f'{c} {f}')} in the {place}" for place, c, f in shapes]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def describe_chinese(shapes):
    parts = [f"{CHINESE[p]}有一个{CHINESE[c]}的{CHINESE[f]}" for p, c, f in shapes]
    return "，".join(parts) or "我没有看到图形"


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def capital(text):
    return text[0].upper() + text[1:]


def in_chinese(words):
    return "的".join(CHINESE[word] for word in words.split())


def expected(question, shapes):
    """Give the right answer to a question about one picture's shapes."""
    is_chinese = not question.isascii()
    text = to_english(question) if is_chinese else question
    for pattern, answer in CHINESE_RULES if is_chinese else ENGLISH_RULES:
        found = re.search(pattern, text)
        if found:
            return answer(shapes, *found.groups())
    raise AssertionError(f"no rule reads {question!r}")


def english_count(shapes, words):
    kind = re.sub(r"s$", "", words.replace("shapes", "shape"))
    total = sum(fits(shape, kind) for shape in shapes)
    plural = f"{kind}s"
    if total == 0:
        return f"I don't see any {plural}."
    return f"There is one {kind}." if total == 1 else f"There are {COUNTS[total]} {plural}."


def english_side(shapes, one, other):
    for name in (one, other):
        if not any(fits(shape, name) for shape in shapes):
            return f"I don't see {article(name)}."
    (place,) = (shape[0] for shape in shapes if fits(shape, one))
    return f"It is {place.split()[1]} of the {other}."


def english_where(shapes, name):
    found = [shape[0] for shape in shapes if fits(shape, name)]
    return f"In the {found[0]}." if found else f"I don't see {article(name)}."


def english_colour(shapes, name):
    found = [shape[1] for shape in shapes if fits(shape, name)]
    return f"It is {found[0]}." if found else f"I don't see {article(name)}."


def english_colour_at(shapes, place):
    found = [shape[1] for shape in shapes if shape[0] == place]
    return f"It is {found[0]}." if found else "I don't see anything there."


def english_place(shapes, place):
    found = [shape for shape in shapes if shape[0] == place]
    if not found:
        return "I don't see anything there."
    return capital(article(f"{found[0][1]} {found[0][2]}")) + "."


def english_presence(shapes, name):
    total = sum(fits(shape, name) for shape in shapes)
    return f"Yes, I see {COUNTS[total]}." if total else "No, I don't see one."


def english_description(shapes):
    return capital(describe_english(shapes)) + "."


ENGLISH_RULES = [
    (r"^How many (.+) (?:are there|do you see)\?", english_count),
    (r"^Count the (shapes)\.", english_count),
    (rf"^Is the ({THING}) (?:to the )?left or .*right of the ({THING})\?", english_side),
    (rf"^Where (?:is|do you see) the ({THING})\?", english_where),
    (rf"shape in the ({PLACE})\?", english_colour_at),
    (rf"colou?r (?:is|does) the ({FORM})(?: have)?\?", english_colour),
    (rf"^What (?:is|do you see) (?:in|at) the ({PLACE})\?", english_place),
    (rf"^(?:Is there|Do you see|Can you see) an? ({THING})\?", english_presence),
    (r"^(?:Describe|What do you see\?|What is in this image)", english_description),
]


def chinese_count(shapes, words):
    words = words.replace("的图形", "").replace("图形", "").strip()
    what = "图形"
    if words in COLOUR.split("|"):
        what = f"{CHINESE[words]}的图形"
    elif words:
        what = CHINESE[words]
    total = sum(fits(shape, words or "shape") for shape in shapes)
    return f"有{SIGNS[total]}个{what}。" if total else f"我没有看到{what}。"


def chinese_side(shapes, one, other):
    for name in (one, other):
        if not any(fits(shape, name) for shape in shapes):
            return f"我没有看到{in_chinese(name)}。"
    (place,) = (shape[0] for shape in shapes if fits(shape, one))
    return "在左边。" if place.endswith("left") else "在右边。"


def chinese_where(shapes, name):
    found = [shape[0] for shape in shapes if fits(shape, name)]
    return f"在{CHINESE[found[0]]}。" if found else f"我没有看到{in_chinese(name)}。"


def chinese_colour(shapes, name):
    found = [shape[1] for shape in shapes if fits(shape, name)]
    return f"是{CHINESE[found[0]]}的。" if found else f"我没有看到{in_chinese(name)}。"


def chinese_colour_at(shapes, place):
    found = [shape[1] for shape in shapes if shape[0] == place]
    return f"是{CHINESE[found[0]]}的。" if found else "那里没有图形。"


def chinese_place(shapes, place):
    found = [shape for shape in shapes if shape[0] == place]
    return f"一个{in_chinese(' '.join(found[0][1:]))}。" if found else "那里没有图形。"


def chinese_presence(shapes, name):
    total = sum(fits(shape, name) for shape in shapes)
    return f"有，我看到{SIGNS[total]}个。" if total else "没有，我没看到。"


def chinese_description(shapes):
    return describe_chinese(shapes) + "。"


CHINESE_RULES = [
    (r"几个(.+?)？", chinese_count),
    (r"^数一数(图形)", chinese_count),
    (rf"^ ({THING}) (?:是)?在 ({THING}) 的左边还是右边", chinese_side),
    (rf"^ ({THING}) 在哪里", chinese_where),
    (rf"在哪里看到 ({THING}) ", chinese_where),
    (rf"^ ({PLACE}) 的图形是什么颜色", chinese_colour_at),
    (rf"^ ({FORM}) 是什么颜色", chinese_colour),
    (rf"^(?:你在)? ({PLACE}) (?:是|有|看到了)什么", chinese_place),
    (rf"(?:有|看到) ({THING}) (?:了)?吗", chinese_presence),
    (r"描述这张|你看到了什么|图里有什么", chinese_description),
]


def expected_of_pair(question, first, second):
    """Give the right answer to a question about two pictures."""
    is_chinese = not question.isascii()
    text = to_english(question) if is_chinese else question
    describe = describe_chinese if is_chinese else describe_english
    found = re.search(rf"({THING})", text)
    if found:
        there = [any(fits(shape, found[1]) for shape in shapes) for shapes in (first, second)]
        english = ["None of them.", "The second image.", "The first image.", "Both images."]
        chinese = ["都没有。", "第二张图。", "第一张图。", "两张图都有。"]
        return (chinese if is_chinese else english)[2 * there[0] + there[1]]
    if re.search("first|second|第", text):
        shapes = second if re.search("second|第二", text) else first
        if re.search("How many|几个", text):
            return (chinese_count if is_chinese else english_count)(
                shapes, "图形" if is_chinese else "shapes"
            )
        return (chinese_description if is_chinese else english_description)(shapes)
    if is_chinese:
        return f"第一张图：{describe(first)}。第二张图：{describe(second)}。"
    return f"First image: {describe(first)}. Second image: {describe(second)}."


def expected_of_movie(question, colour, form, motion):
    """Give the right answer to a question about a video."""
    name = f"{colour} {form}"
    if question.isascii():
        if "colo" in question:
            return f"It is {colour}."
        if re.search("What do you see|What is in", question):
            return f"{capital(article(name))}."
        who = "It" if re.search("Which way|Where|How", question) else capital(article(name))
        if motion == "still":
            return f"{who} does not move."
        return f"{who} moves {motion if motion in ('up', 'down') else f'to the {motion}'}."
    if "颜色" in question:
        return f"是{CHINESE[colour]}的。"
    if re.search("看到了什么|有什么", question):
        return f"一个{in_chinese(name)}。"
    who = "它" if re.search("往哪里|怎么", question) else f"一个{in_chinese(name)}"
    way = {"left": "左", "right": "右", "up": "上", "down": "下"}
    return f"{who}没有移动。" if motion == "still" else f"{who}往{way[motion]}移动。"
