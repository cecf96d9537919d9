"""The words of the small world: wordings of questions, and sentences of answers, as data.

English and Chinese side by side. `questions` chooses among them; nothing here is random.
"""

from dataclasses import dataclass
from typing import Literal

from tracer.demo.drawing import FORMS, Scene

Language = Literal["en", "zh"]

NUMBERS = {"en": ("no", "one", "two", "three", "four"), "zh": ("零", "一", "两", "三", "四")}

CHINESE = {
    "red": "红色",
    "green": "绿色",
    "blue": "蓝色",
    "yellow": "黄色",
    "purple": "紫色",
    "orange": "橙色",
    "circle": "圆形",
    "square": "方形",
    "triangle": "三角形",
    "star": "星形",
    "top left": "左上角",
    "top right": "右上角",
    "bottom left": "左下角",
    "bottom right": "右下角",
    "left": "左",
    "right": "右",
    "up": "上",
    "down": "下",
}

QUESTIONS: dict[Language, dict[str, tuple[str, ...]]] = {
    "en": {
        "describe": (
            "Describe this image.",
            "Describe this image.",
            "Describe the picture.",
            "What do you see?",
            "What is in this image?",
        ),
        "count_all": (
            "How many shapes are there?",
            "How many shapes do you see?",
            "Count the shapes.",
        ),
        "count_form": ("How many {many} are there?", "How many {many} do you see?"),
        "count_colour": ("How many {many} are there?", "How many {many} do you see?"),
        "place": (
            "What is in the {place}?",
            "What is at the {place}?",
            "What do you see in the {place}?",
        ),
        "where": ("Where is the {the}?", "Where do you see the {the}?"),
        "colour_form": (
            "What colour is the {form}?",
            "What color is the {form}?",
            "Which colour does the {form} have?",
        ),
        "colour_place": (
            "What colour is the shape in the {place}?",
            "What color is the shape in the {place}?",
        ),
        "presence": ("Is there {a}?", "Do you see {a}?", "Can you see {a}?"),
        "side": (
            "Is the {the} left or right of the {other}?",
            "Is the {the} to the left or to the right of the {other}?",
        ),
        "pair_both": ("Describe both images.", "Describe these images."),
        "pair_which": ("Which image shows {a}?", "In which image do you see {a}?"),
        "pair_nth": ("Describe the {nth} image.", "What is in the {nth} image?"),
        "pair_nth_count": ("How many shapes are in the {nth} image?",),
        "video_describe": ("Describe this video.", "What happens in this video?"),
        "video_motion": (
            "Which way does the {form} move?",
            "Where does the {form} go?",
            "How does it move?",
        ),
        "video_what": ("What do you see in this video?", "What is in this video?"),
        "video_colour": ("What colour is the {form}?", "What color is the {form}?"),
    },
    "zh": {
        "describe": (
            "描述这张图片。",
            "描述这张图片。",
            "请描述这张图。",
            "你看到了什么？",
            "图里有什么？",
        ),
        "count_all": ("图里有几个图形？", "你看到几个图形？", "数一数图形。"),
        "count_form": ("图里有几个{many}？", "你看到几个{many}？"),
        "count_colour": ("图里有几个{many}？", "你看到几个{many}？"),
        "place": ("{place}是什么？", "{place}有什么？", "你在{place}看到了什么？"),
        "where": ("{the}在哪里？", "你在哪里看到{the}？"),
        "colour_form": ("{form}是什么颜色？", "{form}是什么颜色的？"),
        "colour_place": ("{place}的图形是什么颜色？", "{place}的图形是什么颜色的？"),
        "presence": ("有{a}吗？", "图里有{a}吗？", "你看到{a}了吗？"),
        "side": ("{the}在{other}的左边还是右边？", "{the}是在{other}的左边还是右边？"),
        "pair_both": ("描述这两张图片。", "请描述两张图。"),
        "pair_which": ("哪张图有{a}？", "你在哪张图里看到{a}？"),
        "pair_nth": ("描述{nth}张图。", "{nth}张图里有什么？"),
        "pair_nth_count": ("{nth}张图里有几个图形？",),
        "video_describe": ("描述这段视频。", "视频里发生了什么？"),
        "video_motion": ("{form}往哪里移动？", "它怎么移动？"),
        "video_what": ("你在视频里看到了什么？", "视频里有什么？"),
        "video_colour": ("{form}是什么颜色？", "{form}是什么颜色的？"),
    },
}

