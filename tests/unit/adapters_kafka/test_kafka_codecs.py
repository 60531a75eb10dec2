"""What compresses batches is imported when it is used, and does what it did."""

import subprocess
import sys

LIBRARIES = ("cramjam", "zstandard")
CHECK = f"""
import sys
from adapters.kafka import connect
connect("kafka://127.0.0.1:9092")
print([name for name in {LIBRARIES} if name in sys.modules])
from kafka import codec
for name in "snappy", "lz4", "zstd":
    assert getattr(codec, f"has_{{name}}")()
    packed = getattr(codec, f"{{name}}_encode")(b"body" * 100)
    assert 0 < len(packed) < 400
    assert getattr(codec, f"{{name}}_decode")(packed) == b"body" * 100
print([name for name in {LIBRARIES} if name in sys.modules])
"""


def test_a_codec_is_imported_at_its_first_use() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", str([*LIBRARIES])]
