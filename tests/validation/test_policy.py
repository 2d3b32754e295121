"""Severity policies: what each result does to the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from openenv.validation import (
    CheckResult,
    CheckStatus,
    Lane,
    PolicyEntry,
    Severity,
    SeverityPolicyError,
    Verdict,
    apply_policy,
    load_policy,
)
from openenv.validation.checks import CHECKS, Property, score_results
from openenv.validation.policy import add_entries, policy_versions, read_policy
from openenv.validation.types import Level

PASS, FAIL, SKIP, ERROR = CheckStatus
V1, V2, V3 = (load_policy(version) for version in ("v1", "v2", "v3"))
OURS = {
    "runtime.session_isolation",
    "runtime.reward_contract",
    "runtime.latency",
    "runtime.memory",
    "semantic.monotonicity",
    "semantic.hacking_probes",
    "learning.curve",
    "learning.group_signal",
}


def result(check_id: str, status: CheckStatus) -> CheckResult:
    return CheckResult(check_id=check_id, status=status, duration_s=0.0)


@pytest.mark.parametrize(
    ("check_id", "status", "verdict"),
    [
        ("static.manifest", PASS, Verdict.PASS),
        ("static.manifest", FAIL, Verdict.FAIL),
        ("static.layout", FAIL, Verdict.WARN),
        ("static.layout", SKIP, Verdict.WARN),
        ("static.manifest", SKIP, Verdict.WARN),
        ("static.layout", ERROR, Verdict.FAIL),
    ],
)
def test_what_a_result_does(check_id: str, status: CheckStatus, verdict: Verdict) -> None:
    assert apply_policy([result(check_id, status)], V1, Lane.LOCAL) is verdict


def test_the_worst_result_decides() -> None:
    results = [result("static.layout", SKIP), result("static.manifest", FAIL)]
    assert apply_policy(results, V1, Lane.LOCAL) is Verdict.FAIL
    assert apply_policy([], V1, Lane.LOCAL) is Verdict.PASS


@pytest.mark.parametrize("check_id", ["acme.thing", "statistical.headroom", "runtime.startup"])
def test_a_check_without_an_entry_is_an_error(check_id: str) -> None:
    with pytest.raises(SeverityPolicyError):
        apply_policy([result(check_id, PASS)], V1, Lane.LOCAL)


def test_an_advisory_check_warns_in_its_own_lane() -> None:
    results = [result("statistical.training_signal", FAIL)]
    assert apply_policy(results, V1, Lane.HUB) is Verdict.WARN


def test_each_policy_holds_all_of_the_one_before() -> None:
    assert policy_versions() == ["v1", "v2", "v3"]
    ids = [{entry.check_id for entry in policy.entries} for policy in (V1, V2, V3)]
    assert ids[1] - ids[0] == {"runtime.startup"}
    assert ids[2] - ids[1] == OURS
    assert (len(ids[0]), len(ids[1]), len(ids[2])) == (45, 46, 54)
    for older, newer in ((V1, V2), (V2, V3)):
        assert all(entry in newer.entries for entry in older.entries)
        assert older.bounds == newer.bounds


def test_every_local_check_has_a_property_and_a_question() -> None:
    local = set(V3.entries_for_lane(Lane.LOCAL))
    assert local == set(CHECKS)
    assert {one.property for one in CHECKS.values()} == set(Property)


@pytest.mark.parametrize("version", ["v9", "../severity-v1", ""])
def test_there_are_no_other_policies(version: str) -> None:
    with pytest.raises(SeverityPolicyError):
        load_policy(version)


def test_a_policy_of_ones_own_is_read(tmp_path: Path) -> None:
    file = tmp_path / "strict.json"
    file.write_text(V1.model_dump_json().replace('"warn"', '"fail"'))
    results = [result("static.layout", FAIL)]
    assert apply_policy(results, read_policy(file), Lane.LOCAL) is Verdict.FAIL
    file.write_text("{}")
    with pytest.raises(SeverityPolicyError):
        read_policy(file)


def test_what_a_policy_says_of_a_check_stands() -> None:
    entry = PolicyEntry(
        check_id="static.layout", level=Level.STATIC, lane=Lane.LOCAL, severity=Severity.FAIL
    )
    assert add_entries(V1, [entry]).entries == V1.entries


# ------------------------------------------------------------------ scores


def test_what_was_skipped_earns_nothing() -> None:
    scores = score_results([result("static.sbom", PASS), result("static.oci_labels", SKIP)], V3)
    assert scores.total == 50.0


def test_a_check_that_fails_packages_weighs_three() -> None:
    scores = score_results([result("static.sbom", PASS), result("static.layout", FAIL)], V3)
    assert scores.total == 75.0


def test_the_total_is_the_mean_of_what_was_asked() -> None:
    scores = score_results([result("static.sbom", PASS), result("static.manifest", FAIL)], V3)
    values = {one.property: one.value for one in scores.properties}
    assert values[Property.SCALES] == 100.0 and values[Property.OBSERVABLE] == 0.0
    assert values[Property.LEARNABLE] is None
    assert scores.total == 50.0
    assert score_results([], V3).total == 0.0
