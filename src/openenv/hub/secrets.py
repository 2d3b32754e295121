"""Finding secrets in what would be made public: by their form, their names and their files.

Three kinds of thing are found: files whose name says that they hold secrets (``.env``), values of
a form that only keys and tokens have (``hf_``, ``sk-``, a private key), and values that look random
and are given to a name such as ``API_KEY``. They are found in texts of UTF-8, UTF-16 and UTF-32,
and in archives. What is plainly a stand-in (``your-key``, ``xxxx``) is none. A line with ``openenv:
allow-secret`` in it is passed over.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import gzip
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

__all__ = ["ALLOWED", "Finding", "allowed", "not_scanned", "scan", "scan_text"]

ALLOWED = "openenv: allow-secret"
MOST_BYTES = 16 * 2**20  # what is larger is data
LINE_CHARACTERS, OVERLAP = 100_000, 1000
ARCHIVES = (".zip", ".whl", ".egg", ".jar", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".gz")
MOST_OF_ARCHIVE = 64 * 2**20  # bytes within, unpacked


class Finding(NamedTuple):
    """A place where a secret seems to be; what it is, is nowhere in it.

    Attributes:
        path: Of the file, relative and with slashes.
        line: From 1; 0 for the file as a whole.
        kind: What it looks like.
    """

    path: str
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}" if self.line else f"{self.path}: {self.kind}"


# What begins or is put together as nothing but a secret is, by who gives it out. The group is what
# must look random; where there is none, the form alone says enough.
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
# What Docker keeps for a registry: the user and the password, in base64.
_OF_REGISTRY = re.compile(r"[\"']auth[\"']\s*:\s*[\"']([A-Za-z0-9+/]{12,}={0,2})[\"']")
# A line of a .netrc, whatever the file is called: machine HOST login USER password WORD
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
# The old form of a Dockerfile: ENV NAME value
_OF_DOCKER = re.compile(
    rf"^\s*ENV\s+(?P<name>{_NAME})\s+[\"']?(?P<value>[^\"'\s=]{{8,}})", re.IGNORECASE
)
# Where a value that is not quoted is an expression.
PROGRAMS = {".py", ".pyi", ".ipynb", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".go", ".rs", ".c"}
PROGRAMS |= {".cc", ".cpp", ".h", ".java", ".kt", ".rb", ".lua", ".css", ".html", ".svg"}

_STAND_IN = re.compile(
    r"your|example|sample|placeholder|change_?me|dummy|fake|redacted|insert|replace|x{4,}|\*{3,}|"
    r"\.{3}|0{6,}|1234567|abcdef|todo|none|null|test[-_]",
    re.IGNORECASE,
)
# A value that is taken from elsewhere: a variable, a template, a path, an address, a call.
_ELSEWHERE = re.compile(r"[$<{%@~]|\.{0,2}/|https?://|file:|\w+\(|os\.environ|process\.env")
_PATTERN_OR_PATH = re.compile(r"[\\\[\](){}<>|^]|/.*[.-]|[.-].*/")
_WORDS = re.compile(r"[A-Za-z]+(?:[-_./:][A-Za-z]+)*\d{0,2}")
_PASSWORDS = re.compile(r"passwo?r?d", re.IGNORECASE)


def scan(root: Path, files: Iterable[str]) -> list[Finding]:
    """Look through files for secrets.

    Args:
        root: The directory that they are in.
        files: Their paths in it, with slashes.

    Returns:
        Where some seem to be, by file and line.
    """
    found: list[Finding] = []
    for path in files:
        by_name = _by_name(path)
        found += by_name or _in_file(root / path, path)
    return found


def not_scanned(root: Path, files: Iterable[str]) -> list[str]:
    """Which files `scan` does not look into, or not wholly: those of more than 16 MiB, and archives
    that are damaged, encrypted, or of more than 64 MiB within.
    """
    return [path for path in files if not _can_be_scanned(root / path)]


def _can_be_scanned(file: Path) -> bool:
    is_small = file.stat().st_size <= MOST_BYTES
    is_archive = file.name.lower().endswith(ARCHIVES)
    return is_small and (not is_archive or _can_be_looked_through(file))


def scan_text(text: str, path: str) -> list[Finding]:
    """Look through a text for secrets; `path` is what it is called, and how it is written."""
    found = {
        Finding(path, text.count("\n", 0, one.start()) + 1, "a private key")
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
                found.add(Finding(path, number, kind))
                break
    return sorted(found)


def _parts(line: str) -> Iterator[str]:
    """A line, or parts of it that overlap by more than a secret is long."""
    for begin in range(0, max(len(line), 1), LINE_CHARACTERS):
        yield line[max(begin - OVERLAP, 0) : begin + LINE_CHARACTERS]


def _looks(text: str, path: str) -> list[Callable[[str], str | None]]:
    """What to look for in each line of a text: no more than there is somewhere in it."""
    looks: list[Callable[[str], str | None]] = []
    if holds_secret(text):
        looks.append(lambda line: OF_THIS_MACHINE if holds_secret(line) else None)
    if _ANY_FORM.search(text):
        looks.append(_by_form)
    is_program = PurePosixPath(path).suffix.lower() in PROGRAMS
    patterns = (_QUOTED,) if is_program else (_QUOTED, _BARE, _OF_DOCKER)
    looks += [_password_of_url, _of_registry, _of_netrc]
    return [*looks, lambda line: _by_assignment(line, patterns)]


def allowed(findings: Sequence[Finding], places: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """Take out what somebody has looked at and lets pass.

    Args:
        findings: What was found.
        places: ``PATH`` or ``PATH:LINE``; the path may be a pattern such as ``tests/*``.

    Returns:
        What is left, and the places where nothing was found.
    """
    left = [one for one in findings if not any(_fits(one, place) for place in places)]
    idle = [place for place in places if not any(_fits(one, place) for one in findings)]
    return left, idle


def _fits(finding: Finding, place: str) -> bool:
    path, colon, line = place.rpartition(":")
    if colon and line.isdecimal():
        return int(line) == finding.line and fnmatchcase(finding.path, path)
    return fnmatchcase(finding.path, place)


# ------------------------------------------------------------------ what is one


def _by_name(path: str) -> list[Finding]:
    parts = PurePosixPath(path).parts
    name = parts[-1]
    if any(part in SECRET_DIRECTORIES for part in parts[:-1]):
        return [Finding(path, 0, "a file of a directory for keys")]
    if name in HARMLESS_NAMES or not any(fnmatchcase(name, one) for one in SECRET_NAMES):
        return []
    return [Finding(path, 0, "a file for secrets, by its name")]


def _in_file(file: Path, path: str) -> list[Finding]:
    if file.stat().st_size > MOST_BYTES:
        return []
    if file.name.lower().endswith(ARCHIVES):
        return _in_archive(file, path)
    return _in_data(file.read_bytes(), path)


def _in_data(data: bytes, path: str) -> list[Finding]:
    text = _text_of(data)
    return [] if text is None else scan_text(text, path)


def _text_of(data: bytes) -> str | None:
    """The text that data are; None where they are none."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    head = data[:8192]
    if b"\0" not in head:
        return data.decode("utf-8", errors="replace")
    for odd, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):  # of letters, without a mark
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


def _in_archive(file: Path, path: str) -> list[Finding]:
    """What is in the files of an archive: at ``archive.zip!/file``."""
    found: list[Finding] = []
    with contextlib.suppress(*UNREADABLE):  # which `not_scanned` tells
        for name, data in _members(file):
            inner = f"{path}!/{name}"
            found += _by_name(inner) or _in_data(data, inner)
    return found


def _can_be_looked_through(file: Path) -> bool:
    try:
        deque(_members(file), maxlen=0)
    except UNREADABLE:
        return False
    return True


# What tells that an archive is damaged, encrypted, or larger than is looked through.
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
)


def _members(file: Path) -> Iterator[tuple[str, bytes]]:
    """The files of an archive, and what is in them.

    Raises:
        ValueError: They are more than is looked through; another of `UNREADABLE`: they cannot be
            read.
    """
    left = MOST_OF_ARCHIVE
    for name, opened in _opened(file):
        with opened:
            data = opened.read(left + 1)
        left -= len(data)
        if left < 0:
            raise ValueError(f"there are more than {MOST_OF_ARCHIVE} bytes in {file}")
        yield name, data


def _opened(file: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as zipped:
            for member in zipped.infolist():
                if not member.is_dir():
                    yield member.filename, zipped.open(member)
    elif tarfile.is_tarfile(file):
        with tarfile.open(file) as tar:
            for entry in tar:
                inner = tar.extractfile(entry) if entry.isfile() else None
                if inner is not None:
                    yield entry.name, inner
    else:
        with gzip.open(file) as unpacked:
            yield file.stem, cast("IO[bytes]", unpacked)


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
    """It is no word and no path: digits among letters or signs, without much order."""
    if _is_stand_in(value) or re.search(r"[/\\]", value):
        return False
    is_mixed = re.search(r"\d", value) and re.search(r"[^\d]", value)
    return bool(is_mixed) and entropy(value) >= 2.5


def _is_random(value: str) -> bool:
    """It is long, mixes letters and digits, and has no order to it."""
    if len(value) < 16 or _is_stand_in(value) or _PATTERN_OR_PATH.search(value):
        return False
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return False
    is_hexadecimal = re.fullmatch(r"[0-9a-fA-F-]+", value) is not None
    if is_hexadecimal and len(value) < 32:
        return False
    return entropy(value) >= (2.8 if is_hexadecimal else 3.3)


def entropy(text: str) -> float:
    """Shannon's entropy of the characters of a text, in bits a character."""
    counts = Counter(text).values()
    return -sum(one / len(text) * math.log2(one / len(text)) for one in counts)
