"""The size of a GGUF on the card follows the publisher and the format in its name."""

from __future__ import annotations

import pytest

from qwendeploy.auditing.understanding.gguf_files import file_gib
from qwendeploy.units import GIB


@pytest.mark.parametrize(
    ("file", "repository", "size"),
    [
        ("Qwen3.6-27B-IQ4_XS.gguf", "", 13.703),
        ("IQ4_XS", "bartowski/Qwen3.6-27B-GGUF", 13.637),
        ("Qwen3.6-27B.i1-IQ4_XS.gguf", "", 13.407),
        ("Qwen3.6-27B-IQ4_XS-pure.gguf", "", 12.698),
        ("Qwen3.6-27B-UD-Q4_K_XL.gguf", "", 15.727),
    ],
)
def test_a_listed_file_has_its_listed_size(file: str, repository: str, size: float) -> None:
    assert file_gib(file, repository) == pytest.approx(size)


@pytest.mark.parametrize(
    ("file", "published_bytes"),
    [
        ("Qwen3.6-27B-Q4_K_M.gguf", 16_817_244_384),
        ("Qwen3.6-27B-MTP-Q4_K_M.gguf", 17_106_773_120),
        ("Qwen3.6-27B-UD-Q5_K_XL.gguf", 20_038_256_864),
        ("Qwen3.6-27B-UD-Q6_K_XL.gguf", 25_636_485_344),
        ("Qwen3.6-27B-UD-Q8_K_XL.gguf", 35_325_163_744),
    ],
)
def test_a_published_file_takes_its_size_less_the_embedding(
    file: str, published_bytes: int
) -> None:
    size = file_gib(file)
    assert size is not None
    on_host = published_bytes / GIB - size
    assert 0.5 < on_host < 1.4


def test_a_name_without_a_format_has_no_size() -> None:
    assert file_gib("model.gguf") is None
