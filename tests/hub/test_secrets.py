"""Secrets are found where they are, and hardly anywhere else.

The secrets here are made up, and are put together when a test runs: this file holds none.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import tarfile
import zipfile
from base64 import b64encode
from pathlib import Path

import pytest
from support.memory import MIB, kept_below

from openenv.hub import SecretFinding, find_secrets
from openenv.hub.secrets import (
    ALLOWED,
    entropy,
    find_secrets_in_text,
    find_unscanned,
    split_allowed,
)

ROOT = Path(__file__).parents[2]
RANDOM = "q7Zk2mXv9Rb4Lt8Wc3Ny6Hd1Jf5Gs0Pa" + "uEoI7QxB"
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"

FORMS = {
    "a token of Hugging Face": "hf_" + RANDOM[:34],
    "a key of Anthropic": "sk-" + "ant-api03-" + RANDOM,
    "a key of OpenAI": "sk-" + "proj-" + RANDOM,
    "a token of GitHub": "gh" + "p_" + RANDOM[:36],
    "a token of GitLab": "glpat" + "-" + RANDOM[:20],
    "a key of AWS": "AKIA" + "Q7ZK2MXV9RB4LT8W",
    "a key of Google": "AIza" + RANDOM[:35],
    "a token of Slack": "xoxb" + "-2210535565-" + RANDOM[:24],
    "a key of Stripe": "sk_" + "live_" + RANDOM[:24],
    "a JSON Web Token": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiJtZSJ9." + RANDOM,
    "a key of Groq": "gsk" + "_" + RANDOM + "bTkW93yQzu4",
    "a token of PyPI": "pypi-" + "AgEIcHlwaS5vcmc" + RANDOM + RANDOM,
}


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("client.py", 'call("{}")'),
        ("README.md", "run it with `--token {}`"),
        ("Dockerfile", "ENV SOMETHING={}"),
        ("openenv.yaml", "  SOMETHING: {}"),
        ("play.ipynb", '  "x = \\"{}\\"\\n",'),
    ],
)
def test_what_has_the_form_of_a_secret_is_found_in_every_file(
    kind: str, path: str, line: str
) -> None:
    text = f"first\n{line.format(FORMS[kind])}\nlast\n"
    assert find_secrets_in_text(text, path) == [SecretFinding(path, 2, kind)]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("client.py", f'API_KEY = "{RANDOM}"'),
        ("client.py", f"api_key: str = '{RANDOM}'"),
        ("client.py", f'headers = {{"x-api-key": "{RANDOM}"}}'),
        ("client.py", f'os.environ.setdefault("MY_TOKEN", "{HEX}")'),
        ("client.py", 'password="tr0ub4dor&3x"'),
        (".dockerignore", f"AUTH_SECRET={RANDOM}"),
        ("Dockerfile", f"ENV WANDB_API_KEY={HEX}"),
        ("Dockerfile", f"ENV WANDB_API_KEY {HEX}"),
        ("Dockerfile", "ARG DB_PASSWORD=k7#mQ2xx9"),
        ("openenv.yaml", f"  SERVICE_TOKEN: {RANDOM}"),
        ("pyproject.toml", f'token = "{RANDOM}"'),
        ("a.json", f'{{"client_secret": "{RANDOM}"}}'),
        ("README.md", "postgres://me:k7mQ2xv9@db.acme.org/games"),
        ("play.ipynb", json.dumps({"source": [f'API_KEY = "{RANDOM}"\n']})),
    ],
)
def test_a_random_value_of_a_secrets_name_is_found(path: str, line: str) -> None:
    (found,) = find_secrets_in_text(line, path)
    assert found.line == 1
    assert RANDOM not in str(found) and HEX not in str(found)


@pytest.mark.parametrize(
    "line",
    [
        'API_KEY = "your-api-key-here-1234567890"',
        'token = os.environ["HF_TOKEN"]',
        "ENV OPENAI_API_KEY=$OPENAI_API_KEY",
        "OPENAI_API_KEY: ${{ secrets.OPENAI_API_KEY }}",
        'pad_token = "<|endoftext|>"',
        "max_tokens: 4096",
        "key: value-of-some-longer-name",
        'export HF_TOKEN="hf_' + "x" * 34 + '"',
        "token: /run/secrets/token-1a2b3c4d5e6f7a8b9c",
        "--hash=sha256:" + HEX * 2,
        'commit = "' + HEX + '"',
        'password = "correct-horse-battery-staple"',
        'key="Qwen/Qwen2.5-0.5B-Instruct"',
        "postgres://user:password@localhost/db",
        "tokenizer = AutoTokenizer.from_pretrained(name)",
        'sort(key=lambda one: one["a1b2c3d4e5f6a7b8"])',
        ".sk-folding-cube-element-inside-wrapper { color: red }",
        'AKIA = "AKIA" + "EXAMPLE"; x = "AKIAIOSFODNN7EXAMPLE"',
    ],
)
@pytest.mark.parametrize("path", ["a.py", "a.md"])
def test_what_only_looks_a_little_like_a_secret_is_none(line: str, path: str) -> None:
    assert find_secrets_in_text(line, path) == []


def test_a_private_key_is_found_and_its_name_is_not() -> None:
    begin, end = ("-----" + f"{word} RSA PRIVATE" + " KEY-----" for word in ("BEGIN", "END"))
    key = f"{begin}\n{RANDOM}\n{RANDOM}\n{end}\n"
    assert find_secrets_in_text(f"# x\n{key}", "deploy.pem") == [
        SecretFinding("deploy.pem", 2, "a private key")
    ]
    escaped = json.dumps({"private_key": key})
    assert find_secrets_in_text(escaped, "a.json") == [SecretFinding("a.json", 1, "a private key")]
    assert find_secrets_in_text(f'if text.startswith("{begin}"):\n    pass\n', "a.py") == []


def test_files_for_secrets_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("prod.env", ".env", ".env.example", "keys/id_ed25519", ".ssh/config", "a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("A=1\n")
    names = ("prod.env", ".env", ".env.example", "keys/id_ed25519", ".ssh/config", "a.py")
    assert [one.path for one in find_secrets(tmp_path, names)] == list(names[:2] + names[3:5])


def test_what_is_no_text_is_passed_over(tmp_path: Path) -> None:
    secret = FORMS["a token of Hugging Face"].encode()
    (tmp_path / "weights.bin").write_bytes(b"\0\1\2" + secret)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " + secret)
    assert [one.path for one in find_secrets(tmp_path, ["weights.bin", "latin.txt"])] == [
        "latin.txt"
    ]


def test_the_value_of_a_secret_of_this_machine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "plain words")
    (found,) = find_secrets_in_text("\nit is plain words", "README.md")
    assert found == SecretFinding("README.md", 2, "the value of a secret of this machine")


def test_somebody_who_has_looked_lets_a_place_pass() -> None:
    line = f'API_KEY = "{RANDOM}"'
    assert find_secrets_in_text(f"{line}  # {ALLOWED}", "a.py") == []
    found = [SecretFinding("a.py", 3, "x"), SecretFinding("b/c.py", 9, "x")]
    assert split_allowed(found, ["a.py:3"]) == ([found[1]], [])
    assert split_allowed(found, ["a.py", "b/*"]) == ([], [])
    assert split_allowed(found, ["a.py:4", "d.py"]) == (found, ["a.py:4", "d.py"])


def test_entropy_is_that_of_shannon() -> None:
    assert entropy("aaaa") == 0 and entropy("abcd") == 2


@pytest.mark.slow("looks through every file of the repository")
def test_nothing_is_found_in_our_own_environments_examples_and_pages() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "envs", "examples", "tutorial", "docs", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(listed) > 500
    assert find_secrets(ROOT, listed) == []


# ------------------------------------------------------------------ where else they are

OF_REGISTRY = b64encode(b"me:k7mQ2xv9Zt").decode()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_texts_of_every_encoding_are_looked_through(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "notes.txt").write_bytes(f"first\nTOKEN={RANDOM}\n".encode(encoding))
    assert [(one.path, one.line) for one in find_secrets(tmp_path, ["notes.txt"])] == [
        ("notes.txt", 2)
    ]


def test_archives_are_looked_through(tmp_path: Path) -> None:
    text = f"TOKEN={RANDOM}\n".encode()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr("inner/.env", b"A=1")
        zipped.writestr("inner/notes.txt", text)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo("notes.txt")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    (tmp_path / "notes.gz").write_bytes(gzip.compress(text))
    names = ["a.zip", "a.tar.gz", "notes.gz"]
    assert [one.path for one in find_secrets(tmp_path, names)] == [
        "a.zip!/inner/.env",
        "a.zip!/inner/notes.txt",
        "a.tar.gz!/notes.txt",
        "notes.gz!/notes",
    ]
    assert find_unscanned(tmp_path, names) == []


def test_an_archive_that_cannot_be_looked_through_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken.zip").write_bytes(b"PK\3\4 nothing")
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"x" * (65 << 20)))
    names = ["broken.zip", "bomb.gz"]
    assert find_secrets(tmp_path, names) == [] and find_unscanned(tmp_path, names) == names


def test_archives_in_archives_are_looked_through_whatever_they_are_called(tmp_path: Path) -> None:
    text = f"TOKEN={RANDOM}\n".encode()
    (tmp_path / "model.pt").write_bytes(zipped({"a/b.tar.xz": lzma.compress(tarred(text))}))
    (tmp_path / "notes.txt.bz2").write_bytes(bz2.compress(text))
    (tmp_path / "twice.gz").write_bytes(gzip.compress(gzip.compress(text)))
    (tmp_path / "BZhang.txt").write_bytes(text)
    names = ["model.pt", "notes.txt.bz2", "twice.gz", "BZhang.txt"]
    assert [one.path for one in find_secrets(tmp_path, names)] == [
        "model.pt!/a/b.tar.xz!/notes.txt",
        "notes.txt.bz2!/notes.txt",
        "twice.gz!/twice!/twice",
        "BZhang.txt",
    ]
    assert find_unscanned(tmp_path, names) == []


@pytest.mark.parametrize("kind", ["many", "deep", "sparse", "packed_twice", "long_name"])
def test_an_archive_is_looked_through_so_far_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("openenv.hub.secrets.MOST_OF_ARCHIVE", MIB // 8)
    (tmp_path / "large.zip").write_bytes(bomb(kind))
    (tmp_path / "next.txt").write_text(f"TOKEN={RANDOM}\n")
    names = ["large.zip", "next.txt"]
    with kept_below(32 * MIB):
        assert [one.path for one in find_secrets(tmp_path, names)] == ["next.txt"]
        assert find_unscanned(tmp_path, names) == ["large.zip"]


def test_what_a_link_leads_to_may_have_no_end_or_not_be_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "fifo.txt").symlink_to("pipe")
    (tmp_path / "zero.gz").symlink_to("/dev/zero")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    (tmp_path / "next.txt").write_text(f"TOKEN={RANDOM}\n")
    names = ["fifo.txt", "zero.gz", "gone.txt", "next.txt"]
    with kept_below(8 * MIB):
        assert [one.path for one in find_secrets(tmp_path, names)] == ["next.txt"]
        assert find_unscanned(tmp_path, names) == []


def zipped(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return written.getvalue()


def tarred(data: bytes, **told: object) -> bytes:
    written = io.BytesIO()
    entry = tarfile.TarInfo("notes.txt")
    entry.size = len(data)
    entry.pax_headers = {key.replace("_", "."): str(value) for key, value in told.items()}
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(data))
    return written.getvalue()


def bomb(kind: str) -> bytes:
    """An archive of a few KB in which is more than 128 KiB, or what has no end."""
    if kind == "many":
        return zipped({f"{n}.txt": bytes(MIB // 32) for n in range(5)})
    if kind == "packed_twice":
        return zipped({f"{n}.gz": gzip.compress(bytes(MIB // 16)) for n in range(3)})
    if kind == "sparse":
        sparse = {"major": 0, "minor": 1, "size": 2**40, "map": "0,0"}
        return tarred(b"", **{f"GNU_sparse_{key}": value for key, value in sparse.items()})
    if kind == "long_name":
        header = bytearray(tarfile.TarInfo("././@LongLink").tobuf(tarfile.GNU_FORMAT))
        header[124:136], header[156:157] = b"%011o\0" % (2**33 - 1), b"L"
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        return gzip.compress(bytes(header) + bytes(64 * MIB))
    data = b"x"
    for _ in range(40):
        data = zipped({"a.zip": data})
    return data


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("notes.md", f"curl -H 'Authorization: Bearer {RANDOM}' https://api.acme.org"),
        ("client.py", f'headers = {{"Authorization": "Bearer {RANDOM}"}}'),
        ("config.json", f'{{"auths": {{"ghcr.io": {{"auth": "{OF_REGISTRY}"}}}}}}'),
        ("hosts.txt", "machine api.acme.org login me password k7mQ2xv9Zt"),
        ("Dockerfile", f"ENV GITHUB_PAT={RANDOM}"),
        ("data.jsonl", "x" * 150_000 + f' TOKEN="{RANDOM}" ' + "x" * 150_000),
        ("data.jsonl", "x" * 99_990 + f' TOKEN="{RANDOM}" ' + "x" * 9),
    ],
)
def test_secrets_of_other_forms_are_found(path: str, line: str) -> None:
    (found,) = find_secrets_in_text(line, path)
    assert found.line == 1


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer your-token-goes-here-please",
        '{"auth": "none-of-your-business"}',
        "machine, login and password are asked for",
        "COMPAT=1234567890abcdefXYZW",
    ],
)
def test_what_only_looks_like_these_is_none(line: str) -> None:
    assert find_secrets_in_text(line, "notes.md") == []
