"""Findings in every format: golden files, the schema of SARIF, well-formed XML, nothing a file can break out of."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft4Validator

from policy_lang import checks
from policy_lang.cli.findings import FORMATS
from policy_lang.diagnostics import NOTE, Diagnostic, Edit, Label
from policy_lang.linting import Linter
from policy_lang.renderers import github, junit, sarif
from policy_lang.source import Source, Span

HERE = Path(__file__).parent
GOLDEN = HERE / "formats"
FILES = ("clean.policy", "mixed.policy", "noted.policy")
SUFFIX = {
    "full": "txt",
    "concise": "txt",
    "spoken": "txt",
    "json": "json",
    "sarif": "sarif",
    "github": "txt",
    "junit": "xml",
}

SCHEMA = json.loads((HERE / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
"""Version 2.1.0-rtm.5, as schemastore has it; the copy of the npm package `@microsoft/jest-sarif` (MIT)."""


def found() -> list[Diagnostic]:
    """The findings of the golden files, from inside their directory."""
    before = os.getcwd()
    os.chdir(GOLDEN)
    try:
        linter = Linter()
        return [finding for name in FILES for finding in linter(name)]
    finally:
        os.chdir(before)


def rendered(format: str) -> str:
    module = import_module(f"policy_lang.renderers.{format}")
    text = module.render(found()) if SUFFIX[format] == "txt" else module.render(found(), FILES)
    if format == "sarif":  # the version of the package is no matter of the format
        document = json.loads(text)
        document["runs"][0]["tool"]["driver"].pop("version", None)
        text = json.dumps(document, indent=2)
    return f"{text}\n"


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_is_as_it_was(format: str) -> None:
    assert rendered(format) == (GOLDEN / f"{format}.{SUFFIX[format]}").read_text(encoding="utf-8")


def test_the_golden_files_have_every_severity_and_a_fix() -> None:
    assert {finding.severity for finding in found()} == {"error", "warning", "note"}
    assert any(finding.fix for finding in found())
    assert any(finding.secondary for finding in found())


# ---- SARIF


def corpus() -> list[Diagnostic]:
    return [
        finding
        for path in sorted((HERE / "cases").glob("*.policy"))
        for finding in checks(path.read_text(encoding="utf-8"), path.name, root=HERE / "cases")[1]
    ]


def test_sarif_is_valid_by_its_schema() -> None:
    findings = [*corpus(), *found()]
    assert len(findings) > 300
    document = json.loads(sarif.render(findings, FILES))
    problems = [f"{list(e.absolute_path)}: {e.message}" for e in Draft4Validator(SCHEMA).iter_errors(document)]
    assert problems == []


def test_the_schema_is_one_that_refuses() -> None:
    document = json.loads(sarif.render(found(), FILES))
    document["runs"][0]["results"][0]["level"] = "grave"
    assert not Draft4Validator(SCHEMA).is_valid(document)


def test_rules_of_sarif_are_those_of_its_results() -> None:
    run = json.loads(sarif.render(found(), FILES))["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    assert all(rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"])


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("a b.policy", "a%20b.policy"),
        ("ü/100%.policy", "%C3%BC/100%25.policy"),
        ("/org/a.policy", "file:///org/a.policy"),
        ("../up.policy", "../up.policy"),
    ],
)
def test_a_place_is_a_uri(name: str, uri: str) -> None:
    source = Source(name, "x")
    finding = Diagnostic("P100", "m", Label(Span(source, 0, 1)))
    place = json.loads(sarif.render([finding]))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri


# ---- annotations


def test_an_annotation_cannot_be_broken_out_of() -> None:
    source = Source("a,b:c\n::error::.policy", "x\ny")
    finding = Diagnostic("P100", "100% `a\n::error::b`", Label(Span(source, 0, 1)), help="write\r`c`", severity=NOTE)
    assert github.render([finding]) == (
        "::notice file=a%2Cb%3Ac%0A%3A%3Aerror%3A%3A.policy,line=1,col=1,endColumn=2,title=P100"
        "::100%25 `a\ufffd::error::b`; write\ufffd`c`"
    )


def test_a_finding_over_lines_has_no_columns_of_its_end() -> None:
    source = Source("a.policy", "limits {\n}\n")
    assert "endColumn" not in github.render([Diagnostic("P100", "m", Label(Span(source, 0, 10)))])


# ---- JUnit


def test_a_report_has_a_case_for_each_file() -> None:
    suite = ElementTree.fromstring(junit.render(found(), FILES))[0]
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == list(FILES)
    assert list(cases["clean.policy"]) == []
    failures = [*cases["mixed.policy"].findall("failure"), *cases["noted.policy"].findall("failure")]
    assert len(failures) == int(suite.get("failures", 0)) == sum(f.severity != NOTE for f in found())
    assert "P354" in (cases["noted.policy"].findtext("system-out") or "")


def test_a_report_is_xml_whatever_a_file_contains() -> None:
    source = Source('<&">\x00\x1b]]>.policy', "<a>\x0b&]]>")
    finding = Diagnostic(
        "P100", "<b> & \x07 ]]>", Label(Span(source, 0, 8), "<c>"), fix=(Edit(Span(source, 0, 1), "x"),)
    )
    tree = ElementTree.fromstring(junit.render([finding], [source.name]))
    assert tree[0][0][0].get("message") == "P100: <b> & \ufffd ]]>"


def update() -> None:
    for format in FORMATS:
        (GOLDEN / f"{format}.{SUFFIX[format]}").write_text(rendered(format), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(update())
