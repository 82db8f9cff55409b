"""Prompts that Gemini CLI would take for commands."""

import pytest

from stagedoor.agents.gemini.commands import literal, literal_over_acp


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("Fix the bug", "Fix the bug"),
        ("/memory show", " /memory show"),
        ("/etc/hosts is wrong", " /etc/hosts is wrong"),
        ("// a comment", "// a comment"),
        ("/* a comment */", "/* a comment */"),
        (" /already", " /already"),
        ("-x", "-x"),
        ("read @src/main.py", r"read \@src/main.py"),
        ('@./here and @"with space"', r'\@./here and \@"with space"'),
        ("write to me@example.com", r"write to me\@example.com"),
        (r"already \@escaped", r"already \@escaped"),
        ("5 @ 3, or @", "5 @ 3, or @"),
        ("/run @x", r" /run \@x"),
        ("", ""),
    ],
)
def test_literal(prompt: str, sent: str):
    assert literal(prompt) == sent


@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("Fix the bug", "Fix the bug"),
        ("/memory show", "\u200b/memory show"),
        ("  /memory show", "\u200b  /memory show"),
        ("$skill", "\u200b$skill"),
        ("read @src/main.py", "read @src/main.py"),
        ("", ""),
    ],
)
def test_literal_over_acp(prompt: str, sent: str):
    assert literal_over_acp(prompt) == sent
