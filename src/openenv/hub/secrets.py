"""A scanner for secrets in files that are about to become public.

The scanner finds three kinds: files whose names suggest secrets (``.env``), values in a form that
only keys and tokens have (``hf_``, ``sk-``, a private key), and random-looking values that are
assigned to a name such as ``API_KEY``. It reads UTF-8, UTF-16 and UTF-32 text, and archives.
Obvious placeholders (``your-key``, ``xxxx``) do not count. A line that contains
``openenv: allow-secret`` is skipped.
"""

from __future__ import annotations

import base64
import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import math
import re
import tarfile
import zipfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from openenv._internal.redaction import holds_secret
from openenv.images.context import HARMLESS_NAMES, SECRET_DIRECTORIES, SECRET_NAMES

ALLOWED = "openenv: allow-secret"
MOST_BYTES = 16 * 2**20  # larger files are data
LINE_CHARACTERS, OVERLAP = 100_000, 1000
ARCHIVES = (".zip", ".whl", ".egg", ".jar", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".gz")
MOST_OF_ARCHIVE = 64 * 2**20  # bytes in an archive, unpacked, including archives inside it
DEEPEST_ARCHIVE = 4  # levels of archives inside an archive
HEAD_BYTES = 512


class SecretFinding(NamedTuple):
    """A place where a secret seems to be; the secret itself is not stored.

    Attributes:
        path: Path of the file, relative and with slashes.
        line: Line, from 1; 0 for the whole file.
        kind: A description of the kind of secret.
    """

    path: str
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}" if self.line else f"{self.path}: {self.kind}"


# Forms that only secrets have, by issuer. The group must look random; without a group the form
# alone suffices.
FORMS = {
    "a token of Hugging Face": r"\bhf_([A-Za-z0-9]{30,})\b|\bapi_org_([A-Za-z0-9]{30,})\b",
    "a key of Anthropic": r"\bsk-ant-([\w-]{24,})",
    "a key of OpenRouter": r"\bsk-or-v1-([0-9a-f]{40,})\b",
    "a key of OpenAI": r"\bsk-(?:proj-|svcacct-|admin-)?([A-Za-z0-9_-]{32,})",
    "a token of GitHub": r"\bgh[pousr]_([A-Za-z0-9]{36,})\b|\bgithub_pat_(\w{60,})\b",
    "a token of GitLab": r"\bglpat-([\w-]{20,})",
    "a key of AWS": r"\b(?:AKIA|ASIA)([0-9A-Z]{16})\b",
    "a key of Google": r"\bAIza([\w-]{35})\b|\bGOCSPX-([\w-]{28})\b",
    "a token of Slack": r"\bxox[abeoprs]-([\w-]{20,})|\bxapp-([\w-]{20,})",
    "a webhook of Slack": r"https://hooks\.slack\.com/services/(T\w+/B\w+/\w{20,})",
    "a key of Stripe": r"\b[rs]k_live_([A-Za-z0-9]{20,})\b",
    "a token of npm": r"\bnpm_([A-Za-z0-9]{36})\b",
    "a token of PyPI": r"\bpypi-(AgE[\w-]{50,})",
    "a key of SendGrid": r"\bSG\.([\w-]{22}\.[\w-]{43})",
    "a key of Groq": r"\bgsk_([A-Za-z0-9]{40,})\b",
    "a key of NVIDIA": r"\bnvapi-([\w-]{40,})",
    "a token of Replicate": r"\br8_([A-Za-z0-9]{36,})\b",
    "a token of Databricks": r"\bdapi([0-9a-f]{32})\b",
    "a key of Azure's storage": r"\bAccountKey=([A-Za-z0-9+/=]{60,})",
    "a key in a header": r"(?i:\bauthorization\b[\"']?\s*[:=]\s*[\"']?"
    r"(?:bearer|basic|token)\s+)([\w.~+/=-]{16,})",
    "a JSON Web Token": r"\beyJ[\w-]{8,}\.(eyJ[\w-]{8,}\.[\w-]{16,})",
}
_FORMS = {kind: re.compile(form) for kind, form in FORMS.items()}
_ANY_FORM = re.compile("|".join(FORMS.values()))
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:\\[nr]|[\s\"'+,>]|[\w-]+: [^\n]*\n)*[A-Za-z0-9+/]{20}"
)
_PASSWORD_OF_URL = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@\"'<>]*:([^\s:/@\"'<>]{6,})@[\w.-]+"
)

