"""Compression as Java writes and reads it."""

from __future__ import annotations

import gzip
import random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch
from heliograph.kafka.compression import Codec, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
NOISE = random.Random(1).randbytes(200_000)
TEXT = b"the quick brown fox " * 20_000


@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, NOISE[:65_536], TEXT[:32_768], TEXT[:32_769]], ids=len)
@pytest.mark.parametrize("codec", Codec)
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, memoryview(bytes(compress(codec, memoryview(data)))))) == data


@given(data=st.binary(max_size=300), codec=st.sampled_from(COMPRESSED))
def test_round_trip_of_anything(data: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


def test_what_we_write_is_read_by_other_implementations() -> None:
    for data in (TEXT, NOISE):
        assert gzip.decompress(compress(Codec.GZIP, data)) == data
        assert bytes(cramjam.lz4.decompress(compress(Codec.LZ4, data))) == data
        assert bytes(cramjam.zstd.decompress(compress(Codec.ZSTD, data))) == data


def test_what_others_write_is_read() -> None:
    for data in (b"x", TEXT, NOISE):
        assert bytes(decompress(Codec.GZIP, gzip.compress(data))) == data
        assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data)))) == data
        assert bytes(decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(data, level=19)))) == data


def test_lz4_frame_has_independent_blocks_as_java_demands() -> None:
    frame = bytes(compress(Codec.LZ4, TEXT))
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20, "independent blocks"
    assert frame[4] >> 6 == 1, "version"
    assert frame[5] == 0x40, "blocks of 64 KiB"


def test_snappy_is_written_in_xerial_blocks() -> None:
    framed = bytes(compress(Codec.SNAPPY, TEXT))
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    pos, plain = 16, b""
    while pos < len(framed):
        size = int.from_bytes(framed[pos : pos + 4], "big")
        block = bytes(cramjam.snappy.decompress_raw(framed[pos + 4 : pos + 4 + size]))
        assert len(block) <= 32_768
        plain += block
        pos += 4 + size
    assert plain == TEXT


def test_raw_snappy_of_other_clients_is_read() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_input_is_a_typed_error(codec: Codec) -> None:
    whole = bytes(compress(codec, b"some records " * 20))
    # a xerial stream may end after its head and after every block
    whole_anyway = {16} if codec is Codec.SNAPPY else set()
    for size in set(range(len(whole))) - whole_anyway:
        with pytest.raises(CorruptBatch):
            decompress(codec, whole[:size], max_bytes=4096)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_is_a_typed_error(codec: Codec) -> None:
    for garbage in (b"", b"\x00" * 40, b"\xff" * 40, NOISE[:1000], b"\x82SNAPPY\x00" + b"\xff" * 12):
        with pytest.raises(CorruptBatch):
            decompress(codec, garbage, max_bytes=4096)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bomb_is_refused_at_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(1_000_000))
    assert len(bytes(decompress(codec, bomb, max_bytes=1_000_000))) == 1_000_000
    with pytest.raises(CorruptBatch, match="limit"):
        decompress(codec, bomb, max_bytes=999_999)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_a_typed_error(codec: int) -> None:
    with pytest.raises(CorruptBatch, match=f"codec {codec}"):
        decompress(codec, b"x")
    with pytest.raises(CorruptBatch, match=f"codec {codec}"):
        compress(codec, b"x")