WITHOUT_IMAGE: dict[Language, str] = {"en": "I don't see an image.", "zh": "我没有看到图片。"}

CHAT: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (
        ("Hello!", "Hello! Show me a picture of shapes."),
        ("Hi", "Hello! Show me a picture of shapes."),
        ("Hello", "Hello! Show me a picture of shapes."),
        ("Good morning.", "Hello! Show me a picture of shapes."),
        ("Who are you?", "I am a small model that sees shapes."),
        ("What are you?", "I am a small model that sees shapes."),
        ("What can you do?", "I can describe shapes in a picture."),
        ("What can you see?", "I can describe shapes in a picture."),
        ("How are you?", "I am fine, thank you."),
        ("Thank you.", "You are welcome."),
        ("Thanks!", "You are welcome."),
        ("Goodbye.", "Goodbye!"),
        ("What is the capital of France?", "I only know shapes and colours."),
        ("Tell me a story.", "I only know shapes and colours."),
        ("Write a poem.", "I only know shapes and colours."),
        ("What is one and two?", "I only know shapes and colours."),
        ("What do you know?", "I only know shapes and colours."),
        ("Which shapes do you know?", "Circle, square, triangle and star."),
        ("Which colours do you know?", "Red, green, blue, yellow, purple and orange."),
    ),
    "zh": (
        ("你好！", "你好！请给我看一张图片。"),
        ("你好", "你好！请给我看一张图片。"),
        ("早上好。", "你好！请给我看一张图片。"),
        ("你是谁？", "我是一个会看图形的小模型。"),
        ("你是什么？", "我是一个会看图形的小模型。"),
        ("你会做什么？", "我会描述图片里的图形。"),
        ("你能看到什么？", "我会描述图片里的图形。"),
        ("谢谢。", "不客气。"),
        ("谢谢你！", "不客气。"),
        ("再见。", "再见！"),
        ("法国的首都是哪里？", "我只知道图形和颜色。"),
        ("讲一个故事。", "我只知道图形和颜色。"),
        ("写一首诗。", "我只知道图形和颜色。"),
        ("你知道什么？", "我只知道图形和颜色。"),
        ("你知道哪些图形？", "圆形、方形、三角形和星形。"),
        ("你知道哪些颜色？", "红色、绿色、蓝色、黄色、紫色和橙色。"),
    ),
}