OF_THIS_MACHINE = "the value of a secret of this machine"
_SECRET_WORD = re.compile(
    r"(?:key|token|secret|passwo?r?d|credentials?|[_.-]pat)\W|\bauth\W", re.IGNORECASE
)
_NAME = (
    r"(?:[\w.-]*[_.-])?(?:api_?key|access_?key|key|token|secret|passwo?r?d|credentials?)"
    r"|[\w.-]*[_.-]pat"
)
# Docker's credentials for a registry: user and password in base64.
_OF_REGISTRY = re.compile(r"[\"']auth[\"']\s*:\s*[\"']([A-Za-z0-9+/]{12,}={0,2})[\"']")
# A line of a .netrc, in any file: machine HOST login USER password WORD
_OF_NETRC = re.compile(r"\blogin\s+\S+\s+password\s+(\S{6,})")
# NAME = "value", "NAME": "value", NAME='value'
_QUOTED = re.compile(
    rf"(?<![\w.-])(?P<name>{_NAME})[\"']?\]?\s*(?::\s*\w+\s*)?(?:=>|:=|[:=,])\s*[a-z]{{0,2}}"
    r"(?P<quote>[\"'])(?P<value>[^\"'\s]{8,})(?P=quote)",
    re.IGNORECASE,
)
# NAME=value, NAME: value
_BARE = re.compile(
    rf"(?<![\w.-])(?P<name>{_NAME})\s*(?::=|[:=])\s*(?P<value>[^\"'\s,;]{{8,}})", re.IGNORECASE
)
# The older form of a Dockerfile: ENV NAME value
_OF_DOCKER = re.compile(
    rf"^\s*ENV\s+(?P<name>{_NAME})\s+[\"']?(?P<value>[^\"'\s=]{{8,}})", re.IGNORECASE
)
# Languages in which an unquoted value is an expression.
PROGRAMS = {".py", ".pyi", ".ipynb", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".go", ".rs", ".c"}
PROGRAMS |= {".cc", ".cpp", ".h", ".java", ".kt", ".rb", ".lua", ".css", ".html", ".svg"}

_STAND_IN = re.compile(
    r"your|example|sample|placeholder|change_?me|dummy|fake|redacted|insert|replace|x{4,}|\*{3,}|"
    r"\.{3}|0{6,}|1234567|abcdef|todo|none|null|test[-_]",
    re.IGNORECASE,
)
# A reference instead of a value: a variable, a template, a path, an address, a call.
_ELSEWHERE = re.compile(r"[$<{%@~]|\.{0,2}/|https?://|file:|\w+\(|os\.environ|process\.env")
_PATTERN_OR_PATH = re.compile(r"[\\\[\](){}<>|^]|/.*[.-]|[.-].*/")
_WORDS = re.compile(r"[A-Za-z]+(?:[-_./:][A-Za-z]+)*\d{0,2}")
_PASSWORDS = re.compile(r"passwo?r?d", re.IGNORECASE)


def find_secrets(root: Path, files: Iterable[str]) -> list[SecretFinding]:
    """Scan files for secrets.

    Args:
        root: The directory of the files.
        files: Paths within the directory, with slashes.

    Returns:
        The suspicious places, by file and line.
    """
    found: list[SecretFinding] = []
    for path in files:
        found += _by_name(path) or _in_file(root / path, path)
    return found


def find_unscanned(root: Path, files: Iterable[str]) -> list[str]:
    """Return the files that `find_secrets` does not read in full.

    These are files over 16 MiB, and archives that are damaged, encrypted, or over 64 MiB unpacked.
    """
    return [path for path in files if not _can_be_scanned(root / path)]


def _can_be_scanned(file: Path) -> bool:
    if not file.is_file():  # nothing of it would be published
        return True
    if file.stat().st_size > MOST_BYTES:
        return False
    if _holds_files(file):
        try:
            with file.open("rb") as opened:
                deque(_Archive().files(opened, file.name), maxlen=0)
        except UNREADABLE:
            return False
    return True


def find_secrets_in_text(text: str, path: str) -> list[SecretFinding]:
    """Scan a text for secrets; the ending of `path` selects the syntax."""
    found = {
        SecretFinding(path, text.count("\n", 0, one.start()) + 1, "a private key")
        for one in _PRIVATE_KEY.finditer(text)
    }
    lines = text.splitlines()
    found = {one for one in found if ALLOWED not in lines[one.line - 1]}
    looks = _looks(text, path)
    for number, line in enumerate(lines, 1):
        if ALLOWED in line:
            continue
        for plain in _parts(line.replace('\\"', '"')):
            kind = next((kind for look in looks if (kind := look(plain)) is not None), None)
            if kind is not None:
                found.add(SecretFinding(path, number, kind))
                break
    return sorted(found)


def _parts(line: str) -> Iterator[str]:
    """Split a long line into parts that overlap by more than a secret's length."""
    for begin in range(0, max(len(line), 1), LINE_CHARACTERS):
        yield line[max(begin - OVERLAP, 0) : begin + LINE_CHARACTERS]


