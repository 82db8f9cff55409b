"""From a config to arguments and thread parameters."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from stagedoor.agents.codex.commands import Accept, Decision
from stagedoor.agents.codex.config import (
    ApprovalPolicy,
    CodexSessionConfig,
    DriverName,
    GranularApproval,
    SandboxMode,
    chosen_driver,
)
from stagedoor.agents.codex.launch import approval_policy, launch, start_error, thread_params, toml, turn_params
from stagedoor.agents.codex.questions import Question
from stagedoor.errors import (
    AgentRefused,
    LaunchError,
    LocalProtocolError,
    NotSupported,
    SessionNotFound,
    StagedoorError,
)
from stagedoor.transports.launch import SCRATCH, EndInput, Exited, Launch, Signal

QUIET = ["-c", "analytics.enabled=false"]
FEATURES = ["-c", "features.plugins=false", "-c", "features.unbounded_connection_retries=false"]
TRUST = ["-c", 'projects={"/repo" = {"trust_level" = "untrusted"}}']
HEAD = ["exec", "--json", "--skip-git-repo-check", "-C", "/repo"]
WRITE = ["-s", "workspace-write"]


def yes(question: Question) -> Decision:
    return Accept()


def argv(config: CodexSessionConfig, **more: Any) -> list[str]:
    plan = launch(config, cwd="/repo", executable="/codex", prompt="hi", **more)
    assert plan.argv[0] == "/codex"
    return list(plan.argv[1:])


@pytest.mark.parametrize(
    ("config", "more", "expected"),
    [
        (CodexSessionConfig(), {}, [*HEAD, *WRITE, *QUIET, *FEATURES, *TRUST, "-"]),
        (
            CodexSessionConfig(model="gpt-5.5", sandbox_mode=SandboxMode.READ_ONLY),
            {"resume": "T"},
            [*HEAD, "-s", "read-only", *QUIET, *FEATURES, *TRUST, "-m", "gpt-5.5", "resume", "T", "-"],
        ),
        (
            CodexSessionConfig(),
            {"fork": "T", "images": ("a.png", "b.png")},
            [*HEAD, *WRITE, *QUIET, *FEATURES, *TRUST, "fork", "-i", "a.png", "-i", "b.png", "T", "-"],
        ),
        (
            CodexSessionConfig(),
            {"images": ("a.png",)},
            ["exec", "-i", "a.png", *HEAD[1:], *WRITE, *QUIET, *FEATURES, *TRUST, "-"],
        ),
        (CodexSessionConfig(sandbox_mode=None), {}, [*HEAD, *QUIET, *FEATURES, *TRUST, "-"]),
        (CodexSessionConfig(sandbox_mode=None, full_auto=True), {}, [*HEAD, *WRITE, *QUIET, *FEATURES, *TRUST, "-"]),
        (
            CodexSessionConfig(dangerously_bypass_approvals_and_sandbox=True),
            {},
            [*HEAD, "--dangerously-bypass-approvals-and-sandbox", *QUIET, *FEATURES, *TRUST, "-"],
        ),
        (CodexSessionConfig(approve_for_me=True), {}, [*HEAD, "--approve-for-me", *QUIET, *FEATURES, *TRUST, "-"]),
        (
            CodexSessionConfig(project_trust="trusted"),
            {"trust_roots": ("/repo", '/r"oot')},
            [
                *HEAD,
                *WRITE,
                *QUIET,
                *FEATURES,
                "-c",
                'projects={"/repo" = {"trust_level" = "trusted"}, "/r\\"oot" = {"trust_level" = "trusted"}}',
                "-",
            ],
        ),
        (
            CodexSessionConfig(
                reasoning_effort="high",
                reasoning_summary="auto",
                web_search=True,
                network_access=True,
                plan_tool=True,
                model_provider="mine",
                developer_instructions='be "nice"\n',
                mcp_servers={"s": {"command": "python3", "args": ["a b", "c"], "required": True}},
                config={"tool_output_token_limit": 5},
                enable=("goals",),
                disable=("apps",),
            ),
            {},
            [
                *HEAD,
                *WRITE,
                *QUIET,
                *FEATURES,
                *["-c", "features.apps=false"],
                *["-c", "features.goals=true"],
                *TRUST,
                *["-c", "sandbox_workspace_write.network_access=true"],
                *["-c", "tools.update_plan.enabled=true"],
                *["-c", 'model_reasoning_effort="high"'],
                *["-c", 'model_reasoning_summary="auto"'],
                *["-c", 'web_search="live"'],
                *["-c", 'model_provider="mine"'],
                *["-c", 'developer_instructions="be \\"nice\\"\\n"'],
                *["-c", 'mcp_servers.s={"command" = "python3", "args" = ["a b", "c"], "required" = true}'],
                *["-c", "tool_output_token_limit=5"],
                "-",
            ],
        ),
        (
            CodexSessionConfig(
                profile="p",
                add_dirs=("/x", "/y"),
                ephemeral=True,
                worktree=True,
                ignore_user_config=True,
                ignore_rules=True,
                strict_config=True,
                require_git_repo=True,
                web_search="cached",
                extra_args=("--color", "never"),
            ),
            {},
            [
                *["exec", "--json", "-C", "/repo"],
                *WRITE,
                *QUIET,
                *FEATURES,
                *TRUST,
                *["-c", 'web_search="cached"'],
                *["-p", "p", "--add-dir", "/x", "--add-dir", "/y"],
                *["--ephemeral", "--worktree", "--ignore-user-config", "--ignore-rules", "--strict-config"],
                *["--color", "never", "-"],
            ],
        ),
    ],
)
def test_exec_arguments(config: CodexSessionConfig, more: dict[str, Any], expected: list[str]) -> None:
    assert argv(config, **more) == expected


def test_the_prompt_is_standard_input_and_files_are_private() -> None:
    config = CodexSessionConfig(output_schema={"type": "object"}, base_instructions="Be brief.", env={"A": "b"})
    plan = launch(config, cwd="/repo", executable="/codex", prompt="-x é\ud83d", native=False)
    instructions = f'model_instructions_file="{SCRATCH}/instructions.md"'
    schema = ["--output-schema", f"{SCRATCH}/output-schema.json"]
    assert plan == Launch(
        argv=("/codex", *HEAD, *WRITE, *QUIET, *FEATURES, *TRUST, "-c", instructions, *schema, "-"),
        cwd="/repo",
        env={"A": "b"},
        stdin=b"-x \xc3\xa9?",
        files={"output-schema.json": b'{"type": "object"}', "instructions.md": b"Be brief."},
        stop=(Signal(signal.SIGINT, 3.0, group=True), Signal(signal.SIGTERM, 1.0, group=True)),
    )


def test_the_app_server_is_never_sent_sigint() -> None:
    config = CodexSessionConfig(driver="app-server", strict_config=True, extra_args=("--x",), env={"A": "b"})
    assert launch(config, cwd="/repo", executable="/codex") == Launch(
        argv=("/codex", "app-server", *QUIET, *FEATURES, "--strict-config", "--x"),
        cwd="/repo",
        env={"A": "b"},
        stop=(EndInput(3.0), Signal(signal.SIGTERM, 2.0)),
    )


APP: DriverName = "app-server"
PROJECTS = {"projects": {"/repo": {"trust_level": "untrusted"}}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            CodexSessionConfig(driver=APP),
            {"cwd": "/repo", "approvalPolicy": "never", "config": PROJECTS, "sandbox": "workspace-write"},
        ),
        (
            CodexSessionConfig(can_use_tool=yes, sandbox_mode=None),
            {"cwd": "/repo", "approvalPolicy": "untrusted", "config": PROJECTS},
        ),
        (
            CodexSessionConfig(driver=APP, dangerously_bypass_approvals_and_sandbox=True),
            {"cwd": "/repo", "approvalPolicy": "never", "config": PROJECTS, "sandbox": "danger-full-access"},
        ),
        (
            CodexSessionConfig(
                driver=APP,
                approve_for_me=True,
                model="m",
                model_provider="p",
                base_instructions="b",
                developer_instructions="d",
                ephemeral=True,
                add_dirs=("/x",),
                network_access=True,
                reasoning_effort="low",
                mcp_servers={"s": {"url": "http://localhost"}},
                config={"k": [1]},
            ),
            {
                "cwd": "/repo",
                "approvalPolicy": "on-request",
                "config": PROJECTS
                | {
                    "sandbox_workspace_write.network_access": True,
                    "model_reasoning_effort": "low",
                    "mcp_servers.s": {"url": "http://localhost"},
                    "k": [1],
                    "sandbox_workspace_write.writable_roots": ["/x"],
                },
                "sandbox": "workspace-write",
                "model": "m",
                "modelProvider": "p",
                "baseInstructions": "b",
                "developerInstructions": "d",
                "approvalsReviewer": "auto_review",
                "ephemeral": True,
            },
        ),
    ],
)
def test_thread_parameters(config: CodexSessionConfig, expected: dict[str, Any]) -> None:
    assert thread_params(config, cwd="/repo") == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CodexSessionConfig(driver=APP), {}),
        (CodexSessionConfig(driver=APP, output_schema={"type": "object"}), {"outputSchema": {"type": "object"}}),
        (
            CodexSessionConfig(plan_mode=True, reasoning_effort="high"),
            {
                "collaborationMode": {
                    "mode": "plan",
                    "settings": {"model": "m", "reasoning_effort": "high", "developer_instructions": None},
                }
            },
        ),
    ],
)
def test_turn_parameters(config: CodexSessionConfig, expected: dict[str, Any]) -> None:
    assert turn_params(config, model="m") == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CodexSessionConfig(), "never"),
        (CodexSessionConfig(can_use_tool=yes), "untrusted"),
        (CodexSessionConfig(can_use_tool=yes, full_auto=True), "on-request"),
        (CodexSessionConfig(full_auto=True), "never"),
        (CodexSessionConfig(approval_policy=ApprovalPolicy.ON_FAILURE), "on-request"),
        (CodexSessionConfig(approval_policy=ApprovalPolicy.UNTRUSTED), "untrusted"),
        (
            CodexSessionConfig(approval_policy=GranularApproval(rules=False)),
            {
                "granular": {
                    "sandbox_approval": True,
                    "rules": False,
                    "mcp_elicitations": True,
                    "request_permissions": True,
                    "skill_approval": True,
                }
            },
        ),
    ],
)
def test_approval_policies(config: CodexSessionConfig, expected: object) -> None:
    assert approval_policy(config) == expected


@pytest.mark.parametrize(
    ("config", "driver"),
    [
        (CodexSessionConfig(), "exec"),
        (CodexSessionConfig(approval_policy=ApprovalPolicy.NEVER), "exec"),
        (CodexSessionConfig(can_use_tool=yes), APP),
        (CodexSessionConfig(approval_policy=ApprovalPolicy.ON_REQUEST), APP),
        (CodexSessionConfig(plan_mode=True), APP),
        (CodexSessionConfig(driver=APP), APP),
    ],
)
def test_the_driver_follows_from_what_is_wanted(config: CodexSessionConfig, driver: DriverName) -> None:
    assert chosen_driver(config) == driver


@pytest.mark.parametrize(
    ("config", "error", "sentence"),
    [
        (
            CodexSessionConfig(driver="exec", can_use_tool=yes),
            NotSupported,
            "cannot ask for approval: use driver='app-server'",
        ),
        (
            CodexSessionConfig(driver="exec", approval_policy=ApprovalPolicy.UNTRUSTED),
            NotSupported,
            "cannot ask for approval: use driver='app-server'",
        ),
        (CodexSessionConfig(driver="exec", plan_mode=True), NotSupported, "no plan mode"),
        (CodexSessionConfig(driver=APP, worktree=True), NotSupported, "no worktree: use driver='exec'"),
        (CodexSessionConfig(driver=APP, profile="p"), NotSupported, "no profile"),
        (CodexSessionConfig(driver=APP, ignore_rules=True), NotSupported, "no ignore_rules"),
        (
            CodexSessionConfig(dangerously_bypass_approvals_and_sandbox=True, can_use_tool=yes),
            LocalProtocolError,
            "asks no questions",
        ),
        (
            CodexSessionConfig(network_access=True, sandbox_mode=SandboxMode.READ_ONLY),
            LocalProtocolError,
            "needs sandbox_mode=SandboxMode.WORKSPACE_WRITE",
        ),
        (CodexSessionConfig(mcp_servers={"a.b": {}}), LocalProtocolError, "'a.b'"),
        (CodexSessionConfig(config={"k": object()}), LocalProtocolError, "cannot hold"),
    ],
)
def test_bad_combinations_are_refused(config: CodexSessionConfig, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        launch(config, cwd="/repo", executable="/codex", prompt="hi")


@pytest.mark.parametrize("prompt", [None, "", " \n"])
def test_exec_needs_a_prompt(prompt: str | None) -> None:
    with pytest.raises(LocalProtocolError, match="prompt"):
        launch(CodexSessionConfig(), cwd="/repo", executable="/codex", prompt=prompt)


def test_resume_and_fork_exclude_each_other() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be used together"):
        argv(CodexSessionConfig(), resume="a", fork="b")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        (0.5, "0.5"),
        ("a\\b\n\x7f\x00é", '"a\\\\b\\n\\u007f\\u0000é"'),
        (["x", 1], '["x", 1]'),
        (("x",), '["x"]'),
        ({"a b": {"c": []}}, '{"a b" = {"c" = []}}'),
    ],
)
def test_toml(value: object, text: str) -> None:
    assert toml(value) == text


@pytest.mark.parametrize(
    ("exited", "kind", "sentence"),
    [
        (
            Exited(1, "Error: thread/resume: thread/resume failed: no rollout found for thread id x (code -32600)\n"),
            SessionNotFound,
            "session 'x' not found in Codex: list_sessions() shows those of this folder",
        ),
        (Exited(1, "Error: already has an active writer\n"), AgentRefused, "in use by another Codex process"),
        (
            Exited(1, "Not inside a trusted directory and --skip-git-repo-check was not specified.\n"),
            LaunchError,
            "git init",
        ),
        (
            Exited(
                2, "error: unexpected argument '--x' found\n\nUsage: codex\n\nFor more information, try '--help'.\n"
            ),
            LaunchError,
            "unexpected argument '--x' found",
        ),
        (Exited(1, "WARNING: proceeding\nError: bad config\n"), LaunchError, "Error: bad config"),
        (Exited(-9, ""), LaunchError, "no error message"),
    ],
)
def test_failures_to_start_say_why(exited: Exited, kind: type[StagedoorError], sentence: str) -> None:
    error = start_error(exited, "x")
    assert type(error) is kind
    assert sentence in str(error)
