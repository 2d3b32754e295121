"""The bundled tasks: everyday work at a shell.

Seeds determine the files, and the expected answers are computed here, so that they exist only in
the server.
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import random
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from .tasks import File, FileCheck, RunCheck, Task

__all__ = ["bundled_tasks"]

_MAKERS: list[Callable[[], Task]] = []


def bundled_tasks() -> list[Task]:
    """Return every bundled task."""
    return [make() for make in _MAKERS]


def _bundled(make: Callable[[], Task]) -> Callable[[], Task]:
    _MAKERS.append(make)
    return make


def _make_task(**fields: Any) -> Task:
    """Make a task whose texts may be indented like the code around them."""
    for name in ("instruction", "solution"):
        fields[name] = textwrap.dedent(fields[name]).strip() + "\n"
    return Task(**fields)


def _text(text: str, mode: str = "644") -> File:
    return File(text=textwrap.dedent(text).lstrip("\n"), mode=mode)


def _expect_unchanged(path: str, file: File) -> FileCheck:
    return FileCheck(file=path, equals=file.text, must_hold=True)


# ------------------------------------------------------------------ finding


@_bundled
def _find_the_key() -> Task:
    draw = random.Random(1)  # nosec B311  # made-up data
    folders = [f"archive/{year}/{kind}" for year in range(2019, 2025) for kind in ("in", "out")]
    names = [f"{folder}/{draw.randrange(10**6):06d}.txt" for folder in folders for _ in range(6)]
    texts = {name: f"serial {draw.randrange(10**9):09d}\nstate filed\n" for name in names}
    wanted, near = draw.sample(names, 2)
    texts[wanted] += "api_key = k-7f3a91c2\n"
    texts[near] += "# the api_key was moved\n"
    return _make_task(
        id="find_the_key",
        instruction="""
            Exactly one file below ~/archive has a line that begins with "api_key =". Write two
            lines to ~/answer.txt: the path of that file, relative to the home directory (as
            archive/...), and the value of the key.
        """,
        files={name: File(text=text) for name, text in texts.items()},
        checks=[
            FileCheck(file="answer.txt", matches=rf"\A\s*{wanted}\s*$"),
            FileCheck(file="answer.txt", equals=f"{wanted}\nk-7f3a91c2"),
        ],
        solution="""
            cd ~
            grep -rl '^api_key =' archive > answer.txt
            grep -rh '^api_key =' archive | sed 's/.*= //' >> answer.txt
        """,
    )


@_bundled
def _largest_files() -> Task:
    draw = random.Random(2)  # nosec B311  # made-up data
    sizes = draw.sample(range(200, 9000), 30)
    folders = ["var", "var/log", "var/cache/build one", "var/.hidden", "var/spool"]
    files = {
        f"{draw.choice(folders)}/f{number}.dat": "x" * size for number, size in enumerate(sizes)
    }
    ordered = sorted(files, key=lambda path: -len(files[path]))[:5]
    return _make_task(
        id="largest_files",
        split="test",
        instruction="""
            Write the five largest files below ~/var to ~/largest.txt, the largest first, one in
            each line: its size in bytes, a blank, and its path relative to the home directory.
            Hidden folders count, and names may have blanks.
        """,
        files={path: File(text=text) for path, text in files.items()},
        checks=[
            FileCheck(
                file="largest.txt",
                equals="\n".join(f"{len(files[path])} {path}" for path in ordered),
            )
        ],
        solution="""
            cd ~
            find var -type f -printf '%s %p\\n' | sort -rn | head -n 5 > largest.txt
        """,
    )


@_bundled
def _remove_the_copies() -> Task:
    draw = random.Random(3)  # nosec B311  # made-up data
    contents = [f"picture {draw.randrange(10**12)}\n" for _ in range(8)]
    names = [f"pictures/{letter}{number}.raw" for letter in "abc" for number in range(6)]
    texts = {name: contents[index % 8] for index, name in enumerate(draw.sample(names, 18))}
    first: dict[str, str] = {}
    for name in sorted(texts):
        first.setdefault(texts[name], name)
    kept = set(first.values())
    gone = sorted(set(texts) - kept)
    return _make_task(
        id="remove_the_copies",
        instruction="""
            Some files in ~/pictures have the same content as others. Of each group of equal files
            keep the one whose name comes first in the alphabet, and remove the others.
        """,
        files={name: File(text=text) for name, text in texts.items()},
        checks=[
            *(FileCheck(file=name, type="absent") for name in gone),
            *(FileCheck(file=name, equals=texts[name], must_hold=True) for name in sorted(kept)),
        ],
        solution="""
            cd ~/pictures
            md5sum * | sort -k1,1 -k2,2 | awk 'seen[$1]++ {print $2}' | xargs rm
        """,
    )


# ------------------------------------------------------------------ text


@_bundled
def _slowest_pages() -> Task:
    draw = random.Random(4)  # nosec B311  # made-up data
    pages = ["/", "/cart", "/search", "/login", "/item", "/help", "/api/orders"]
    lines, times = [], defaultdict(list)
    for minute in range(400):
        page, status = draw.choice(pages), draw.choices([200, 304, 404, 500], [80, 6, 6, 8])[0]
        taken = draw.randrange(5, 900) + 40 * len(page)
        clock = f"2024-03-01T{minute // 60:02d}:{minute % 60:02d}"
        lines.append(f'10.0.0.{draw.randrange(9)} [{clock}] "GET {page}" {status} {taken}ms')
        if status == 200:
            times[page].append(taken)
    means = {page: sum(one) / len(one) for page, one in times.items()}
    slowest = sorted(means, key=lambda page: -means[page])[:3]
    log = File(text="\n".join(lines) + "\n")
    return _make_task(
        id="slowest_pages",
        instruction="""
            ~/access.log has a line for each request: address, time, request, status and duration.
            Take the requests with status 200, and write the three pages that took longest in the
            mean to ~/slowest.txt, the slowest first, one in each line: the page, a blank, and the
            mean in milliseconds with one digit after the point. Leave the log as it is.
        """,
        files={"access.log": log},
        checks=[
            FileCheck(
                file="slowest.txt",
                equals="\n".join(f"{page} {means[page]:.1f}" for page in slowest),
            ),
            _expect_unchanged("access.log", log),
        ],
        solution=r"""
            awk '$5 == 200 {gsub(/"/, "", $4); sub(/ms/, "", $6); sum[$4] += $6; n[$4]++}
                 END {for (page in sum) printf "%s %.1f\n", page, sum[page] / n[page]}' \
                ~/access.log | sort -k2,2 -rn | head -n 3 > ~/slowest.txt
        """,
    )


@_bundled
def _sum_the_orders() -> Task:
    draw = random.Random(5)  # nosec B311  # made-up data
    names = ["Hall, Ada", "Ito Ken", 'O\'Neil "Red" Sam', "Zhou, Wei", "Berg Eva"]
    written, totals = io.StringIO(), Counter[str]()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "customer", "note", "cents", "state"])
    for number in range(120):
        name, cents = draw.choice(names), draw.randrange(100, 100_000)
        state = draw.choice(["paid", "paid", "open", "void"])
        note = draw.choice(["", "call, then ship", "two\nlines", "plain"])
        writer.writerow([number, name, note, cents, state])
        if state == "paid":
            totals[name] += cents
    answer = io.StringIO()
    rows = csv.writer(answer, lineterminator="\n")
    rows.writerow(["customer", "cents"])
    rows.writerows(sorted(totals.items()))
    orders = File(text=written.getvalue())
    return _make_task(
        id="sum_the_orders",
        instruction="""
            ~/orders.csv is a CSV file (RFC 4180): fields with commas, quotes or line breaks are
            quoted. Sum the column "cents" of the orders in the state "paid" for each customer, and
            write them to ~/totals.csv, a CSV file with the columns customer,cents, sorted by
            customer. Quote where it is needed only.
        """,
        files={"orders.csv": orders},
        checks=[
            FileCheck(file="totals.csv", equals=answer.getvalue()),
            _expect_unchanged("orders.csv", orders),
        ],
        needs=["python3"],
        solution="""
            python3 - <<'END'
            import collections, csv, os
            home = os.path.expanduser("~")
            totals = collections.Counter()
            with open(home + "/orders.csv", newline="") as file:
                for row in csv.DictReader(file):
                    if row["state"] == "paid":
                        totals[row["customer"]] += int(row["cents"])
            with open(home + "/totals.csv", "w", newline="") as file:
                rows = csv.writer(file, lineterminator="\\n")
                rows.writerow(["customer", "cents"])
                rows.writerows(sorted(totals.items()))
            END
        """,
    )


@_bundled
def _rename_the_function() -> Task:
    files = {
        "src/app.py": """
            from lib.config import load_cfg, load_cfg_legacy


            def main():
                cfg = load_cfg("app.ini")
                old = load_cfg_legacy("old.ini")
                print("reload_cfg done", cfg, old)
        """,
        "src/lib/config.py": """
            def load_cfg(path):
                return {"path": path}


            def load_cfg_legacy(path):
                return load_cfg(path)


            def reload_cfg():
                return load_cfg("again")
        """,
        "src/lib/__init__.py": "from .config import load_cfg\n",
        "src/vendor/config.py": "from lib.config import load_cfg\n",
        "src/README.txt": "Call load_cfg to load.\n",
    }
    texts = {path: _text(text) for path, text in files.items()}
    wanted = {
        "src/app.py": (
            "from lib.config import load_config, load_cfg_legacy\n\n\ndef main():\n"
            '    cfg = load_config("app.ini")\n    old = load_cfg_legacy("old.ini")\n'
            '    print("reload_cfg done", cfg, old)\n'
        ),
        "src/lib/config.py": (
            'def load_config(path):\n    return {"path": path}\n\n\ndef load_cfg_legacy(path):\n'
            "    return load_config(path)\n\n\ndef reload_cfg():\n"
            '    return load_config("again")\n'
        ),
        "src/lib/__init__.py": "from .config import load_config\n",
    }
    untouched = [path for path in files if path not in wanted]
    return _make_task(
        id="rename_the_function",
        instruction="""
            Rename the function load_cfg to load_config in every Python file below ~/src, where it
            is defined and where it is used, but not below ~/src/vendor. Other names that only have
            load_cfg in them (such as load_cfg_legacy) and files of other kinds stay as they are.
        """,
        files=texts,
        checks=[
            *(FileCheck(file=path, equals=text) for path, text in wanted.items()),
            *(_expect_unchanged(path, texts[path]) for path in untouched),
        ],
        solution=r"""
            cd ~/src
            find . -name '*.py' -not -path './vendor/*' \
                -exec sed -i 's/\bload_cfg\b/load_config/g' {} +
        """,
    )


@_bundled
def _one_day_of_jobs() -> Task:
    table = {
        ("0", "6", "*", "*", "*"): "backup",
        ("30", "*/8", "*", "*", "*"): "rotate",
        ("15", "9-11", "*", "*", "1-5"): "report",
        ("5,35", "22", "15", "*", "*"): "invoice",
        ("0", "12", "*", "*", "0"): "sunday",
        ("45", "23", "1", "5", "*"): "may",
        ("*/20", "4", "*", "5", "3"): "wednesday",
    }
    runs = []
    for (minutes, hours, day, month, weekday), name in table.items():
        if (
            _field_matches(day, 15, 31)
            and _field_matches(month, 5, 12)
            and _field_matches(weekday, 3, 6)
        ):
            times = itertools.product(range(24), range(60))
            runs += [
                f"{h:02}:{m:02} {name}"
                for h, m in times
                if _field_matches(hours, h) and _field_matches(minutes, m)
            ]
    lines = [f"{' '.join(when)} {name}" for when, name in table.items()]
    return _make_task(
        id="one_day_of_jobs",
        split="test",
        instruction="""
            ~/crontab.txt has the jobs of a machine in the form of crontab(5): minute, hour, day of
            the month, month, day of the week (0 is Sunday), and the name of the job. Write every
            run on Wednesday, May 15th, 2024 to ~/runs.txt, sorted, one in each line: the time as
            HH:MM, a blank, and the name of the job.
        """,
        files={"crontab.txt": File(text="# jobs\n" + "\n".join(lines) + "\n")},
        checks=[FileCheck(file="runs.txt", equals="\n".join(sorted(runs)))],
        needs=["python3"],
        solution="""
            python3 - <<'END'
            import os

            def holds(field, value, highest=59):
                for part in field.split(","):
                    span, _, step = part.partition("/")
                    low, _, high = (0, 0, highest) if span == "*" else span.partition("-")
                    if value in range(int(low), int(high or low) + 1, int(step or 1)):
                        return True
                return False

            home, runs = os.path.expanduser("~"), []
            for line in open(home + "/crontab.txt"):
                if not line.startswith("#"):
                    minute, hour, day, month, weekday, name = line.split()
                    if holds(day, 15) and holds(month, 5) and holds(weekday, 3):
                        runs += [
                            f"{h:02}:{m:02} {name}\\n"
                            for h in range(24) if holds(hour, h)
                            for m in range(60) if holds(minute, m)
                        ]
            open(home + "/runs.txt", "w").writelines(sorted(runs))
            END
        """,
    )


def _field_matches(field: str, value: int, highest: int = 59) -> bool:
    """Return whether a field of a crontab matches a value."""
    for part in field.split(","):
        span, _, step = part.partition("/")
        low, _, high = ("0", "", str(highest)) if span == "*" else span.partition("-")
        if value in range(int(low), int(high or low) + 1, int(step or 1)):
            return True
    return False


# ------------------------------------------------------------------ files


@_bundled
def _who_may_read() -> Task:
    files = {
        "project/run.sh": _text("echo run\n", "777"),
        "project/notes.txt": _text("notes\n", "666"),
        "project/secret/token": _text("t0k3n\n", "644"),
        "project/tools/build it.sh": _text("echo build\n", "644"),
        "project/tools/readme.txt": _text("tools\n", "755"),
    }
    wanted = {
        "project": "750",
        "project/tools": "750",
        "project/secret": "700",
        "project/run.sh": "750",
        "project/tools/build it.sh": "750",
        "project/notes.txt": "640",
        "project/tools/readme.txt": "640",
        "project/secret/token": "600",
    }
    return _make_task(
        id="who_may_read",
        instruction="""
            Set the permissions of ~/project and of all that is in it: directories 750, scripts
            (*.sh) 750, other files 640; but the directory ~/project/secret 700, and the files in it
            600. Do not change what is in the files.
        """,
        files=files,
        setup=["chmod 755 project project/tools project/secret"],
        checks=[
            *(FileCheck(file=path, mode=mode) for path, mode in wanted.items()),
            *(_expect_unchanged(path, file) for path, file in files.items()),
        ],
        solution="""
            cd ~/project
            find . -type d -exec chmod 750 {} +
            find . -type f -name '*.sh' -exec chmod 750 {} +
            find . -type f -not -name '*.sh' -exec chmod 640 {} +
            chmod 700 secret
            chmod 600 secret/*
        """,
    )


@_bundled
def _broken_links() -> Task:
    names = ["north", "south", "east", "west"]
    files = {f"data/v2/{name}.tbl": _text(f"table {name}\n") for name in names}
    files["data/v1-note.txt"] = _text("v1 became v2\n")
    setup = [
        "mkdir -p views/deep",
        *(f"ln -s ../data/v1/{name}.tbl views/{name}" for name in names[:3]),
        "ln -s ../../data/v1/west.tbl views/deep/west",
        "ln -s ../data/v1-note.txt views/note",
    ]
    links = {f"views/{name}": f"data/v2/{name}.tbl" for name in names[:3]}
    links["views/deep/west"] = "data/v2/west.tbl"
    return _make_task(
        id="broken_links",
        split="test",
        instruction="""
            The directory ~/data/v1 was renamed to ~/data/v2, and now symbolic links below ~/views
            lead nowhere. Have every broken link lead to the same file in ~/data/v2 again. They
            must stay symbolic links; links that are not broken, and the data, stay as they are.
        """,
        files=files,
        setup=setup,
        checks=[
            *(FileCheck(file=link, leads_to=goal) for link, goal in links.items()),
            FileCheck(file="views/note", leads_to="data/v1-note.txt", must_hold=True),
            FileCheck(file="data/v1", type="absent", must_hold=True),
            *(_expect_unchanged(path, file) for path, file in files.items()),
        ],
        solution=r"""
            cd ~
            find views -xtype l | while read -r link; do
                ln -sfn "$(readlink "$link" | sed 's,data/v1/,data/v2/,')" "$link"
            done
        """,
    )


@_bundled
def _repack_the_settings() -> Task:
    draw = random.Random(6)  # nosec B311  # made-up data
    settings = {
        f"etc/{name}.conf": f"port = {draw.randrange(1024, 9999)}\nname = {name}\n"
        for name in ("web", "mail", "deep/proxy", "deep/er/cache")
    }
    others = {"etc/deep/notes.txt": "no settings\n", "etc/web.conf.bak": "port = 1\n"}
    listed = sorted(path.rpartition("/")[2] for path in settings)
    texts = {path.rpartition("/")[2]: text for path, text in settings.items()}
    return _make_task(
        id="repack_the_settings",
        instruction="""
            ~/machine.tar.gz holds the directory etc of a machine. Make ~/settings.tar.gz (gzip)
            with every file of it whose name ends in .conf, and nothing else, without directories:
            the archive's members are the plain names, such as web.conf.
        """,
        files={path: File(text=text) for path, text in {**settings, **others}.items()},
        setup=["tar -czf machine.tar.gz etc && rm -r etc"],
        checks=[
            RunCheck(
                run="tar -tzf settings.tar.gz | sort",
                copies={"settings.tar.gz": "settings.tar.gz"},
                stdout="\n".join(listed),
            ),
            RunCheck(
                run=f"tar -xzOf settings.tar.gz {' '.join(listed)}",
                copies={"settings.tar.gz": "settings.tar.gz"},
                stdout="".join(texts[name] for name in listed),
            ),
        ],
        needs=["tar", "gzip"],
        solution="""
            cd "$(mktemp -d)"
            tar -xzf ~/machine.tar.gz
            mkdir flat
            find etc -name '*.conf' -exec mv {} flat/ \\;
            # in the order of the alphabet
            cd flat && tar -czf ~/settings.tar.gz *
        """,
    )


# ------------------------------------------------------------------ programs


@_bundled
def _count_the_lines() -> Task:
    script = _text(
        """
        #!/bin/bash
        # count_lines.sh DIRECTORY: print how many lines all its .txt files have together
        total=0
        for file in $(find $1 -name *.txt); do
            lines=$(wc -l $file)
            total=$((total + lines))
        done
        echo "total: $total"
        """,
        "755",
    )
    draw = random.Random(7)  # nosec B311  # made-up data

    def tree(names: list[str]) -> tuple[dict[str, File], int]:
        """Make files, and count the lines of those that count."""
        counts = {name: draw.randrange(1, 30) for name in names}
        files = {name: File(text="line\n" * count) for name, count in counts.items()}
        counted = [name for name in names if name.endswith(".txt") and "/" in name]
        return files, sum(counts[name] for name in counted)

    plain, in_plain = tree(["in/a.txt", "in/b/c.txt", "in/d.md", "in/e.txt.old"])
    odd, in_odd = tree(["in put/a b.txt", "in put/*.txt", "in put/x y/ z.txt", "x.txt"])
    copies = {"count_lines.sh": "count_lines.sh"}
    run = "bash count_lines.sh"
    return _make_task(
        id="count_the_lines",
        instruction="""
            ~/count_lines.sh DIRECTORY shall print "total: N", where N is how many lines all files
            in the directory, and below, have together whose names end in .txt. It does not work.
            Repair it; the names of files and directories may have blanks and asterisks in them, and
            a directory without such files has 0 lines. It will be run by bash, from another
            directory, too. ~/sample has something to try it with.
        """,
        files={
            "count_lines.sh": script,
            "sample/one.txt": File(text="a\nb\n"),
            "sample/two words.txt": File(text="c\n"),
        },
        checks=[
            RunCheck(run=f"{run} in", copies=copies, files=plain, stdout=f"total: {in_plain}"),
            RunCheck(run=f"{run} 'in put'", copies=copies, files=odd, stdout=f"total: {in_odd}"),
            RunCheck(
                run="cd /usr && bash ~/count_lines.sh ~/empty",
                copies=copies,
                files={"empty/none": File(text="none\n")},
                stdout="total: 0",
                must_hold=True,
            ),
        ],
        solution=r"""
            cat > ~/count_lines.sh <<'END'
            #!/bin/bash
            total=$(find "$1" -type f -name '*.txt' -exec cat {} + | wc -l)
            echo "total: $total"
            END
        """,
    )


@_bundled
def _wrong_median() -> Task:
    module = _text(
        '''
        """Statistics of measurements."""


        def median(values):
            """The middle value; the mean of the two middle ones where there are two."""
            values.sort()
            return values[len(values) / 2]


        def mode(values):
            """The most frequent value; of equally frequent ones the smallest."""
            return max(values, key=values.count)


        def spread(values):
            """How far the largest value is from the smallest."""
            return max(values) - min(value for value in values if value)
        '''
    )
    asked = {
        "median([3, 1, 2])": "2",
        "median([4, 1, 3, 2])": "2.5",
        "(lambda v: (median(v), v))([3, 1, 2])[1]": "[3, 1, 2]",
        "mode([2, 1, 2, 1, 3])": "1",
        "mode(['b', 'a'])": "a",
        "spread([0, 5, 3])": "5",
        "spread([-2, -7])": "5",
    }
    hold_already = {"mode([2, 1, 2, 1, 3])", "spread([-2, -7])"}
    program = "import sys\nfrom stats import *\nprint(eval(sys.argv[1]))\n"
    return _make_task(
        id="wrong_median",
        instruction="""
            The functions in ~/stats.py do not do what their docstrings say, and they must not
            change the lists that they are given. Repair them. The module must still be imported
            as stats, and its functions called as now.
        """,
        files={"stats.py": module},
        checks=[
            RunCheck(
                run=f'python3 ask.py "{question}"',
                copies={"stats.py": "stats.py"},
                files={"ask.py": File(text=program)},
                stdout=answer,
                must_hold=question in hold_already,
            )
            for question, answer in asked.items()
        ],
        needs=["python3"],
        solution="""
            cat > ~/stats.py <<'END'
            def median(values):
                values, middle = sorted(values), len(values) // 2
                if len(values) % 2:
                    return values[middle]
                return (values[middle - 1] + values[middle]) / 2

            def mode(values):
                return max(sorted(set(values)), key=values.count)

            def spread(values):
                return max(values) - min(values)
            END
        """,
    )


@_bundled
def _who_listens() -> Task:
    draw = random.Random(8)  # nosec B311  # made-up data
    ports = draw.sample(range(20000, 30000), 4)
    names = [f"services/{name}.py" for name in ("amber", "birch", "cedar", "dune")]
    server = _text(
        """
        import os
        import socket
        import time

        with open(__file__ + ".port") as file:
            port = int(file.read())
        os.remove(__file__ + ".port")
        listening = socket.create_server(("127.0.0.1", port))
        time.sleep(10**6)
        """
    )
    listening = "|".join(f"{port:04X}" for port in ports)
    files = dict.fromkeys(names, server)
    files |= {
        f"{name}.port": File(text=f"{port}\n") for name, port in zip(names, ports, strict=True)
    }
    return _make_task(
        id="who_listens",
        split="test",
        instruction=f"""
            Several programs of ~/services are running, and one of them listens on TCP port
            {ports[2]} of 127.0.0.1. Write the name of its file, without the directory, to
            ~/answer.txt.
        """,
        files=files,
        setup=["head -c 1 /proc/net/tcp"],  # fails in a sandbox without the file
        services=[f"exec python3 {name}" for name in names],
        ready=f"[ $(grep -cE ':({listening}) ' /proc/net/tcp) = {len(ports)} ]",
        needs=["python3"],
        checks=[FileCheck(file="answer.txt", equals=names[2].rpartition("/")[2])],
        solution=f"""
            inode=$(awk -v port="$(printf '%04X' {ports[2]})" \\
                '$2 ~ ":" port "$" && $4 == "0A" {{print $10}}' /proc/net/tcp)
            for fd in /proc/[0-9]*/fd/*; do
                if [ "$(readlink "$fd" 2>/dev/null)" = "socket:[$inode]" ]; then
                    pid=${{fd#/proc/}}
                    grep -ao '[a-z]*[.]py' "/proc/${{pid%%/*}}/cmdline" > ~/answer.txt
                fi
            done
        """,
    )


# The commit that the agent must find. The hash does not depend on when or where it is made.
_LOST = "66e38a4d66eeb506f09f0ff3b8928010e1f8b15b"


@_bundled
def _lost_commit() -> Task:
    person = {"NAME": "Ada", "EMAIL": "ada@example.org", "DATE": "2024-05-15T12:00:00Z"}
    whom = " ".join(
        f"GIT_{role}_{name}={value}"
        for role in ("AUTHOR", "COMMITTER")
        for name, value in person.items()
    )
    commits = [
        f"export {whom}",
        "git init -q -b main repository && cd repository",
        "echo '# Words' > README.md && git add . && git commit -q -m Begin",
        "echo 'parse = str.split' > parser.py && git add . && git commit -q -m 'Add the parser'",
        "git reset -q --hard HEAD~1",
        "echo 'More words.' >> README.md && git commit -q -a -m 'Describe the words'",
    ]

    def check_copy(command: str, stdout: str, must_hold: bool = False) -> RunCheck:
        """Check a repository with only the agent's objects and references.

        The agent's settings, hooks and attributes are left out.
        """
        return RunCheck(
            run=f"git -C judged {command}",
            before=["git init -q judged && rm -r judged/.git/objects judged/.git/refs"],
            copies={f"repository/.git/{one}": f"judged/.git/{one}" for one in ("objects", "refs")},
            copies_if_there={"repository/.git/packed-refs": "judged/.git/packed-refs"},
            stdout=stdout,
            must_hold=must_hold,
        )

    return _make_task(
        id="lost_commit",
        split="test",
        instruction="""
            In the git repository ~/repository a commit with the message "Add the parser" was lost
            by a reset. Make a branch named rescued that ends with that very commit, and leave the
            branch main, and what is checked out, as they are.
        """,
        setup=[" && ".join(commits)],
        checks=[
            check_copy("rev-parse refs/heads/rescued", _LOST),
            check_copy("show refs/heads/rescued:parser.py", "parse = str.split"),
            check_copy("log --format=%s refs/heads/main", "Describe the words\nBegin", True),
            FileCheck(file="repository/README.md", equals="# Words\nMore words.", must_hold=True),
            FileCheck(file="repository/.git/HEAD", equals="ref: refs/heads/main", must_hold=True),
        ],
        needs=["git"],
        solution="""
            cd ~/repository
            lost=$(git reflog --format='%H %s' | awk '/Add the parser/ {print $1; exit}')
            git branch rescued "$lost"
        """,
    )


@_bundled
def _merge_the_settings() -> Task:
    base = {"name": "service", "port": 8080, "log": {"level": "info", "file": None}, "tags": ["a"]}
    local = {"port": 9090, "log": {"level": "debug"}, "tags": ["b", "c"], "extra": {"on": True}}
    texts = {"base.json": _json(base), "local.json": _json(local)}
    merged = {
        "extra": {"on": True},
        "log": {"file": None, "level": "debug"},
        "name": "service",
        "port": 9090,
        "tags": ["b", "c"],
    }
    blob = File(base64=base64.b64encode(bytes(range(256))).decode())
    return _make_task(
        id="merge_the_settings",
        instruction="""
            Merge ~/settings/local.json over ~/settings/base.json: objects are merged key by key, at
            every depth; anything else of local.json takes the place of what base.json has. Write
            the result to ~/settings/merged.json, with keys sorted and an indentation of two blanks,
            as json.dumps(..., indent=2, sort_keys=True) of Python does. Leave the other files as
            they are.
        """,
        files={"settings/cache.bin": blob}
        | {f"settings/{name}": File(text=text) for name, text in texts.items()},
        needs=["python3"],
        checks=[
            FileCheck(file="settings/merged.json", equals=_json(merged)),
            *(
                FileCheck(file=f"settings/{name}", equals=text, must_hold=True)
                for name, text in texts.items()
            ),
            FileCheck(file="settings/cache.bin", type="file", must_hold=True),
        ],
        solution="""
            cd ~/settings
            python3 - <<'END'
            import json

            def merge(under, over):
                if isinstance(under, dict) and isinstance(over, dict):
                    return {**under, **{k: merge(under.get(k), v) for k, v in over.items()}}
                return over

            merged = merge(json.load(open("base.json")), json.load(open("local.json")))
            with open("merged.json", "w") as file:
                json.dump(merged, file, indent=2, sort_keys=True)
            END
        """,
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