def _looks(text: str, path: str) -> list[Callable[[str], str | None]]:
    """Return the line checks that can match in a text."""
    looks: list[Callable[[str], str | None]] = []
    if holds_secret(text):
        looks.append(lambda line: OF_THIS_MACHINE if holds_secret(line) else None)
    if _ANY_FORM.search(text):
        looks.append(_by_form)
    is_program = PurePosixPath(path).suffix.lower() in PROGRAMS
    patterns = (_QUOTED,) if is_program else (_QUOTED, _BARE, _OF_DOCKER)
    looks += [_password_of_url, _of_registry, _of_netrc]
    return [*looks, lambda line: _by_assignment(line, patterns)]


def split_allowed(
    findings: Sequence[SecretFinding], places: Sequence[str]
) -> tuple[list[SecretFinding], list[str]]:
    """Separate findings that a person has approved.

    Args:
        findings: All findings.
        places: Approved places: ``PATH`` or ``PATH:LINE``; the path may be a pattern such as
            ``tests/*``.

    Returns:
        The remaining findings, and the places without a finding.
    """
    left = [one for one in findings if not any(_fits(one, place) for place in places)]
    idle = [place for place in places if not any(_fits(one, place) for one in findings)]
    return left, idle


def _fits(finding: SecretFinding, place: str) -> bool:
    path, colon, line = place.rpartition(":")
    if colon and line.isdecimal():
        return int(line) == finding.line and fnmatchcase(finding.path, path)
    return fnmatchcase(finding.path, place)


# ------------------------------------------------------------------ detection


def _by_name(path: str) -> list[SecretFinding]:
    parts = PurePosixPath(path).parts
    name = parts[-1]
    if any(part in SECRET_DIRECTORIES for part in parts[:-1]):
        return [SecretFinding(path, 0, "a file of a directory for keys")]
    if name in HARMLESS_NAMES or not any(fnmatchcase(name, one) for one in SECRET_NAMES):
        return []
    return [SecretFinding(path, 0, "a file for secrets, by its name")]


def _in_file(file: Path, path: str) -> list[SecretFinding]:
    # The target of a link may be missing, or a device without an end.
    if not file.is_file() or file.stat().st_size > MOST_BYTES:
        return []
    if not _holds_files(file):
        return _in_data(file.read_bytes(), path)
    found: list[SecretFinding] = []
    with contextlib.suppress(*UNREADABLE), file.open("rb") as opened:  # see `find_unscanned`
        for inner, data in _Archive().files(opened, path):
            found += _by_name(inner) or _in_data(data, inner)
    return found


def _holds_files(file: Path) -> bool:
    """Return whether a file is an archive, by its name or its first bytes."""
    if file.name.lower().endswith(ARCHIVES):
        return True
    with file.open("rb") as opened:
        return _is_archive(opened.read(HEAD_BYTES))


def _in_data(data: bytes, path: str) -> list[SecretFinding]:
    text = _text_of(data)
    return [] if text is None else find_secrets_in_text(text, path)