@dataclass(frozen=True)
class Words:
    """How one language says what is there."""

    language: Language

    @property
    def nothing(self) -> str:
        """Say that a quarter is empty."""
        return "I don't see anything there." if self._english else "那里没有图形。"

    @property
    def _english(self) -> bool:
        return self.language == "en"

    def form(self, form: str) -> str:
        """Name a form."""
        return form if self._english else CHINESE[form]

    def place(self, place: str) -> str:
        """Name a quarter."""
        return place if self._english else CHINESE[place]

    def bare(self, name: str) -> str:
        """Name a shape without an article."""
        return name if self._english else "的".join(CHINESE[word] for word in name.split())

    def noun(self, name: str) -> str:
        """Name a shape with its article."""
        if not self._english:
            return self.bare(name)
        return f"an {name}" if name.startswith("o") else f"a {name}"

    def many(self, target: str) -> str:
        """Name all shapes of a form or colour."""
        if self._english:
            return f"{target}s" if target in FORMS else f"{target} shapes"
        return CHINESE[target] if CHINESE[target].endswith("形") else f"{CHINESE[target]}的图形"

    def thing(self, name: str) -> str:
        """Answer with one shape."""
        if self._english:
            return f"{self.noun(name).capitalize()}."
        return f"一个{self.bare(name)}。"

    def described(self, scene: Scene) -> str:
        """Describe a scene as part of a sentence."""
        if not scene.shapes:
            return "I don't see any shapes" if self._english else "我没有看到图形"
        if not self._english:
            parts = [f"{CHINESE[s.place]}有一个{self.bare(s.name)}" for s in scene.shapes]
            return "，".join(parts)
        parts = [f"{self.noun(shape.name)} in the {shape.place}" for shape in scene.shapes]
        return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))

    def description(self, scene: Scene) -> str:
        """Describe a scene in one sentence."""
        text = self.described(scene)
        return f"{text[0].upper()}{text[1:]}." if self._english else f"{text}。"

    def both(self, first: str, second: str) -> str:
        """Describe two pictures."""
        if self._english:
            return f"First image: {first}. Second image: {second}."
        return f"第一张图：{first}。第二张图：{second}。"

    def nth(self, index: int) -> str:
        """Name the first (0) or second (1) picture."""
        return (("first", "second") if self._english else ("第一", "第二"))[index]

    def which(self, first: bool, second: bool) -> str:
        """Say which of two pictures has something."""
        row = int(first) + 2 * int(second)
        english = ("None of them.", "The first image.", "The second image.", "Both images.")
        chinese = ("都没有。", "第一张图。", "第二张图。", "两张图都有。")
        return (english if self._english else chinese)[row]

    def count(self, total: int, target: str | None = None) -> str:
        """Say how many shapes, or how many of a form or colour."""
        if not self._english:
            what = "图形" if target is None else self.many(target)
            return f"有{NUMBERS['zh'][total]}个{what}。" if total else f"我没有看到{what}。"
        plural = "shapes" if target is None else self.many(target)
        if total == 0:
            return f"I don't see any {plural}."
        if total == 1:
            return f"There is one {plural[:-1]}."
        return f"There are {NUMBERS['en'][total]} {plural}."

    def at(self, place: str) -> str:
        """Say in which quarter something is."""
        return f"In the {place}." if self._english else f"在{CHINESE[place]}。"

    def unseen(self, name: str) -> str:
        """Say that something is not there."""
        if self._english:
            return f"I don't see {self.noun(name)}."
        return f"我没有看到{self.bare(name)}。"

    def colour(self, colour: str) -> str:
        """Say which colour something has."""
        return f"It is {colour}." if self._english else f"是{CHINESE[colour]}的。"

    def presence(self, total: int) -> str:
        """Say whether something is there, and how many."""
        if not self._english:
            return f"有，我看到{NUMBERS['zh'][total]}个。" if total else "没有，我没看到。"
        return f"Yes, I see {NUMBERS['en'][total]}." if total else "No, I don't see one."

    def side(self, side: str, other: str) -> str:
        """Say on which side of another shape something is."""
        return f"It is {side} of the {other}." if self._english else f"在{CHINESE[side]}边。"

    def motion(self, motion: str) -> str:
        """Say how something moves."""
        return self._moves("It" if self._english else "它", motion)

    def movie(self, name: str, motion: str) -> str:
        """Describe a video of one shape."""
        noun = self.noun(name).capitalize() if self._english else f"一个{self.bare(name)}"
        return self._moves(noun, motion)

    def _moves(self, who: str, motion: str) -> str:
        if not self._english:
            return f"{who}没有移动。" if motion == "still" else f"{who}往{CHINESE[motion]}移动。"
        if motion == "still":
            return f"{who} does not move."
        return f"{who} moves {motion if motion in ('up', 'down') else 'to the ' + motion}."


def words_of(language: Language) -> Words:
    """Give the sentences of a language."""
    return Words(language)
