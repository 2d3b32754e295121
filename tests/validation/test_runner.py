"""A run: what is asked, in which order, and what becomes of graders that are at fault."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.processes import is_alive
from support.validated import installed_graders, replace, write_package
from support.waiting import wait_until

from openenv.validation import (
    CheckResult,
    CheckStatus,
    GraderRegistry,
    Level,
    SeverityPolicyError,
    SignatureError,
    ValidationReport,
    Verdict,
    load_policy,
    run_validation,
    validate,
)
from openenv.validation.graders import Evidence, FunctionGrader, GraderError, Subject
from openenv.validation.manifest import (
    ExecutionDeclaration,
    NetworkPolicy,
    ResourceDeclaration,
)
from openenv.validation.providers import LaunchSpec
from openenv.validation.providers.process import ProcessValidationProvider
from openenv.validation.report import ValidationReportV2, accept
from openenv.validation.static.builds import ImageBuilds

PASS, FAIL, SKIP, ERROR = CheckStatus

FOREIGN = '''
from openenv.validation import CheckResult, CheckStatus, Level, ProviderCapability


class Title:
    """Written for the public package, which knows nothing of ours."""

    check_id = "acme.title"
    level = Level.STATIC
    requires_capabilities = frozenset()
    requires_provider = frozenset()
    depends_on = ("static.manifest",)

    def applies_to(self, manifest):
        return manifest.signature.value != ""

    def run(self, subject):
        text = (subject.root / "README.md").read_text()
        good = text.startswith("# ") and subject.running is None
        return CheckResult(
            check_id=self.check_id,
            status=CheckStatus.PASS if good else CheckStatus.FAIL,
            measured={"name": subject.manifest.name},
            evidence=[text.splitlines()[0]],
            duration_s=0.5,
        )


class Raises(Title):
    check_id = "acme.raises"

    def run(self, subject):
        raise RuntimeError("out of order")


class Leaves(Title):
    check_id = "acme.leaves"

    def run(self, subject):
        raise SystemExit(0)


class After(Title):
    check_id = "acme.after"
    depends_on = ("acme.raises",)


class Lonely(Title):
    check_id = "acme.lonely"
    depends_on = ("nobody.knows",)


class Other(Title):
    check_id = "acme.other"

    def run(self, subject):
        return CheckResult(check_id="acme.title", status=CheckStatus.PASS, duration_s=0.0)


class Nothing(Title):
    check_id = "acme.nothing"

    def run(self, subject):
        return None


class NeedsTools(Title):
    check_id = "acme.tools"
    requires_capabilities = frozenset({"declared_tools"})


class NeedsGpu(Title):
    check_id = "acme.gpu"
    requires_provider = frozenset({ProviderCapability.GPU})


class NotHere(Title):
    check_id = "acme.not_here"

    def applies_to(self, manifest):
        return False


class NoGrader:
    check_id = "acme.none"


instance = Title()
ours = type("Ours", (Title,), {"check_id": "static.layout"})
'''


def results(package: Path) -> dict[str, CheckResult]:
    report = run_validation(package, max_level=Level.STATIC, skip_build=True)
    return {result.check_id: result for result in report.results}


# ------------------------------------------------------------------ graders of others


def test_a_grader_written_for_the_public_package_runs(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    with installed_graders(tmp_path, FOREIGN, title="Title"):
        found = results(package)["acme.title"]
    assert (found.status, found.measured, found.duration_s) == (PASS, {"name": "lamp_env"}, 0.5)


def test_what_a_third_party_finds_warns_where_the_policy_does_not_say(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    replace(package, "README.md", "# Lamp", "Lamp")
    with installed_graders(tmp_path, FOREIGN, title="instance"):
        validation = validate(package, max_level=Level.STATIC, skip_build=True)
    assert validation.report.verdict is Verdict.WARN
    assert validation.policy.entries[-1].check_id == "acme.title"
    assert load_policy("v1").entries[-1].check_id != "acme.title"


def test_what_is_wrong_with_a_grader_is_its_own_error_and_the_run_goes_on(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    named = ("Raises", "Leaves", "After", "Lonely", "Other", "Nothing", "NeedsGpu", "Title")
    with installed_graders(tmp_path, FOREIGN, **{name.lower(): name for name in named}):
        found = results(package)
    assert {name: one.status for name, one in found.items() if name.startswith("acme")} == {
        "acme.raises": ERROR,
        "acme.leaves": ERROR,
        "acme.after": SKIP,
        "acme.lonely": SKIP,
        "acme.other": ERROR,
        "acme.nothing": ERROR,
        "acme.gpu": SKIP,
        "acme.title": PASS,
    }
    assert "RuntimeError: out of order" in found["acme.raises"].evidence[0]
    assert found["acme.after"].evidence == ["unmet dependency: acme.raises (error)"]
    assert found["acme.lonely"].evidence == ["unmet dependency: nobody.knows (not run)"]
    assert "gpu" in found["acme.gpu"].evidence[0]


def test_what_cannot_be_asked_of_a_package_is_not_asked(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    with installed_graders(tmp_path, FOREIGN, a="NeedsTools", b="NotHere"):
        assert not {"acme.tools", "acme.not_here"} & set(results(package))
        replace(package, "openenv.yaml", "task_api: false", "declared_tools: [switch]")
        assert "acme.tools" in results(package)


def test_without_a_manifest_a_third_party_is_not_asked(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    replace(package, "openenv.yaml", "validation:", "validatoin:")
    with installed_graders(tmp_path, FOREIGN, title="Title"):
        found = results(package)
    assert found["acme.title"].evidence == ["unmet dependency: static.manifest (fail)"]
    assert found["static.dependency_pinning"].status is PASS


@pytest.mark.parametrize("value", ["NoGrader", "missing", "ours"])
def test_what_is_no_grader_is_refused_with_its_package(value: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    with (
        installed_graders(tmp_path, FOREIGN, one=value),
        pytest.raises(GraderError, match="foreign-graders"),
    ):
        results(package)


# ------------------------------------------------------------------ the order, the registry


def check(check_id: str, level: Level = Level.STATIC, *depends_on: str) -> FunctionGrader:
    return FunctionGrader(check_id, level, lambda subject: accept(), depends_on)


def test_graders_come_after_what_they_depend_on(tmp_path: Path) -> None:
    from openenv.validation.graders import sort_graders

    graders = [
        check("a.deep", Level.RUNTIME),
        check("a.last", Level.STATIC, "a.second"),
        check("a.second", Level.STATIC, "a.first"),
        check("a.first"),
    ]
    assert [one.check_id for one in sort_graders(graders)] == [
        "a.first",
        "a.second",
        "a.last",
        "a.deep",
    ]


def test_a_circle_is_an_error() -> None:
    from openenv.validation.graders import sort_graders

    with pytest.raises(GraderError, match="circularly"):
        sort_graders([check("a.one", Level.STATIC, "a.two"), check("a.two", Level.STATIC, "a.one")])


def test_a_check_has_one_grader() -> None:
    registry = GraderRegistry([check("a.one")])
    with pytest.raises(ValueError, match=r"a\.one"):
        registry.register(check("a.one"))
    assert registry.get("a.one") is not None and registry.get("a.two") is None


def test_evidence_is_found_by_its_class() -> None:
    evidence = Evidence("seen", 3)
    assert (evidence.get(str), evidence.get(int), evidence.get(float)) == ("seen", 3, None)
    with pytest.raises(LookupError):
        evidence.need(float)


# ------------------------------------------------------------------ the report


def test_a_static_run_makes_a_report_of_the_first_schema(tmp_path: Path) -> None:
    report = run_validation(write_package(tmp_path), max_level=Level.STATIC, skip_build=True)
    assert isinstance(report, ValidationReport)
    assert (report.policy_version, report.levels_run) == ("v1", [Level.STATIC])
    assert all(result.duration_s > 0 for result in report.results)


@pytest.mark.parametrize(
    ("version", "level"), [("v1", Level.RUNTIME), ("v2", Level.STATISTICAL), ("v1", Level.SEMANTIC)]
)
def test_a_policy_that_knows_nothing_of_a_level_is_refused(
    version: str, level: Level, tmp_path: Path
) -> None:
    with pytest.raises(SeverityPolicyError):
        run_validation(write_package(tmp_path), max_level=level, policy=load_policy(version))


def test_a_directory_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SignatureError):
        run_validation(tmp_path)


def test_without_a_manifest_nothing_is_run_and_everything_is_named(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    replace(package, "openenv.yaml", "validation:", "validatoin:")
    report = run_validation(package, skip_build=True, provider=ProcessValidationProvider())
    assert isinstance(report, ValidationReportV2)
    assert (report.manifest, report.levels_run) == (None, [Level.STATIC])
    deeper = [one for one in report.results if not one.check_id.startswith("static")]
    assert len(deeper) > 25
    assert {one.status for one in deeper} == {SKIP}


def test_a_package_that_needs_a_key_is_not_run(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    replace(
        package, "openenv.yaml", "  types:", "  execution: {requires_credentials: true}\n  types:"
    )
    report = run_validation(
        package, max_level=Level.RUNTIME, skip_build=True, provider=ProcessValidationProvider()
    )
    startup = next(one for one in report.results if one.check_id == "runtime.startup")
    assert startup.status is SKIP and startup.evidence[0].startswith("credentials")


def test_what_was_built_is_removed_though_nothing_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write_package(tmp_path)
    replace(
        package, "openenv.yaml", "  types:", "  execution: {requires_credentials: true}\n  types:"
    )
    forgotten: list[str] = []
    monkeypatch.setattr(ImageBuilds, "forget", lambda builds: forgotten.append(builds.skipped))
    run_validation(package, max_level=Level.RUNTIME, skip_build=True)
    assert forgotten == ["--skip-build: its image was not built"]


@pytest.mark.slow
def test_a_package_that_does_not_start_fails_and_says_why(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    (package / "server" / "app.py").write_text("raise RuntimeError('no lamp')\n")
    report = run_validation(
        package, max_level=Level.RUNTIME, skip_build=True, provider=ProcessValidationProvider()
    )
    by_id = {one.check_id: one for one in report.results}
    assert by_id["runtime.startup"].status is FAIL
    assert report.verdict is Verdict.FAIL
    others = [
        one for name, one in by_id.items() if name.startswith("runtime") and "startup" not in name
    ]
    assert {one.status for one in others} == {SKIP}
    assert {one.evidence[0] for one in others} == {"unmet dependency: runtime.startup (fail)"}


@pytest.mark.slow
def test_a_package_is_run_and_what_was_seen_is_kept(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    kept = tmp_path / "kept"
    told: list[str] = []
    validation = validate(
        package,
        max_level=Level.RUNTIME,
        skip_build=True,
        provider=ProcessValidationProvider(),
        artifacts_dir=kept,
        progress=lambda check_id, done, total, words: told.append(check_id or words),
    )
    by_id = {one.check_id: one.status for one in validation.report.results}
    assert by_id["runtime.startup"] is PASS
    assert by_id["runtime.host_containment"] is SKIP
    assert {file.name for file in kept.iterdir()} >= {"run.json", "transcript.jsonl"}
    assert "Application startup complete" in (kept / "server.log").read_text()
    assert validation.provider == "process" and "runtime.startup" in told


@pytest.mark.slow
def test_a_process_is_started_and_stopped(tmp_path: Path) -> None:
    import urllib.request

    from openenv.validation.context import Startup, ValidationRun
    from openenv.validation.parsers import default_parsers
    from openenv.validation.types import SignatureKind

    package = write_package(tmp_path)
    manifest = default_parsers().parser_for(SignatureKind.OPENENV_SERVED).parse(package)
    provider = ProcessValidationProvider()
    with ValidationRun(package, manifest, tmp_path, provider) as run:
        assert run.start_up().is_running and run.evidence.need(Startup).provider == "process"
        assert run.execution == ExecutionDeclaration()
        subject = run.running
        told = subject.inspect()
        assert told["isolation"] == "process" and isinstance(told["pid"], int)
        done = subject.exec(["sh", "-c", "echo there; exit 3"], 5.0)
        assert (done.exit_code, done.stdout) == (3, "there\n")
        another = run.start({"LAMP": "1"})
        assert another.base_url != subject.base_url
    for url in (subject.base_url, another.base_url):
        with pytest.raises(OSError):
            urllib.request.urlopen(f"{url}/health", timeout=5)


@pytest.mark.extended("validates a whole subject; other tests of the check are quicker")
def test_one_that_is_interrupted_while_it_starts_is_gone_at_once(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    begun = tmp_path / "begun"
    hanging = (
        f"import os, pathlib, time\npathlib.Path({str(begun)!r}).write_text(str(os.getpid()))\n"
    )
    (package / "server" / "app.py").write_text(f"{hanging}time.sleep(60)\n")
    provider = ProcessValidationProvider()
    spec = LaunchSpec(
        image_ref=provider.build(package, ExecutionDeclaration()),
        resources=ResourceDeclaration(cpu=1, memory_mb=512, disk_mb=64, episode_timeout_s=60),
        network=NetworkPolicy(mode="public"),
        run_id="validate-test",
    )
    main = threading.get_ident()

    def interrupt() -> None:
        wait_until(lambda: begun.exists() and bool(begun.read_text()), 40)
        time.sleep(1.0)  # its port is known by then, and its answer waited for
        signal.pthread_kill(main, signal.SIGINT)

    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt) as caught:
        interrupting = pool.submit(interrupt)
        provider.start(spec)
    assert interrupting.result() is None
    assert not is_alive(int(begun.read_text()))  # though the exception still refers to it
    assert caught.traceback


def test_a_subject_is_what_the_public_package_makes_it() -> None:
    from dataclasses import fields

    names = [one.name for one in fields(Subject)]
    assert names[:7] == [
        "root",
        "manifest",
        "image_ref",
        "running",
        "outputs_dir",
        "runtime_evidence",
        "network_evidence_json",
    ]
