"""Policy files: nothing the CLI would silently drop may reach it."""

import tomllib

import pytest

from stagedoor.agents.gemini.policy import Decision, PolicyRule, allow, check_policy, deny, policy_toml
from stagedoor.errors import LocalProtocolError

ALLOW, DENY, ASK = Decision


def rule(tool_name="run_shell_command", decision=DENY, priority=500, **more) -> PolicyRule:
    return PolicyRule(tool_name=tool_name, decision=decision, priority=priority, **more)


@pytest.mark.parametrize(
    ("written", "members"),
    [
        (rule("*"), {"toolName": "*", "decision": "deny", "priority": 500}),
        (allow("write_file"), {"toolName": "write_file", "decision": "allow", "priority": 500}),
        (
            deny("run_shell_command(rm -rf)"),
            {"toolName": "run_shell_command", "decision": "deny", "priority": 900, "commandPrefix": "rm -rf"},
        ),
        (
            rule(
                ("replace", "write_file"), ASK, 0, args_pattern='"file_path":"[^"]*\\.env"', modes=("yolo", "autoEdit")
            ),
            {
                "toolName": ["replace", "write_file"],
                "decision": "ask_user",
                "priority": 0,
                "argsPattern": '"file_path":"[^"]*\\.env"',
                "modes": ["yolo", "autoEdit"],
            },
        ),
        (
            rule(command_prefix=("a", 'b "c"'), allow_redirection=True, deny_message='née\n"x"\x7f\t'),
            {
                "toolName": "run_shell_command",
                "decision": "deny",
                "priority": 500,
                "commandPrefix": ["a", 'b "c"'],
                "allowRedirection": True,
                "denyMessage": 'née\n"x"\x7f\t',
            },
        ),
        (
            rule("echo", mcp_name="srv", subagent="x", interactive=False),
            {
                "toolName": "echo",
                "decision": "deny",
                "priority": 500,
                "mcpName": "srv",
                "subagent": "x",
                "interactive": False,
            },
        ),
    ],
)
def test_written_and_read_back(written: PolicyRule, members: dict):
    content = policy_toml((written, written))
    assert tomllib.loads(content.decode()) == {"rule": [members, members]}
    assert check_policy(content, "p.toml") == (written, written)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (rule(""), "empty"),
        (rule(()), "empty"),
        (rule("srv__tool"), "mcp_name"),
        (rule("run_shell_comand"), "did you mean 'run_shell_command'"),
        (rule(priority=1000), "between 0 and 999"),
        (rule(priority=-1), "between 0 and 999"),
        (rule(modes=("auto_edit",)), "autoEdit"),
        (rule("write_file", command_prefix="ls"), "need tool_name"),
        (rule(("run_shell_command", "glob"), command_regex="ls"), "need tool_name"),
        (rule(command_prefix="a", command_regex="b"), "not several"),
        (rule(command_prefix="a", args_pattern="b"), "not several"),
        (rule(command_prefix=""), "every command"),
        (rule(args_pattern="("), "not a regular expression"),
        (rule(args_pattern="(a+)+"), "repeats a group"),
        (rule(args_pattern="x" * 2049), "longer than"),
        (rule(command_prefix="x" * 2040), "longer than"),
        (rule(args_pattern="(?i)rm"), "JavaScript"),
        (rule(args_pattern="(?P<x>rm)"), "JavaScript"),
        (rule(args_pattern=r"\Arm"), "JavaScript"),
        (rule(args_pattern="a++"), "JavaScript"),
        (rule(deny_message="\ud83d"), "an incomplete character"),
    ],
)
def test_refused(bad: PolicyRule, says: str):
    with pytest.raises(LocalProtocolError, match=says):
        policy_toml((bad,))


@pytest.mark.parametrize("pattern", [r"(?:a|b)(?=c)(?!d)", r"(?<=a)b(?<!c)", r"\\Arm", r"[+]\+", r"a{2}", "é"])
def test_good_patterns(pattern: str):
    policy_toml((rule(args_pattern=pattern),))


@pytest.mark.parametrize("tool", ["mcp_srv_tool", "*", "mcp_*", "my_extension_tool", "web_fetch"])
def test_good_names(tool: str):
    policy_toml((rule(tool),))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[[rule", "not a Gemini policy file"),
        (b"\xff", "not a Gemini policy file"),
        (b'[[rule]]\ntoolName = "x"\ndecision = "deny"\n', "priority"),
        (b'[[rule]]\ntoolName = "x"\ndecision = "no"\npriority = 1\n', "no"),
        (b'[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 1\nargsPatern = "x"\n', "argsPatern"),
        (b'[[rules]]\ntoolName = "x"\n', "rules"),
        (b'[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 1000\n', "999"),
    ],
)
def test_files_of_the_caller(content: bytes, says: str):
    with pytest.raises(LocalProtocolError, match=says):
        check_policy(content, "theirs.toml")


@pytest.mark.parametrize("tool", ["run_shell_command(ls", "x(y)"])
def test_bad_short_forms(tool: str):
    with pytest.raises(LocalProtocolError):
        policy_toml((allow(tool),))
