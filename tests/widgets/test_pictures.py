"""Files become pictures, or one clear sentence."""

import io

import pytest
from PIL import Image

from tracer.errors import TracerError
from tracer.widgets import pictures


def file(size=(8, 6), kind="PNG", mode="RGB"):
    content = io.BytesIO()
    Image.new(mode, size, 1).save(content, kind)
    return content.getvalue()


def film(frames):
    content = io.BytesIO()
    images = [Image.new("RGB", (8, 6), (shade, 0, 0)) for shade in range(0, frames * 10, 10)]
    images[0].save(content, "GIF", save_all=True, append_images=images[1:])
    return content.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_an_image_of_any_kind_comes_in(kind):
    picture = pictures.read(f"shot.{kind}", file(kind=kind))
    assert (picture.size, picture.is_video, picture.note) == ("8 × 6", False, "")
    assert picture.frames[0].mode == "RGB"
    assert picture.preview.startswith("data:image/png;base64,")


def test_a_moving_gif_is_a_video_of_at_most_so_many_frames():
    picture = pictures.read("walk.gif", film(4))
    assert (picture.is_video, picture.size) == (True, "8 × 6 × 4")
    long = pictures.read("walk.gif", film(24))
    assert len(long.frames) == pictures.MOST_FRAMES
    assert "16 of 24" in long.note


def test_a_picture_of_fifty_megapixels_comes_in_with_a_note():
    picture = pictures.read("large.png", file((8000, 6250), mode="1"))
    assert picture.size == "8000 × 6250"
    assert "50 megapixels" in picture.note
    assert len(picture.preview) < 10_000


def header_of(width, height):
    """A PNG whose header tells a size that its data does not have."""
    content = bytearray(file())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    import zlib

    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nothing.png", b"", "empty"),
        ("notes.pdf", b"%PDF-1.7 notes", "no image or video"),
        ("page.html", b"<script>alert(1)</script>", "no image or video"),
        ("torn.png", file((400, 400))[:300], "broken"),
        ("torn.jpg", file((400, 400), "JPEG")[:400], "broken"),
        ("bomb.png", header_of(30_000, 30_000), "200 million pixels"),
        ("vast.png", header_of(16_000, 15_000), "200 million pixels"),
        ("film.mp4", b"no film at all", "broken"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(name, content, said):
    with pytest.raises(TracerError, match=said) as caught:
        pictures.read(name, content)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_video_is_decoded(tmp_path):
    av = pytest.importorskip("av", reason="PyAV is not installed")
    path = tmp_path / "film.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height = 32, 16
        for shade in range(5):
            frame = av.VideoFrame.from_image(Image.new("RGB", (32, 16), (shade * 40, 0, 0)))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    picture = pictures.read("film.mp4", path.read_bytes())
    assert (picture.is_video, picture.size) == (True, "32 × 16 × 5")


def test_a_video_without_a_decoder_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TracerError, match="pip install av"):
        pictures.read("film.mp4", b"x")