def _text_of(data: bytes) -> str | None:
    """Decode data as text; return None for binary data."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    head = data[:8192]
    if b"\0" not in head:
        return data.decode("utf-8", errors="replace")
    for odd, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):  # letters, without a byte order mark
        high, low = head[odd::2], head[1 - odd :: 2]
        if high.count(0) > 0.9 * len(high) and not low.count(0):
            return data.decode(encoding, errors="replace")
    return None


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


# Errors of archives that are damaged, encrypted, or too large.
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)

_COMPRESSED: dict[bytes, Callable[[IO[bytes]], IO[bytes]]] = {
    b"\x1f\x8b": lambda packed: cast("IO[bytes]", gzip.GzipFile(fileobj=packed)),
    b"\xfd7zXZ\0": lambda packed: cast("IO[bytes]", lzma.LZMAFile(packed)),  # noqa: SIM115  # its user closes it
    **dict.fromkeys(
        (b"BZh%d1AY&SY" % size for size in range(1, 10)),
        lambda packed: cast("IO[bytes]", bz2.BZ2File(packed)),
    ),
}
_ZIPPED = (b"PK\3\4", b"PK\5\6")
_OF_TAR, _AT = b"ustar", 257


def _is_archive(head: bytes) -> bool:
    """Return whether a file is an archive, by its first bytes."""
    return head.startswith((*_COMPRESSED, *_ZIPPED)) or head[_AT:].startswith(_OF_TAR)


class _Archive:
    """Reads the files of an archive, and of the archives in it, up to `MOST_OF_ARCHIVE` bytes."""

    def __init__(self) -> None:
        self._left = MOST_OF_ARCHIVE

    def files(self, packed: IO[bytes], path: str, depth: int = 0) -> Iterator[tuple[str, bytes]]:
        """Yield the path of each file, such as ``archive.zip!/file``, and its content.

        Raises:
            ValueError: The archive exceeds a limit of size or depth. Other errors in `UNREADABLE`:
                the archive cannot be read.
        """
        if depth > DEEPEST_ARCHIVE:
            raise ValueError(f"{path} is in more than {DEEPEST_ARCHIVE} archives")
        head = packed.read(HEAD_BYTES)
        packed.seek(0)
        for magic, unpack in _COMPRESSED.items():
            if head.startswith(magic):
                with unpack(packed) as unpacked:
                    data = self._read(unpacked, path)
                if data[_AT:].startswith(_OF_TAR):  # .tar.gz is one archive, not two
                    yield from self.files(io.BytesIO(data), path, depth)
                else:
                    stem = PurePosixPath(path).stem
                    yield from self._file(f"{path}!/{stem}", data, depth)
                return
        if head[_AT:].startswith(_OF_TAR) or not zipfile.is_zipfile(packed):
            yield from self._in_tar(packed, path, depth)
            return
        with zipfile.ZipFile(packed) as zipped:
            for member in zipped.infolist():
                if not member.is_dir():
                    with zipped.open(member) as opened:
                        data = self._read(opened, path)
                    yield from self._file(f"{path}!/{member.filename}", data, depth)

    def _in_tar(self, packed: IO[bytes], path: str, depth: int) -> Iterator[tuple[str, bytes]]:
        packed.seek(0)
        with tarfile.open(fileobj=packed, mode="r:") as tar:
            for entry in tar:
                if entry.issparse():
                    raise ValueError(f"{path} has a file with holes, {entry.name}")
                opened = tar.extractfile(entry) if entry.isfile() else None
                if opened is not None:  # its bytes are the archive's, which are counted already
                    yield from self._file(f"{path}!/{entry.name}", opened.read(), depth)

    def _file(self, path: str, data: bytes, depth: int) -> Iterator[tuple[str, bytes]]:
        if _is_archive(data[:HEAD_BYTES]):
            yield from self.files(io.BytesIO(data), path, depth + 1)
        else:
            yield path, data

    def _read(self, unpacked: IO[bytes], path: str) -> bytes:
        data = unpacked.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"there are more than {MOST_OF_ARCHIVE} bytes in {path}")
        return data


def _by_form(line: str) -> str | None:
    for kind, form in _FORMS.items():
        for match in form.finditer(line):
            if _is_random(next(one for one in match.groups() if one is not None)):
                return kind
    return None


def _password_of_url(line: str) -> str | None:
    found = "://" in line and any(_is_password(one[1]) for one in _PASSWORD_OF_URL.finditer(line))
    return "a password in an address" if found else None


def _of_registry(line: str) -> str | None:
    for found in _OF_REGISTRY.finditer(line) if "auth" in line else ():
        with contextlib.suppress(ValueError):
            user, colon, password = base64.b64decode(found[1]).decode().partition(":")
            if user and colon and not _is_stand_in(password):
                return "a password of a registry"
    return None


def _of_netrc(line: str) -> str | None:
    found = "password" in line and any(_is_password(one[1]) for one in _OF_NETRC.finditer(line))
    return "a password for a host" if found else None


def _by_assignment(line: str, patterns: Sequence[re.Pattern[str]]) -> str | None:
    if not _SECRET_WORD.search(line):
        return None
    for pattern in patterns:
        for match in pattern.finditer(line):
            if _is_secret(match["name"], match["value"]):
                return f"a value that looks random, for {match['name']}"
    return None


def _is_secret(name: str, value: str) -> bool:
    return _is_password(value) if _PASSWORDS.search(name) else _is_random(value)


def _is_stand_in(value: str) -> bool:
    return bool(_STAND_IN.search(value) or _ELSEWHERE.match(value) or _WORDS.fullmatch(value))


def _is_password(value: str) -> bool:
    """Return whether a value is neither a word nor a path, and is a disordered mix with digits."""
    if _is_stand_in(value) or re.search(r"[/\\]", value):
        return False
    is_mixed = re.search(r"\d", value) and re.search(r"[^\d]", value)
    return bool(is_mixed) and entropy(value) >= 2.5


def _is_random(value: str) -> bool:
    """Return whether a value is long and disordered, and mixes letters and digits."""
    if len(value) < 16 or _is_stand_in(value) or _PATTERN_OR_PATH.search(value):
        return False
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return False
    is_hexadecimal = re.fullmatch(r"[0-9a-fA-F-]+", value) is not None
    if is_hexadecimal and len(value) < 32:
        return False
    return entropy(value) >= (2.8 if is_hexadecimal else 3.3)


def entropy(text: str) -> float:
    """Return the Shannon entropy of a text's characters, in bits per character."""
    counts = Counter(text).values()
    return -sum(one / len(text) * math.log2(one / len(text)) for one in counts)
