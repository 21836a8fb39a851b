"""ssl.principal.mapping.rules: the results and errors are those of Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from moldau.security.tls.mapping_rules import (
    BACKTRACKED_LENGTH_MAX,
    SUBJECT_LENGTH_MAX,
    MappingRules,
    NoRuleApplies,
)

USUAL = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    " RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        (USUAL, "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown", "serviceuser"),
        (USUAL, "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        (USUAL, "cn=kafka1,ou=SME,dc=mycp,dc=com", "KAFKA1"),
        (USUAL, "OU=x", "OU=x"),
        ("RULE:^CN=(.*?),.*$/$1@$4/", "CN=a,O=b", "a@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", "CN=a,O=b", "a2"),
        (r"RULE:^CN=(.*?),.*$/\$1-$0/", "CN=a,O=b", "$1-CN=a,O=b"),
        (r"RULE:^CN=a\/b$/x\/y/", "CN=a/b", "x/y"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:^CN=(?P<n>.*)$/${n}/", "CN=a", "a"),
        ("RULE:^(CN=x)?.*$/[$1]/", "OU=a", "[]"),
        (" , DEFAULT,,", "CN=a", "CN=a"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, subject: str, user: str) -> None:
    assert MappingRules(rules).user(subject) == user


def test_a_subject_without_a_matching_rule_is_refused() -> None:
    with pytest.raises(NoRuleApplies, match=r"No rules apply to OU=x, rules \[RULE:\^CN=\(\.\*\?\),\.\*\$/\$1\]"):
        MappingRules("RULE:^CN=(.*?),.*$/$1/").user("OU=x")
    with pytest.raises(NoRuleApplies):
        MappingRules("").user("CN=a")
    with pytest.raises(NoRuleApplies, match="characters"):
        MappingRules().user("x" * (SUBJECT_LENGTH_MAX + 1))


@pytest.mark.needs_re2
def test_a_usual_rule_is_fast_for_a_hostile_subject() -> None:
    """A client chooses its subject. With a pattern that tries every way to divide it, this test would not end."""
    with pytest.raises(NoRuleApplies):
        MappingRules("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L").user(
            "CN=a" + ",OU=b" * 150 + ",O=c" * 150 + ",L=d" * 150 + ",ST=e" * 150
        )


def test_a_backtracking_pattern_accepts_only_short_subjects() -> None:
    rules = MappingRules("RULE:^CN=(?!x)(.*)$/$1/")
    assert rules.user("CN=" + "a" * 200) == "a" * 200
    with pytest.raises(NoRuleApplies, match="characters"):
        rules.user("CN=" + "a" * BACKTRACKED_LENGTH_MAX)


def test_a_pattern_that_means_something_else_in_java_is_refused() -> None:
    with pytest.raises(ValueError, match="nested set"):
        MappingRules("RULE:[[a]b/x/")


@pytest.mark.parametrize("rules", ["default", "foo", "RULE:a/b", "RULE:a/b/LU", "RULE:a/b/garbage", "DEFAULT, x"])
def test_text_that_is_not_a_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"^Invalid rule: `.*`, unmatched substring: `.+`$"):
        MappingRules(rules)


@pytest.mark.parametrize("rules", ["RULE:(/x/", "RULE:a/${n}/", "RULE:a/$/"])
def test_a_pattern_or_replacement_that_cannot_work_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"^Invalid rule"):
        MappingRules(rules)
