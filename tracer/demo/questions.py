"""Questions about scenes and their right answers, in English and Chinese, in several wordings.

`ask` takes a scene, `ask_pair` two scenes in one message, `ask_movie` a short video and
`small_talk` a message without any picture. The answer follows from the scene alone. Which scenes
there are is decided in `scenes`.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tracer.demo.drawing import COLOURS, FORMS, MOTIONS, PLACES, Movie, Scene, Shape
from tracer.demo.words import CHAT, QUESTIONS, WITHOUT_IMAGE, Language, Words, words_of

SCENE_KINDS = ("describe", "count", "place", "where", "colour", "presence", "side")
KINDS = (*SCENE_KINDS, "pair", "video", "text")
PAIR_FORMS = ("both", "which", "which", "nth", "nth_count")
LANGUAGES: tuple[Language, ...] = ("en", "zh")

Asked = tuple[str, str, tuple[tuple[str, ...], ...]]  # wording, answer, places of what it names


@dataclass(frozen=True)
class Question:
    """What is asked and the one answer that counts as right.

    `about` has, for each name that the question uses, the places of the shapes so called; of two
    pictures, the places in the first and in the second. It guides training.
    """

    kind: str
    language: Language
    text: str
    answer: str
    about: tuple[tuple[str, ...], ...] = ()


def ask(scene: Scene, kind: str, language: Language, chance: random.Random) -> Question:
    """Ask a question of a kind about one picture."""
    words = words_of(language)
    return Question(kind, language, *_ASKERS[kind](scene, words, chance))


def ask_pair(
    first: Scene,
    second: Scene,
    language: Language,
    chance: random.Random,
    forms: Sequence[str] = PAIR_FORMS,
) -> Question:
    """Ask about two pictures in one message; `forms` are drawn from."""
    words = words_of(language)
    form = chance.choice(forms)
    wording = chance.choice(QUESTIONS[language][f"pair_{form}"])
    about = (_places(first.shapes), _places(second.shapes))
    if form == "both":
        answer = words.both(words.described(first), words.described(second))
    elif form == "which":
        name = _likely(first.shapes + second.shapes, chance, 0.85).name
        wording = wording.format(a=words.noun(name))
        about = (_named(first, name), _named(second, name))
        answer = words.which(bool(about[0]), bool(about[1]))
    else:
        index = chance.randrange(2)
        wording = wording.format(nth=words.nth(index))
        scene = (first, second)[index]
        about = (about[0], ()) if index == 0 else ((), about[1])
        answer = words.description(scene) if form == "nth" else words.count(len(scene.shapes))
    return Question("pair", language, wording, answer, about)


def ask_movie(movie: Movie, language: Language, chance: random.Random) -> Question:
    """Ask about a short video of one shape."""
    words = words_of(language)
    form = chance.choice(("describe", "describe", "motion", "motion", "what", "colour"))
    wording = chance.choice(QUESTIONS[language][f"video_{form}"])
    wording = wording.format(form=words.form(movie.form))
    if form == "describe":
        answer = words.movie(f"{movie.colour} {movie.form}", movie.motion)
    elif form == "motion":
        answer = words.motion(movie.motion)
    elif form == "what":
        answer = words.thing(f"{movie.colour} {movie.form}")
    else:
        answer = words.colour(movie.colour)
    return Question("video", language, wording, answer)


def small_talk(scene: Scene, language: Language, chance: random.Random) -> Question:
    """Ask without a picture: a greeting, or a question that would need one."""
    if chance.random() < 0.5:
        wording, answer = chance.choice(CHAT[language])
        return Question("text", language, wording, answer)
    asked = ask(scene, chance.choice(SCENE_KINDS), language, chance)
    return Question("text", language, asked.text, WITHOUT_IMAGE[language])


def every_text() -> list[str]:
    """Give each wording and answer of the small world at least once; for the tokenizer."""
    texts: list[str] = []
    chance = random.Random(0)
    shapes = [Shape(place, c, f) for place in PLACES for c in COLOURS for f in FORMS]
    for language in LANGUAGES:
        for line, answer in CHAT[language]:
            texts += [line, answer]
        texts.append(WITHOUT_IMAGE[language])
        for _ in range(150):
            scene = Scene(tuple(chance.sample(shapes, chance.choice((0, 1, 2, 3)))))
            asked = [ask(scene, kind, language, chance) for kind in SCENE_KINDS]
            movie = Movie(*(chance.choice(each) for each in (tuple(COLOURS), FORMS, MOTIONS)))
            asked += [ask_pair(scene, scene, language, chance), ask_movie(movie, language, chance)]
            texts += [text for question in asked for text in (question.text, question.answer)]
    return texts


def _likely(shapes: tuple[Shape, ...], chance: random.Random, share: float) -> Shape:
    """Choose one of the shapes with the given probability, else a random one."""
    if shapes and chance.random() < share:
        return chance.choice(shapes)
    return Shape("", chance.choice(tuple(COLOURS)), chance.choice(FORMS))


def _has(scene: Scene, name: str) -> bool:
    return any(shape.name == name for shape in scene.shapes)


def _unique(scene: Scene, word: str) -> list[Shape]:
    """Give the shapes whose form, or whose colour and form, no other shape of the scene has."""
    names = [getattr(shape, word) for shape in scene.shapes]
    return [shape for shape in scene.shapes if names.count(getattr(shape, word)) == 1]


def _places(shapes: Iterable[Shape]) -> tuple[str, ...]:
    return tuple(shape.place for shape in shapes)


def _named(scene: Scene, name: str) -> tuple[str, ...]:
    return _places(shape for shape in scene.shapes if shape.name == name)


def _describe(scene: Scene, words: Words, chance: random.Random) -> Asked:
    wording = chance.choice(QUESTIONS[words.language]["describe"])
    return wording, words.description(scene), (_places(scene.shapes),)


def _count(scene: Scene, words: Words, chance: random.Random) -> Asked:
    by = chance.choice(("all", "form", "colour"))
    wording = chance.choice(QUESTIONS[words.language][f"count_{by}"])
    if by == "all":
        return wording, words.count(len(scene.shapes)), (_places(scene.shapes),)
    target = getattr(_likely(scene.shapes, chance, 0.8), by)
    found = _places(shape for shape in scene.shapes if getattr(shape, by) == target)
    return wording.format(many=words.many(target)), words.count(len(found), target), (found,)


def _place(scene: Scene, words: Words, chance: random.Random) -> Asked:
    place = _likely(scene.shapes, chance, 0.6).place or chance.choice(PLACES)
    wording = chance.choice(QUESTIONS[words.language]["place"]).format(place=words.place(place))
    found = [shape for shape in scene.shapes if shape.place == place]
    answer = words.thing(found[0].name) if found else words.nothing
    return wording, answer, (_places(found),)


def _where(scene: Scene, words: Words, chance: random.Random) -> Asked:
    name, found = _singled_out(scene, chance)
    wording = chance.choice(QUESTIONS[words.language]["where"]).format(the=words.bare(name))
    if found is None:
        return wording, words.unseen(name), ((),)
    return wording, words.at(found.place), (_places([found]),)


def _singled_out(scene: Scene, chance: random.Random) -> tuple[str, Shape | None]:
    """Choose a colour and form that one shape has, or (one time in five) that none has."""
    unique = _unique(scene, "name")
    if unique and chance.random() < 0.8:
        shape = chance.choice(unique)
        return shape.name, shape
    return _absent(scene, chance), None


def _absent(scene: Scene, chance: random.Random) -> str:
    """Name a shape that is not there but, mostly, shares colour or form with one that is."""
    while True:
        name = f"{chance.choice(tuple(COLOURS))} {chance.choice(FORMS)}"
        if scene.shapes and chance.random() < 0.7:
            near = chance.choice(scene.shapes)
            colour, form = name.split()
            name = f"{near.colour} {form}" if chance.random() < 0.5 else f"{colour} {near.form}"
        if not _has(scene, name):
            return name


def _colour(scene: Scene, words: Words, chance: random.Random) -> Asked:
    by = chance.choice(("form", "form", "place"))
    wording = chance.choice(QUESTIONS[words.language][f"colour_{by}"])
    if by == "place":
        place = _likely(scene.shapes, chance, 0.85).place or chance.choice(PLACES)
        found = [shape for shape in scene.shapes if shape.place == place]
        answer = words.colour(found[0].colour) if found else words.nothing
        return wording.format(place=words.place(place)), answer, (_places(found),)
    unique = _unique(scene, "form")
    missing = [form for form in FORMS if all(shape.form != form for shape in scene.shapes)]
    if unique and chance.random() < 0.8:
        shape = chance.choice(unique)
        wording = wording.format(form=words.form(shape.form))
        return wording, words.colour(shape.colour), (_places([shape]),)
    form = chance.choice(missing)
    return wording.format(form=words.form(form)), words.unseen(form), ((),)


def _presence(scene: Scene, words: Words, chance: random.Random) -> Asked:
    wording = chance.choice(QUESTIONS[words.language]["presence"])
    if scene.shapes and chance.random() < 0.5:
        shape = chance.choice(scene.shapes)
        name = shape.name if chance.random() < 0.6 else shape.form
    else:
        name = _absent(scene, chance)
        name = name if chance.random() < 0.7 else name.split()[1]
    found = _places(shape for shape in scene.shapes if name in (shape.name, shape.form))
    return wording.format(a=words.noun(name)), words.presence(len(found)), (found,)


def _side(scene: Scene, words: Words, chance: random.Random) -> Asked:
    unique = _unique(scene, "name")
    pairs = [
        (one, other)
        for one in unique
        for other in unique
        if one.place.endswith("left") != other.place.endswith("left")
    ]
    wording = chance.choice(QUESTIONS[words.language]["side"])
    if pairs and chance.random() < 0.85:
        one, other = chance.choice(pairs)
        wording = wording.format(the=words.bare(one.name), other=words.bare(other.name))
        side = "left" if one.place.endswith("left") else "right"
        return wording, words.side(side, other.name), (_places([one]), _places([other]))
    name = _absent(scene, chance)
    colour, form = name.split()
    if not unique:  # no second name to ask for is sure to be there; the first is answered
        another = next(each for each in COLOURS if each != colour)
        wording = wording.format(the=words.bare(name), other=words.bare(f"{another} {form}"))
        return wording, words.unseen(name), ((),)
    seen = chance.choice(unique)
    is_first = chance.random() < 0.5
    first, second = (seen.name, name) if is_first else (name, seen.name)
    about = (_places([seen]), ()) if is_first else ((), _places([seen]))
    wording = wording.format(the=words.bare(first), other=words.bare(second))
    return wording, words.unseen(name), about


_ASKERS: dict[str, Callable[[Scene, Words, random.Random], Asked]] = {
    "describe": _describe,
    "count": _count,
    "place": _place,
    "where": _where,
    "colour": _colour,
    "presence": _presence,
    "side": _side,
}
