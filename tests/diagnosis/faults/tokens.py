"""Faults of a folder's tokenizer, template and token ids, found before anything is loaded."""

from diagnosis.bench import Bench, rewritten
from diagnosis.cases import clean, fault

CHAT = ("folder_pad_is_end",)


def chat(bench: Bench):
    """The chat model, to be broken."""
    return bench.copy(bench.chat())


@fault("folder_without_tokenizer", also=CHAT)
def a_folder_of_weights_alone(bench: Bench):
    folder = chat(bench)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        (folder / name).unlink()
    return folder


@fault("folder_without_template", also=CHAT)
def a_tokenizer_without_a_template(bench: Bench):
    return bench.changed_chat("tokenizer_config.json", lambda own: own.pop("chat_template"))


@fault("ids_beyond_embedding", also=CHAT)
def a_token_added_without_a_row(bench: Bench):
    folder = chat(bench)
    token = {"id": 5000, "content": "<|new|>", "special": True, "single_word": False}
    token |= {"lstrip": False, "rstrip": False, "normalized": False}
    rewritten(folder / "tokenizer.json", lambda own: own["added_tokens"].append(token))
    return folder


BEYOND = ("ids_beyond_embedding", "embedding_of_another_size")


@clean(*BEYOND, also=("folder_without_tokenizer",))
def positions_that_are_fewer_than_words(bench: Bench):
    return bench.folder("bert")  # its position embeddings stand before its word embeddings


@clean(*BEYOND, also=("folder_without_template", *CHAT))
def a_tokenizer_with_values_of_other_kinds(bench: Bench):
    folder = chat(bench)
    rewritten(folder / "tokenizer_config.json", lambda own: own.update(chat_template=[1]))
    rewritten(folder / "tokenizer.json", lambda own: own["model"].update(vocab=[1, [], ["a", 0]]))
    return folder


@fault("stop_ids_disagree", also=())
def a_generation_that_stops_at_another_token(bench: Bench):
    return bench.changed_chat("generation_config.json", lambda own: own.update(eos_token_id=3))


@fault("stop_ids_disagree", "folder_pad_is_end")
def a_generation_that_knows_only_the_end_of_text(bench: Bench):
    return bench.changed_chat("generation_config.json", lambda own: own.update(eos_token_id=615))


@clean("stop_ids_disagree", "folder_pad_is_end")
def a_pad_token_of_its_own(bench: Bench):
    return bench.changed_chat("generation_config.json", lambda own: own.update(pad_token_id=600))


@fault("folder_pad_is_end")
def a_pad_token_that_ends(bench: Bench):
    return bench.chat()


def begins(own):
    """Let the tokenizer put its begin token before each text."""
    own["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {},
    }  # fmt: skip


def named_begin(own):
    """Name it, and let the template write it."""
    own["bos_token"] = "<|im_start|>"
    own["chat_template"] = "{{- bos_token }}" + own["chat_template"]


@fault("begin_written_twice", also=CHAT)
def a_template_that_writes_what_the_tokenizer_adds(bench: Bench):
    folder = chat(bench)
    rewritten(folder / "tokenizer.json", begins)
    rewritten(folder / "tokenizer_config.json", named_begin)
    return folder


@clean("begin_written_twice", also=CHAT)
def a_template_that_writes_what_nothing_adds(bench: Bench):
    return bench.changed_chat("tokenizer_config.json", named_begin)


def unpadded(own):
    """A class without a pad token of its own, and none in the file."""
    own["tokenizer_class"] = "PreTrainedTokenizerFast"
    own.pop("pad_token", None)


@fault("folder_pad_unset")
def a_tokenizer_that_can_not_pad(bench: Bench):
    folder = chat(bench)
    rewritten(folder / "tokenizer_config.json", unpadded)
    rewritten(folder / "generation_config.json", lambda own: own.pop("pad_token_id"))
    return folder


@clean("folder_pad_unset", also=CHAT)
def a_pad_token_in_the_file(bench: Bench):
    return bench.changed_chat(
        "tokenizer_config.json",
        lambda own: own.update(tokenizer_class="PreTrainedTokenizerFast", pad_token="<|im_end|>"),
    )


@fault("settings_shipped", also=CHAT)
def sampling_and_a_penalty_from_the_file(bench: Bench):
    folder = chat(bench)
    given = {"do_sample": True, "temperature": 1e-6, "repetition_penalty": 1.05}
    rewritten(folder / "generation_config.json", lambda own: own.update(given))
    return folder


@fault("settings_unsavable", also=CHAT)
def a_temperature_without_sampling(bench: Bench):
    return bench.changed_chat("generation_config.json", lambda own: own.update(temperature=0.6))


@fault("template_broken", also=CHAT)
def a_template_that_was_cut(bench: Bench):
    return bench.changed_chat(
        "tokenizer_config.json", lambda own: own.update(chat_template=own["chat_template"][:-9])
    )


@fault("template_broken", also=(*CHAT, "stop_ids_disagree"))
def a_template_of_its_own_file_with_a_mark_too_many(bench: Bench):
    folder = chat(bench)
    text = "{% for m in messages %}{{ m['content'] }}}}{% endfor %}{{ 'x' 'y' z }}"
    (folder / "chat_template.jinja").write_text(text, "utf-8")
    return folder


@clean("template_broken", also=CHAT)
def a_template_with_the_librarys_own_tags(bench: Bench):
    text = "{% for m in messages %}{% if loop.index > 9 %}{% break %}{% endif %}{% generation %}"
    text += "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% endfor %}"
    return bench.changed_chat("tokenizer_config.json", lambda own: own.update(chat_template=text))
