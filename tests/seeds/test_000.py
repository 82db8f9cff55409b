"""Document 000 as its own clients use it: its board, its unified protocol, and what it shows of the CLIs; with the
embedded agent and with the real CLIs."""

# ruff: noqa: E501 (lines as the document prints them)
from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.exceptions import ConnectionClosed

import stagedoor
from stagedoor.agents.claude import ClaudeClient, ClaudePermissionMode, ClaudeSessionConfig
from stagedoor.agents.codex import CodexClient, CodexSessionConfig
from stagedoor.agents.codex.config import SandboxMode
from stagedoor.agents.gemini import ApprovalMode, GeminiClient, GeminiSessionConfig
from stagedoor.errors import StagedoorError
from stagedoor.service.config.load import parse
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.testing import ScriptedModel, edit_file, find_cli, read_file, say, shell
from stagedoor.transports.confinement.mechanism import choose
from tests.seeds.client_000 import AgentClient, Board, Json, Refused, adapt, of
from tests.seeds.recording import flags, recorder, words_of

BOUND = 240.0

COVERS: dict[str, str] = {
    "1. Executive Summary": "test_the_board test_a_unified_session",
    "1. Executive Summary | Claude Code": "test_the_board_with_the_real_claude_code",
    "1. Executive Summary | Codex CLI": "test_hooks test_the_arguments_of_codex",
    "1. Executive Summary | Gemini CLI": "test_the_sandbox_of_the_workspace test_the_arguments_of_gemini",
    "1 › Key Findings": "test_the_board test_approval_modes test_a_session_by_its_programs_own_id",
    "2. Transport Layer": "test_the_board test_the_arguments_of_codex test_the_arguments_of_gemini",
    "2.1 Transport Comparison Matrix | Primary Transport": "test_the_board test_the_arguments_of_claude_code",
    "2.1 Transport Comparison Matrix | Headless Mode": "test_the_arguments_of_codex test_the_arguments_of_gemini",
    "2.1 Transport Comparison Matrix | Streaming Method": "test_the_board test_what_the_document_shows_of_the_clis",
    "2.1 Transport Comparison Matrix | Message Framing": "test_the_board test_what_the_document_shows_of_the_clis",
    "2.1 Transport Comparison Matrix | Bidirectional": "test_hooks",
    "2.1 Transport Comparison Matrix | Connection State": "test_the_board test_a_running_session_is_cancelled",
    "2.2 Claude Code Transport": "test_the_board test_the_board_with_the_real_claude_code",
    "2.3 Codex CLI Transport": "test_the_arguments_of_codex",
    "2.4 Gemini CLI Transport": "test_the_arguments_of_gemini",
    "3.1 › Create Session": "test_the_board test_the_board_with_the_real_claude_code",
    "3.1 › Session States": "test_the_board test_a_running_session_is_cancelled",
    "3.2 Event Types": "test_the_board test_a_running_session_is_cancelled",
    "3.3 Event Message Format": "test_the_board test_the_board_with_the_real_claude_code",
    "3.4 › Plan Event": "test_the_board",
    "3.4 › Log Event": "test_the_board",
    "3.4 › Diff Event": "test_the_board test_the_board_with_the_real_claude_code",
    "3.4 › Action Event": "test_the_board test_the_board_with_the_real_claude_code",
    "3.4 › Tool Result Event": "test_the_board test_the_board_with_the_real_claude_code",
    "3.4 › Error Event": "test_the_board",
    "3.5 WebSocket Protocol": "test_the_board test_a_session_that_is_not_there test_who_speaks_what "
    "test_a_session_by_its_programs_own_id",
    "3.6 CLI Arguments": "test_the_arguments_of_claude_code 001::test_the_config_of_claude",
    "3.6 CLI Arguments | `--resume <session-id>`": "test_the_arguments_of_claude_code 001::test_the_config_of_claude",
    "3.6 CLI Arguments | `--dangerously-skip-permissions`": "test_the_arguments_of_claude_code",
    "3.6 CLI Arguments | `--allowedTools <list>`": "test_the_arguments_of_claude_code 001::test_the_config_of_claude",
    "3.6 CLI Arguments | `--model <model>`": "test_the_arguments_of_claude_code 001::test_the_config_of_claude",
    "3.6 CLI Arguments | `--max-turns <n>`": "test_the_arguments_of_claude_code 001::test_the_config_of_claude",
    "3.7 Permission Control": "test_hooks test_approval_modes test_lists_of_tools",
    "4.1 › Start Session": "test_the_arguments_of_codex test_what_the_document_shows_of_the_clis",
    "4.1 › Resume Session": "test_the_arguments_of_codex",
    "4.2 Event Types": "test_what_the_document_shows_of_the_clis",
    "4.3 Item Types": "test_what_the_document_shows_of_the_clis",
    "4.4 Item Payload Examples": "test_what_the_document_shows_of_the_clis",
    "4.4 › Agent Message": "test_what_the_document_shows_of_the_clis",
    "4.4 › Command Execution": "test_what_the_document_shows_of_the_clis",
    "4.4 › File Change": "test_what_the_document_shows_of_the_clis",
    "4.4 › MCP Tool Call": "test_what_the_document_shows_of_the_clis",
    "4.5 CLI Arguments": "test_the_arguments_of_codex test_a_unified_session_of_the_real_codex 001::test_the_config_of_codex",
    "4.5 CLI Arguments | `exec`": "test_the_arguments_of_codex",
    "4.5 CLI Arguments | `--output-jsonl`": "test_the_arguments_of_codex",
    "4.5 CLI Arguments | `--output-schema <file>`": "test_the_arguments_of_codex",
    "4.5 CLI Arguments | `--ask-for-approval`": "test_hooks test_a_unified_session_of_the_real_codex",
    "4.5 CLI Arguments | `--model <name>`": "test_the_arguments_of_codex test_a_unified_session_of_the_real_codex",
    "4.5 CLI Arguments | `--cd <path>`": "test_the_arguments_of_codex",
    "4.5 CLI Arguments | `--full-auto`": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "4.5 CLI Arguments | `--env KEY=val`": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "4.5 CLI Arguments | `resume`": "test_the_arguments_of_codex test_a_unified_session_of_the_real_codex",
    "4.5 CLI Arguments | `resume --last`": "test_a_unified_session",
    "4.6 Permission Control": "test_hooks test_the_arguments_of_codex",
    "4.6 Permission Control | `never`": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "4.6 Permission Control | `untrusted`": "test_hooks test_a_unified_session_of_the_real_codex",
    "4.6 Permission Control | `read-only`": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "4.6 Permission Control | `workspace-write`": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "4.6 Permission Control | `danger-full-access`": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "5.1 › Start Session": "test_the_arguments_of_gemini",
    "5.1 › Resume Session": "test_the_arguments_of_gemini 001::test_gemini",
    "5.2 Event Types": "test_what_the_document_shows_of_the_clis",
    "5.3 Event Message Format": "test_what_the_document_shows_of_the_clis",
    "5.3 › Content Event": "test_what_the_document_shows_of_the_clis",
    "5.3 › Tool Call Event": "test_what_the_document_shows_of_the_clis",
    "5.3 › Result Event": "test_what_the_document_shows_of_the_clis",
    "5.3 › Error Event": "test_what_the_document_shows_of_the_clis",
    "5.4 CLI Arguments": "test_the_arguments_of_gemini",
    "5.4 CLI Arguments | `--prompt <text>`": "test_the_arguments_of_gemini",
    "5.4 CLI Arguments | `--output-format <fmt>`": "test_the_arguments_of_gemini",
    "5.4 CLI Arguments | `--approval-mode <mode>`": "test_the_arguments_of_gemini 001::test_the_config_of_gemini",
    "5.4 CLI Arguments | `--yolo`": "test_the_arguments_of_gemini",
    "5.4 CLI Arguments | `--auto-edit`": "test_the_arguments_of_gemini 001::test_the_config_of_gemini",
    "5.4 CLI Arguments | `--sandbox`": "test_the_arguments_of_gemini",
    "5.4 CLI Arguments | `--model <name>`": "test_the_arguments_of_gemini 001::test_the_config_of_gemini",
    "5.4 CLI Arguments | `--resume`": "test_the_arguments_of_gemini 001::test_gemini",
    "5.4 CLI Arguments | `--allowed-tools <list>`": "test_the_arguments_of_gemini",
    "5.5 Permission Control": "test_the_arguments_of_gemini",
    "5.5 Permission Control | `default`": "test_the_arguments_of_gemini 001::test_gemini",
    "5.5 Permission Control | `auto_edit`": "test_the_arguments_of_gemini 001::test_the_config_of_gemini",
    "5.5 Permission Control | `yolo`": "test_the_arguments_of_gemini",
    "6.1 Terminology Mapping": "test_a_unified_session",
    "6.1 Terminology Mapping | Session ID": "test_a_session_by_its_programs_own_id",
    "6.1 Terminology Mapping | Full Auto Mode": "test_approval_modes test_the_sandbox_of_the_workspace",
    "6.1 Terminology Mapping | Ask Mode": "test_approval_modes test_hooks",
    "6.1 Terminology Mapping | Semi-Auto Mode": "test_approval_modes",
    "6.1 Terminology Mapping | Session State: Active": "test_the_board",
    "6.1 Terminology Mapping | Session State: Done": "test_the_board",
    "6.1 Terminology Mapping | Session State: Error": "test_the_board",
    "6.1 Terminology Mapping | Session State: Cancelled": "test_a_running_session_is_cancelled",
    "6.1 Terminology Mapping | Tool Start": "test_a_unified_session",
    "6.1 Terminology Mapping | Tool Progress": "test_a_unified_session",
    "6.1 Terminology Mapping | Tool Complete": "test_a_unified_session",
    "6.1 Terminology Mapping | File Change": "test_a_unified_session",
    "6.1 Terminology Mapping | Text Output": "test_a_unified_session",
    "6.1 Terminology Mapping | Planning": "test_the_board",
    "6.1 Terminology Mapping | Token Usage": "test_a_unified_session test_what_the_document_shows_of_the_clis",
    "6.2 Feature Comparison": "test_a_unified_session",
    "6.2 Feature Comparison | WebSocket Streaming": "test_the_board",
    "6.2 Feature Comparison | HTTP Polling": "test_the_board test_a_session_by_its_programs_own_id",
    "6.2 Feature Comparison | Stdio Streaming": "test_the_arguments_of_codex test_the_arguments_of_gemini",
    "6.2 Feature Comparison | SSE Transport": "test_a_session_by_its_programs_own_id",
    "6.2 Feature Comparison | Session Persistence": "test_a_session_by_its_programs_own_id",
    "6.2 Feature Comparison | Partial Text Streaming": "test_a_unified_session",
    "6.2 Feature Comparison | Tool Call Lifecycle": "test_a_unified_session test_what_the_document_shows_of_the_clis",
    "6.2 Feature Comparison | Structured Output Schema": "test_the_arguments_of_codex",
    "6.2 Feature Comparison | Sandbox Mode": "test_the_sandbox_of_the_workspace",
    "6.2 Feature Comparison | Token Tracking": "test_a_unified_session",
    "6.2 Feature Comparison | Hook System": "test_hooks",
    "6.3 Event Flow Comparison": "test_a_unified_session test_what_the_document_shows_of_the_clis",
    "6.4 Permission Mode Mapping": "test_approval_modes",
    "6.4 Permission Mode Mapping | Ask for everything": "test_approval_modes test_hooks",
    "6.4 Permission Mode Mapping | Ask for dangerous only": "test_approval_modes",
    "6.4 Permission Mode Mapping | Auto-approve file edits": "test_approval_modes",
    "6.4 Permission Mode Mapping | Auto-approve all": "test_approval_modes test_the_sandbox_of_the_workspace",
    "6.4 Permission Mode Mapping | Sandbox execution": "test_the_sandbox_of_the_workspace",
    "6.4 Permission Mode Mapping | Full system access": "test_the_arguments_of_codex 001::test_the_config_of_codex",
    "7.1 Design Goals": "test_a_unified_session test_the_board",
    "7.2 Unified Event Model": "test_a_unified_session",
    "7.3 Unified Session Model": "test_a_unified_session test_approval_modes test_lists_of_tools "
    "test_the_sandbox_of_the_workspace",
    "7.4 › Session Started": "test_a_unified_session test_the_sandbox_of_the_workspace test_a_unified_session_of_the_real_codex",
    "7.4 › Turn Started": "test_a_unified_session",
    "7.4 › Text Chunk": "test_a_unified_session",
    "7.4 › Tool Started": "test_a_unified_session",
    "7.4 › Tool Progress": "test_a_unified_session",
    "7.4 › Tool Completed": "test_a_unified_session",
    "7.4 › File Changed": "test_a_unified_session",
    "7.4 › Turn Completed": "test_a_unified_session",
    "7.4 › Session Ended": "test_a_unified_session test_errors_of_a_session",
    "7.5 Protocol Adapters": "test_what_the_document_shows_of_the_clis",
    "7.6 › From Claude Code": "test_the_board_with_the_real_claude_code",
    "7.6 › From Claude Code | (WebSocket connect)": "test_a_unified_session",
    '7.6 › From Claude Code | `type: "plan"`': "test_the_board",
    '7.6 › From Claude Code | `type: "log"`': "test_the_board",
    '7.6 › From Claude Code | `type: "action"`': "test_the_board",
    '7.6 › From Claude Code | `type: "toolResult"`': "test_the_board",
    '7.6 › From Claude Code | `type: "diff"`': "test_the_board",
    '7.6 › From Claude Code | `type: "error"`': "test_the_board",
    '7.6 › From Claude Code | `type: "cancelled"`': "test_a_running_session_is_cancelled",
    "7.6 › From Claude Code | (WebSocket close, state: done)": "test_a_unified_session",
    "7.6 › From Codex CLI": "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "thread.started"`': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "turn.started"`': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.started"` (agent_message)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.updated"` (agent_message)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.completed"` (agent_message)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.started"` (command_execution)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.updated"` (command_execution)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.completed"` (command_execution)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "item.*"` (file_change)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "turn.completed"`': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Codex CLI | `type: "turn.failed"`': "test_what_the_document_shows_of_the_clis",
    "7.6 › From Gemini CLI": "test_what_the_document_shows_of_the_clis",
    "7.6 › From Gemini CLI | (first event)": "test_what_the_document_shows_of_the_clis",
    '7.6 › From Gemini CLI | `type: "content"`': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Gemini CLI | `type: "tool_call"`': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Gemini CLI | `type: "result"` (success)': "test_what_the_document_shows_of_the_clis",
    '7.6 › From Gemini CLI | `type: "error"`': "test_what_the_document_shows_of_the_clis",
    "8.1 Unified Event Schema": "test_a_unified_session test_what_the_document_shows_of_the_clis test_hooks",
    "8.2 Session Request Schema": "test_a_unified_session test_errors_of_a_session",
    "8.3 › Claude Code Session Event": "test_the_board test_the_board_with_the_real_claude_code",
    "8.3 › Codex CLI Thread Event": "test_what_the_document_shows_of_the_clis",
    "8.3 › Gemini CLI Stream Event": "test_what_the_document_shows_of_the_clis",
    "9.2 Usage Example": "test_a_unified_session test_a_unified_session_of_the_real_codex",
    "9.3 Transport Selection": "test_the_board test_the_arguments_of_codex test_the_arguments_of_gemini",
    "9.4 Error Handling Strategy": "test_errors_of_a_session",
    "9.5 Backpressure and Flow Control": "test_buffer_and_cancel",
    "9.6 Testing Strategy": "test_what_the_document_shows_of_the_clis",
    "Appendix B: Environment Variables": "test_the_sandbox_of_the_workspace",
    "Appendix B: Environment Variables | API Key": "test_the_sandbox_of_the_workspace",
    "Appendix B: Environment Variables | Model": "test_the_arguments_of_claude_code test_the_arguments_of_gemini 001::test_the_config_of_claude 001::test_the_config_of_codex 001::test_the_config_of_gemini",
}
DIFFERS: dict[str, str] = {
    "1. Executive Summary | Claude Code": "the real CLI speaks JSON lines on stdio; REST and WebSocket are the server's",
    "1. Executive Summary | Codex CLI": "today's thread ids are UUIDs; `sess_…` ids are read as they come",
    "2.1 Transport Comparison Matrix | Primary Transport": "all real CLIs are children on stdio; REST and WebSocket are "
    "the server's, for all of them",
    "2.1 Transport Comparison Matrix | Bidirectional": "`codex exec` and `gemini -p` take nothing after their prompt; "
    "where somebody is asked, Codex's app-server and ACP are used",
    "2.3 Codex CLI Transport": "the flag is `--json` today; the prompt is standard input",
    "2.4 Gemini CLI Transport": "the prompt is standard input: `-p` limits it and shows it to other users",
    "3.6 CLI Arguments | `--dangerously-skip-permissions`": "as `--permission-mode bypassPermissions` with "
    "`--allow-dangerously-skip-permissions`",
    "3.6 CLI Arguments | `--allowedTools <list>`": "to the CLI it is a grant, and sent as such by its native library; "
    "the unified `allowedTools` is a list of all there is",
    "4.1 › Resume Session": "as `exec … resume ID -`",
    "4.5 CLI Arguments | `--output-jsonl`": "the flag is `--json`",
    "4.5 CLI Arguments | `--output-last-message`": "the stream has it: `Result.text`, `stagedoor run --quiet`",
    "4.5 CLI Arguments | `--ask-for-approval`": "`exec` never asks; the app-server does",
    "4.5 CLI Arguments | `--cd <path>`": "as `-C`",
    "4.5 CLI Arguments | `--full-auto`": "the flag is gone; `full_auto` does what it did",
    "4.5 CLI Arguments | `--env KEY=val`": "there is no such flag; `env` is the environment of the process",
    "4.5 CLI Arguments | `resume --last`": "the CLI's `--last` may pick another folder's thread: `sessionId` `last` is "
    "the newest in the folder, for every agent",
    "4.6 Permission Control | `on-request`": "`ApprovalPolicy.ON_REQUEST` of the native library; the unified layer "
    "lets Codex ask about everything and decides by its own rules",
    "4.6 Permission Control | `on-failure`": "Codex knows it no longer; `on-request` took its place and is what we send",
    "5.1 › Resume Session": "by id only: an index may mean another session tomorrow",
    "5.4 CLI Arguments | `--prompt <text>`": "standard input instead: nothing limits or shows it there",
    "5.4 CLI Arguments | `--yolo`": "as `--approval-mode yolo`",
    "5.4 CLI Arguments | `--auto-edit`": "the CLI refuses the flag; `--approval-mode auto_edit` is sent",
    "5.4 CLI Arguments | `--sandbox-image <img>`": "no such flag: `sandbox_image` is sent as `GEMINI_SANDBOX_IMAGE`",
    "5.4 CLI Arguments | `--allowed-tools <list>`": "deprecated in the CLI; becomes policy rules",
    "5.6 Session Storage": "read as they are today (`chats/session-*.jsonl`), by the native library (document 001); "
    "checkpoints are left to the CLI (`settings` passes any key)",
    "6.1 Terminology Mapping | Planning": "thoughts and plans are events of their own",
    "6.2 Feature Comparison | MCP Integration": "`mcpServers` of a session; shown for every agent in tests/live",
    "6.2 Feature Comparison | Git Checkpointing": "Gemini's checkpoints are its own; `stagedoor parallel` and "
    "`worktree` give each session a git worktree and keep the branch",
    "6.4 Permission Mode Mapping | Sandbox execution": "Claude Code's own sandbox, and `confine` around Gemini CLI",
    "7.2 Unified Event Model": "the dialect `lifecycle`; ours has more types",
    "7.5 Protocol Adapters": "matched by shape; nobody inherits anything",
    "7.6 › From Claude Code": "these are the words of the document's own server, not of the CLI: we speak them "
    "(`board`), and translate what the real CLI says",
    '7.6 › From Claude Code | `type: "plan"`': "said for `thinking` and `plan`",
    '7.6 › From Claude Code | `type: "log"`': "said for `text` and whatever has no word of its own",
    '7.6 › From Claude Code | `type: "action"`': "said for `tool_use`",
    '7.6 › From Claude Code | `type: "toolResult"`': "said for `tool_result`",
    '7.6 › From Claude Code | `type: "diff"`': "said for `file_change`",
    '7.6 › From Claude Code | `type: "error"`': "said for `error`; only a fatal one ends anything",
    '7.6 › From Claude Code | `type: "cancelled"`': "said for an interrupted session",
    '7.6 › From Codex CLI | `type: "item.updated"` (agent_message)': "told whole when it is complete: an update may "
    "take back what the one before it said",
    '7.6 › From Codex CLI | `type: "turn.failed"`': "ends the turn (`turnFailed`), not the session, which can go on",
    '7.6 › From Codex CLI | `type: "error"`': "a harmless retry unless `turn.failed` follows",
    '7.6 › From Gemini CLI | `type: "result"` (success)': "ends the turn; the session ends when it is closed",
    '7.6 › From Gemini CLI | `type: "result"` (error)': "ends the turn (`turnFailed`), not the session",
    '7.6 › From Gemini CLI | `type: "error"`': "today a complaint may pass: it is told, and `result` decides",
    "8.3 › Claude Code Session Event": "ids are not UUIDs, as in the document's own examples",
    "9.1 Dart Client Library Architecture": "Python, and rooms by what they know: ARCHITECTURE.md",
    "9.2 Usage Example": "over the wire; in Python `match` instead of `switch`",
    "9.4 Error Handling Strategy": "exceptions for what never began, `error.errorType` in the stream",
    "9.6 Testing Strategy": "recordings and a scripted model instead of mocks",
    "Appendix A: CLI Installation Commands": "`doctor` and every `NotInstalled` name the command; the package is "
    "`@google/gemini-cli`",
    "Appendix B: Environment Variables | Model": "`model` is said on the command line of each",
    "Appendix B: Environment Variables | Debug": "`extra_args` passes any other flag",
}
HEADINGS: dict[str, str] = {
    "CLI Agent Streaming Protocol Specification": "the title",
    "Table of Contents": "contents",
    "2.1 Transport Comparison Matrix": "compared below, row by row",
    "3. Claude Code Protocol": "below",
    "3.1 Session Lifecycle": "below",
    "3.4 Event Payload Schemas": "below",
    "4. Codex CLI Protocol": "below",
    "4.1 Session Lifecycle": "below",
    "5. Gemini CLI Protocol": "below",
    "5.1 Session Lifecycle": "below",
    "6. Semantic Comparison": "below",
    "7. Unified Protocol Specification": "below",
    "7.4 Unified Event Types": "below",
    "7.6 Event Translation Rules": "below",
    "8. JSON Schema Definitions": "below",
    "8.3 Native Protocol Schemas": "below",
    "9. Implementation Notes": "below",
    "Appendix C: References": "links",
    "Appendix C › Official Repositories": "links",
    "Appendix C › Documentation": "links",
}

Script = Callable[..., str]
PROJECT = "my-project"
PROMPT = "Refactor the authentication module"
OLD, NEW = "function login() {}\n", "async function login() {}\n"
EDIT = {"edit_file": {"path": "src/auth.ts", "old": OLD, "new": NEW}}
UNKNOWN = "550e8400-e29b-41d4-a716-446655440000"
FETCHED = "curl -s http://localhost:1/x | sh"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The project of the document's request."""
    project = Path(settings.roots[0]) / PROJECT
    (project / "src").mkdir(parents=True)
    (project / "src" / "auth.ts").write_text(OLD)
    return settings


def real(model: ScriptedModel, settings: Settings, agent: str, home: Path, **more: Any) -> dict[str, AgentSettings]:
    """The settings with a real CLI, in a home of its own."""
    program = find_cli(agent)
    if program is None:
        pytest.skip(f"{agent} is not installed: run `make clis`")
    place = model.environment(agent, cwd=Path(settings.roots[0]) / PROJECT, home=home)
    return {
        **settings.agents,
        agent: AgentSettings(command=str(program), env=place.env, model=place.model, **more),
    }


def bounded(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(work())


# -- §2.2 and §3: the board


async def refactored(server: Any, agent: str, prompt: str) -> None:
    board = Board(server.url, server.headers)
    session_id = await board.create(agent, PROJECT, prompt)
    live = await board.watch(session_id)
    assert await board.watch(session_id) == live  # whoever comes late hears the same
    assert await board.history(session_id, 3) == live
    assert await board.state(session_id) == "done"
    await board.cancel(session_id)
    assert await board.state(session_id) == "done"  # what has ended stays as it is
    assert (server.workspace / PROJECT / "src" / "auth.ts").read_text() == NEW
    shown = {event["type"]: event["payload"] for event in live}
    assert {"log", "action", "diff", "toolResult"} <= set(shown)
    assert (shown["toolResult"]["tool"], shown["toolResult"]["success"]) == (shown["action"]["tool"], True)
    assert shown["diff"]["file"].endswith("src/auth.ts")
    assert "+async function login() {}" in shown["diff"]["diff"]


def test_the_board(serve: Any, settings: Settings, script: Script) -> None:
    """From the request to the end, and a session that fails; the seven types, ``cancelled`` in the next test."""
    how = {"understudy": replace(settings.agents["understudy"], tier="autonomous")}

    async def main() -> None:
        async with serve(dialect="board", agents=how) as server:
            prompt = script([{"think": "Planning edits"}, {"say": "Reading file: src/auth.ts"}, EDIT], [{"say": "ok"}])
            await refactored(server, "understudy", prompt)
            board = Board(server.url, server.headers)
            failed = await board.create("understudy", PROJECT, script([{"http_error": 401}]))
            events = await board.watch(failed)
            assert (events[-1]["type"], await board.state(failed)) == ("error", "failed")

    bounded(main)


@pytest.mark.live
def test_the_board_with_the_real_claude_code(serve: Any, settings: Settings, tmp_path: Path) -> None:
    story = [read_file("src/auth.ts"), edit_file("src/auth.ts", OLD, NEW), say("Done.")]
    with ScriptedModel(story) as model:
        agents = real(model, settings, "claude", tmp_path / "claude")

        async def main() -> None:
            async with serve(dialect="board", agents=agents) as server:
                await refactored(server, "claude", PROMPT)

        bounded(main)
        model.assert_consumed()


def test_a_running_session_is_cancelled(serve: Any, script: Script) -> None:
    """§2.2, §3.1, §3.2: the state, and the event that confirms it, after which the stream closes."""

    async def main() -> None:
        async with serve(dialect="board") as server:
            board = Board(server.url, server.headers)
            session_id = await board.create("understudy", PROJECT, script([{"shell": "echo never"}]))

            async def cancel(event: Json) -> None:
                if event["type"] == "action":
                    assert await board.state(session_id) == "running"
                    await board.cancel(session_id)
                    assert await board.state(session_id) == "cancelled"

            assert (await board.watch(session_id, cancel))[-1]["type"] == "cancelled"

    bounded(main)


def test_a_session_that_is_not_there(serve: Any) -> None:
    """§3.5: the server looks first whether the session exists."""

    async def main() -> None:
        async with serve() as server:
            board = Board(server.url, server.headers)
            with pytest.raises(Refused) as refused:
                await board.state(UNKNOWN)
            assert refused.value.status == 404
            with pytest.raises(ConnectionClosed) as closed:
                await board.watch(UNKNOWN)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4404

    bounded(main)


def test_who_speaks_what(serve: Any, script: Script) -> None:
    """A client that knows of no dialects hears its own: the server's, or that of its device; a query still wins."""

    async def main() -> None:
        async with serve(dialect="board") as server, server.client() as client:
            board = Board(server.url, server.headers)
            session_id = await board.create("understudy", PROJECT, script([{"say": "Hello"}]))
            spoken = {event["type"] for event in await board.watch(session_id)}
            code = (await client.post("/api/pairing", json={"scope": "run", "dialect": "lifecycle"})).json()["code"]
            paired = (await client.post("/api/pair", json={"code": code})).json()
            device = AgentClient(server.url, {"Authorization": f"Bearer {paired['token']}"}, "understudy")
            unified = await device.events(session_id)
            page = (await device.call("GET", f"/api/sessions/{session_id}/events"))["events"]
            assert page == unified
            await device.call("PATCH", f"/api/devices/{paired['deviceId']}", json={"dialect": ""})
            page = (await device.call("GET", f"/api/sessions/{session_id}/events"))["events"]
            assert {event["type"] for event in page} == spoken
            named = (await client.get(f"/api/sessions/{session_id}/events", params={"dialect": "stagedoor"})).json()
            assert named["events"][0]["type"] == "init"

    bounded(main)


def test_a_session_by_its_programs_own_id(serve: Any, settings: Settings, script: Script) -> None:
    """§5.1, §6.1: the ids of the CLIs are ids here too, at every endpoint."""
    env = settings.agents["understudy"].env

    async def main() -> None:
        async with stagedoor.open("understudy", cwd=Path(settings.roots[0]), env=env) as session:
            async for _ in session.send(script([{"say": "By itself"}])):
                pass
        async with serve(dialect="board") as server:
            board = Board(server.url, server.headers)
            native: list[Json] = []
            async for event in board.messages(session.id):
                native.append(event)
            assert "By itself" in [event["payload"].get("line") for event in native]
            assert await board.history(session.id, 100) == native
            assert await board.state(session.id) == "done"
            for door in ("stream", "poll", "export"):
                async with server.client() as client:
                    answer = await client.get(f"/api/sessions/{session.id}/{door}")
                    assert (answer.status_code, "By itself" in answer.text) == (200, True)
            resumed = AgentClient(server.url, server.headers, "understudy")
            again = await resumed.resume_session(session.id, script([{"say": "Again"}]))
            assert await board.state(again) in ("running", "done")

    bounded(main)


# -- §7 to §9: the unified protocol


def test_a_unified_session(serve: Any, script: Script) -> None:
    """§9.2 from the request to the resumed session, with every field of ``SessionConfig`` that this agent knows."""

    async def main() -> None:
        async with serve(dialect="lifecycle") as server:
            client = AgentClient(server.url, server.headers, "understudy")
            config = {
                "projectId": PROJECT, "workingDirectory": str(server.workspace / PROJECT), "model": "understudy-mini",
                "approvalMode": "autoAll", "sandboxMode": "none", "allowedTools": ["shell", "edit_file"],
                "blockedTools": ["web_fetch"],
            }  # fmt: skip
            prompt = script([{"say": "Hello"}, {"shell": "echo one; echo two"}], [EDIT], [{"say": "Done."}])
            session_id = await client.create_session(prompt, **config)
            events = await client.events(session_id)
            started, *_, ended = events
            assert (started["agentType"], started["config"]) == ("understudy", {"agentType": "understudy", **config})
            assert ended["reason"] == "completed"
            [turn], [completed] = of(events, "turnStarted"), of(events, "turnCompleted")
            assert (turn["turnNumber"], turn["prompt"], completed["turnNumber"]) == (1, prompt, 1)
            text = "".join(event["content"] for event in of(events, "textChunk"))
            assert (text, of(events, "textChunk")[-1]["isComplete"]) == ("HelloDone.", True)
            tools = [(event["toolName"], event["arguments"]) for event in of(events, "toolStarted")]
            assert tools[0] == ("shell", {"command": "echo one; echo two"})
            assert [event["success"] for event in of(events, "toolCompleted")] == [True, True]
            assert "one\ntwo" in of(events, "toolCompleted")[0]["result"]
            shown = "".join(event.get("output", "") for event in of(events, "toolProgress"))
            assert shown.startswith("one\n")
            assert "one\ntwo\n".startswith(shown)  # what comes with the end may stand in the result alone
            [change] = of(events, "fileChanged")
            assert (change["filePath"].endswith("src/auth.ts"), change["changeType"]) == (True, "modified")
            assert "+async function login() {}" in change["diff"]
            again = await client.events(await client.resume_session(session_id, script([{"say": "Again"}])))
            assert again[0]["resumed"] is True
            assert again[0]["config"] == started["config"]
            last = await client.resume_session("last", script([{"say": "Once more"}]), projectId=PROJECT)
            assert (await client.events(last))[0]["nativeSessionId"] == started["nativeSessionId"]
            with pytest.raises(Refused, match="runs understudy, not codex"):
                await AgentClient(server.url, server.headers, "codex").resume_session(session_id, "Go on")

    bounded(main)


@pytest.mark.live
def test_a_unified_session_of_the_real_codex(serve: Any, settings: Settings, tmp_path: Path) -> None:
    """§7.3, §9.2: each field of ``SessionConfig``, by what the program asks of its model and what is there afterwards;
    the client answers; and the session is resumed by its id."""
    story = [shell("touch not"), shell("touch made"), say("Done."), shell("touch later"), say("Again.")]
    with ScriptedModel(story) as model:
        agents = real(model, settings, "codex", tmp_path / "home")

        async def main() -> None:
            async with serve(dialect="lifecycle", agents=agents) as server:
                client = AgentClient(server.url, server.headers, "codex")

                async def answer(event: Json) -> None:
                    if (question := event.get("permissionRequest")) is not None:
                        refused = "not" in question["target"]
                        body = {"decision": "deny" if refused else "allow"}
                        await client.call("POST", f"/api/permissions/{question['requestId']}", json=body)

                config = {
                    "projectId": PROJECT, "workingDirectory": str(server.workspace / PROJECT), "model": "gpt-5.5",
                    "approvalMode": "ask", "sandboxMode": "workspaceWrite", "allowedTools": ["shell", "read"],
                    "blockedTools": ["read"],
                }  # fmt: skip
                session_id = await client.create_session("First.", **config)
                events = await client.events(session_id, answer)
                assert events[0]["config"] == {"agentType": "codex", **config}
                assert [event["denied"] for event in of(events, "toolFailed")] == [True]
                assert {request.model for request in model.requests} == {"gpt-5.5"}
                resumed = await client.resume_session(session_id, "Second.")
                again = await client.events(resumed, answer)
                assert again[0]["config"] == events[0]["config"]
                assert "First." in json.dumps(model.requests[-1].body)
                made = {path.name for path in (server.workspace / PROJECT).iterdir()}
                assert made == {"src", "made", "later"}

        bounded(main)
        model.assert_consumed()


ASKED = {
    "ask": ["edit_file", "shell", "shell"], "askDangerous": [FETCHED], "autoEdit": ["shell", "shell"], "autoAll": [],
}  # fmt: skip


def test_approval_modes(serve: Any, script: Script) -> None:
    """§6.4, §7.3: who is asked about what. In ``autoAll`` nothing of the third call is run but a refused connection."""
    prompt = script([EDIT, {"shell": "echo harmless > made"}, {"shell": FETCHED}], [{"say": "ok"}])

    async def play(client: AgentClient, mode: str) -> list[Json]:
        session_id = await client.create_session(prompt, projectId=PROJECT, approvalMode=mode)

        async def refuse(event: Json) -> None:
            if (question := event.get("permissionRequest")) is not None:
                with contextlib.suppress(Refused):  # a rule has decided
                    await client.call("POST", f"/api/permissions/{question['requestId']}", json={"decision": "deny"})

        return await client.events(session_id, refuse)

    async def main() -> None:
        async with serve(dialect="lifecycle") as server:
            client = AgentClient(server.url, server.headers, "understudy")
            for mode, asked in ASKED.items():
                (server.workspace / PROJECT / "src" / "auth.ts").write_text(OLD)
                events = await play(client, mode)
                assert events[0]["config"]["approvalMode"] == mode
                resolved = [event for event in events if "permissionResolved" in event]
                by_client = {event["toolId"] for event in resolved if event["permissionResolved"]["by"] == "client"}
                tools = [event for event in of(events, "toolStarted") if event["toolId"] in by_client]
                assert [tool["target" if mode == "askDangerous" else "toolName"] for tool in tools] == asked, mode
                failed = [event["toolId"] for event in of(events, "toolFailed") if event["denied"]]
                assert sorted(failed) == sorted(tool["toolId"] for tool in tools), mode

    bounded(main)


LISTS: list[tuple[Json, list[str]]] = [
    ({"allowedTools": ["write_file"]}, ["a.txt"]),
    ({"blockedTools": ["shell"]}, ["a.txt"]),
    ({"allowedTools": ["write_file", "shell"], "blockedTools": ["write_file"]}, ["made"]),
]


def test_lists_of_tools(serve: Any, script: Script) -> None:
    """§7.3: only those, and never those, whatever the approval mode."""
    prompt = script([{"shell": "touch made"}, {"write_file": {"path": "a.txt", "content": "x"}}], [{"say": "ok"}])

    async def main() -> None:
        async with serve(dialect="lifecycle") as server:
            client = AgentClient(server.url, server.headers, "understudy")
            for number, (lists, made) in enumerate(LISTS):
                folder = server.workspace / str(number)
                folder.mkdir()
                events = await client.run(prompt, approvalMode="autoAll", workingDirectory=str(folder), **lists)
                assert lists.items() <= events[0]["config"].items()
                assert [path.name for path in folder.iterdir()] == made, lists

    bounded(main)


@pytest.mark.live
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_the_sandbox_of_the_workspace(serve: Any, settings: Settings, tmp_path: Path, agent: str) -> None:
    """§6.4, §7.3 ``workspaceWrite``: each program writes in the workspace and nowhere else, and nobody is asked."""
    if agent == "claude" and not (shutil.which("bwrap") and shutil.which("socat")):
        pytest.skip("bubblewrap or socat is not installed, and Claude Code's sandbox needs both")
    try:
        asyncio.run(choose())
    except StagedoorError as missing:
        pytest.skip(str(missing))
    # A short home: Claude Code's sandbox makes sockets in it, whose names may have 107 letters. And a place outside that
    # is not in the temporary folder, where Codex lets a workspace's commands write.
    with tempfile.TemporaryDirectory(prefix="h") as home, tempfile.TemporaryDirectory(dir="/var/tmp") as outside:
        tries = [shell("touch inside"), shell(f"touch {outside}/made"), say("Done.")]
        sandboxed(serve, settings, agent, tries, Path(home))
        assert list(Path(outside).iterdir()) == []


def sandboxed(serve: Any, settings: Settings, agent: str, tries: list[Any], home: Path) -> None:
    with ScriptedModel(tries) as model:
        agents = real(model, settings, agent, home)
        keys = {"claude": "ANTHROPIC_API_KEY", "codex": "SCRIPTED_API_KEY", "gemini": "GEMINI_API_KEY"}
        assert agents[agent].env[keys[agent]]

        async def main() -> None:
            async with serve(dialect="lifecycle", agents=agents) as server:
                client = AgentClient(server.url, server.headers, agent)
                config = {"projectId": PROJECT, "approvalMode": "autoAll", "sandboxMode": "workspaceWrite"}
                events = await client.run("Try it.", **config)
                shown = events[0]["config"]
                assert (shown["approvalMode"], shown["sandboxMode"]) == ("autoAll", "workspaceWrite")
                # Of a command that its sandbox stops at once, Codex may tell the model alone.
                assert len(of(events, "toolStarted")) in ((1, 2) if agent == "codex" else (2,))
                assert (server.workspace / PROJECT / "inside").exists(), of(events, "toolCompleted")

        bounded(main)


HOOKS = '{"hooks": {"beforeToolCall": "./scripts/approve-tool.sh", "afterToolCall": "./scripts/log-tool.sh"}}'
"""§3.7, word for word, and its other half."""
APPROVE = """#!/bin/sh
read -r call
case "$call" in
  *'touch not'*) echo '{"decision": "deny", "message": "not that"}' ;;
  *'touch made'*) echo '{"decision": "allow"}' ;;
  *) sleep 600 ;;
esac
"""


@pytest.mark.parametrize(
    "agent", ["understudy", *(pytest.param(name, marks=pytest.mark.live) for name in ("claude", "codex"))]
)
def test_hooks(serve: Any, settings: Settings, tmp_path: Path, script: Script, agent: str) -> None:
    """§3.7: the user's script decides, nobody else is asked; another one is told; no answer in time is no."""
    scripts, log = tmp_path / "scripts", tmp_path / "log"
    scripts.mkdir()
    for name, text in (("approve-tool.sh", APPROVE), ("log-tool.sh", f"#!/bin/sh\ncat >> {log}\n")):
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    hooks = parse(HOOKS, file=tmp_path / "config.yaml").settings
    commands = ["touch not", "touch made", "touch never"]
    with ScriptedModel([*map(shell, commands), say("Done.")]) as model:
        agents = settings.agents if agent == "understudy" else real(model, settings, agent, tmp_path / "home")
        prompt = script(*([{"shell": command}] for command in commands), [{"say": "ok"}])

        async def main() -> None:
            changes = {"before_tool_call": hooks.before_tool_call, "after_tool_call": hooks.after_tool_call}
            async with serve(dialect="lifecycle", agents=agents, hook_timeout=8, **changes) as server:
                client = AgentClient(server.url, server.headers, agent)
                events = await client.run(
                    prompt if agent == "understudy" else "Go.", projectId=PROJECT, approvalMode="ask"
                )
                failed = {event["toolId"]: event["error"] for event in of(events, "toolFailed")}
                assert len(of(events, "toolCompleted")) == 1
                assert len(failed) == 2
                reasons = " ".join(
                    event["permissionResolved"].get("message", "") for event in events if "permissionResolved" in event
                )
                assert "not that" in reasons
                assert "did not answer within 8 s" in reasons
            project = Path(settings.roots[0]) / PROJECT
            assert sorted(path.name for path in project.iterdir()) == ["made", "src"]

        bounded(main)
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(call["hook"], call["toolName"], call["status"]) for call in calls] == [
        ("afterToolCall", "shell", "denied"), ("afterToolCall", "shell", "success"), ("afterToolCall", "shell", "denied"),
    ]  # fmt: skip


def test_errors_of_a_session(serve: Any, script: Script) -> None:
    """§9.4: native errors as unified ones."""

    async def main() -> None:
        async with serve(dialect="lifecycle") as server:
            client = AgentClient(server.url, server.headers, "understudy")
            for status, kind in ((401, "authenticationFailed"), (408, "timeout"), (500, "connectionFailed")):
                events = await client.run(script([{"http_error": status}]))
                error = of(events, "error")[-1]
                assert (error["errorType"], error["agentType"], bool(error["message"])) == (kind, "understudy", True)
                assert [event["turnNumber"] for event in of(events, "turnFailed")] == [1]
                assert events[-1]["reason"] == ("timeout" if kind == "timeout" else "failed")
            with pytest.raises(Refused) as unknown:
                await client.resume_session("sess_abc123", "Go on")
            assert unknown.value.status == 404
            for wrong in ({"approvalMode": "yolo"}, {"maxTurns": 1001}, {"sandboxMode": "docker"}):
                with pytest.raises(Refused) as refused:
                    await client.create_session("Hello", **wrong)
                assert (refused.value.status, next(iter(wrong)) in str(refused.value)) == (400, True)

    bounded(main)


def test_buffer_and_cancel(tmp_path: Path, script: Script) -> None:
    """§9.5: ``EventBuffer`` and ``CancellableSession``."""

    async def main() -> None:
        env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "home")}
        token = stagedoor.CancelToken()
        prompt = script([{"say": "Hello"}, {"shell": "sleep 600"}])
        run = stagedoor.run("understudy", prompt, cwd=tmp_path, env=env, tier="autonomous", cancel=token)
        types: list[str] = []
        async for batch in stagedoor.EventBuffer(run, size=2, flush_interval=0.01):
            assert len(batch) <= 2
            types += [event.type for event in batch]
            if "tool_use" in types:
                token.cancel()
        assert (types[0], types[-1]) == ("init", "done")

    bounded(main)


# -- §4 and §5: what the CLIs print, as the document shows it, and what is sent to them

STORIES: dict[str, tuple[str, str, str, list[Json]]] = {
    "§4.1, §4.4 agent message, §9.6": (
        "codex", "exec",
        """
        {"type":"thread.started","thread_id":"sess_123"}
        {"type":"turn.started"}
        {"type":"item.started","item_type":"agent_message"}
        {"type":"item.updated","item_type":"agent_message","content":"I'll help"}
        {"type":"item.updated","item_type":"agent_message","content":"I'll help you refactor"}
        {"type":"item.completed","item_type":"agent_message","status":"success"}
        {"type":"turn.completed","usage":{"input_tokens":100,"output_tokens":50}}
        """,
        [
            {"type": "sessionStarted", "agentType": "codex", "nativeSessionId": "sess_123"},
            {"type": "turnStarted", "turnNumber": 1},
            {"type": "textChunk", "content": "I'll help you refactor", "isComplete": True},
            {"type": "turnCompleted", "usage": {"inputTokens": 100, "outputTokens": 50, "totalTokens": 150}},
            {"type": "sessionEnded", "reason": "completed"},
        ],
    ),
    "§4.4 command execution": (
        "codex", "exec",
        r"""
        {"type":"thread.started","thread_id":"sess_123"}
        {"type":"turn.started"}
        {"type":"item.started","item_type":"command_execution"}
        {"type":"item.updated","item_type":"command_execution","command_line":"npm test","aggregated_output":""}
        {"type":"item.updated","item_type":"command_execution","command_line":"npm test","aggregated_output":"[PASS]\n"}
        {"type":"item.completed","item_type":"command_execution","status":"success","exit_code":0}
        {"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}
        """,
        [
            {"type": "toolStarted", "toolName": "shell", "target": "npm test"},
            {"type": "toolProgress", "output": "[PASS]\n"},
            {"type": "toolCompleted", "success": True, "result": "[PASS]\n"},
            {"type": "turnCompleted", "turnNumber": 1},
        ],
    ),
    "§4.4 file change and MCP tool call, turn.failed": (
        "codex", "exec",
        """
        {"type":"thread.started","thread_id":"sess_123"}
        {"type":"item.started","item_type":"file_change"}
        {"type":"item.updated","item_type":"file_change","changes":[{"path":"src/auth.ts","before":"a","after":"b"}]}
        {"type":"item.completed","item_type":"file_change","status":"success"}
        {"type":"item.started","item_type":"mcp_tool_call"}
        {"type":"item.updated","item_type":"mcp_tool_call","tool_name":"query","tool_input":{"sql":"S"},"tool_result":""}
        {"type":"item.updated","item_type":"mcp_tool_call","tool_name":"query","tool_result":"[Alice]"}
        {"type":"item.completed","item_type":"mcp_tool_call","status":"success"}
        {"type":"turn.failed","error":{"message":"no more"}}
        """,
        [
            {"type": "toolStarted", "toolName": "edit_file", "target": "src/auth.ts"},
            {"type": "fileChanged", "filePath": "src/auth.ts", "changeType": "modified", "before": "a", "after": "b"},
            {"type": "toolCompleted", "success": True},
            {"type": "toolStarted", "arguments": {"sql": "S"}},
            {"type": "toolCompleted", "success": True, "result": "[Alice]"},
            {"type": "error", "message": "no more", "fatal": True},
            {"type": "turnFailed", "error": "no more"},
            {"type": "sessionEnded", "reason": "failed"},
        ],
    ),
    "§5.3 content, tool call, result": (
        "gemini", "stream-json",
        """
        {"type":"content","value":"Analyzing the codebase"}
        {"type":"tool_call","name":"write_file","args":{"file_path":"./src/auth.ts","content":"x"}}
        {"type":"result","status":"success","stats":{"total_tokens":350,"input_tokens":100,"output_tokens":250,"thought_tokens":0,"cache_tokens":0,"tool_tokens":0,"duration_ms":5000,"tool_calls":2},"timestamp":"2025-12-03T10:30:00Z"}
        """,
        [
            {"type": "sessionStarted", "agentType": "gemini"},
            {"type": "textChunk", "content": "Analyzing the codebase"},
            {"type": "toolStarted", "toolName": "write_file", "target": "./src/auth.ts"},
            {"type": "fileChanged", "filePath": "./src/auth.ts", "after": "x"},
            {"type": "toolCompleted", "toolName": "write_file", "success": True},
            {"type": "turnCompleted", "usage": {"inputTokens": 100, "outputTokens": 250, "totalTokens": 350}, "durationMs": 5000},
            {"type": "sessionEnded", "reason": "completed"},
        ],
    ),
    "§5.3 error": (
        "gemini", "stream-json",
        '{"type":"error","status":"error","error":{"code":"INVALID_CHUNK","message":"ended with invalid chunk"}}',
        [
            {"type": "error", "message": "ended with invalid chunk"},
            {"type": "turnFailed", "error": "ended with invalid chunk"},
            {"type": "sessionEnded", "reason": "failed"},
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_what_the_document_shows_of_the_clis(story: str) -> None:
    """§4.4, §5.3, §7.5, §7.6, §8.3, §9.6."""
    agent, driver, lines, expected = STORIES[story]
    adapted = adapt(agent, driver, [line.strip() for line in lines.strip().splitlines()])
    rest = iter(adapted)
    for event in expected:
        assert any(event.items() <= other.items() for other in rest), (event, adapted)


def test_the_arguments_of_claude_code(tmp_path: Path) -> None:
    """§3.6."""
    wrapper, record = recorder(tmp_path)
    config = ClaudeSessionConfig(
        permission_mode=ClaudePermissionMode.bypass_permissions, allow_dangerously_skip_permissions=True,
        allowed_tools=("Read", "Glob"), model="claude-sonnet-4-5", max_turns=3,
    )  # fmt: skip

    async def main() -> None:
        client = ClaudeClient(tmp_path, str(wrapper), {"HOME": str(tmp_path)})
        assert {
            f"--resume {UNKNOWN}", "--allow-dangerously-skip-permissions", "--allowedTools Read,Glob",
            "--model claude-sonnet-4-5", "--max-turns 3",
        } <= await words_of(client, record, config, resumed=UNKNOWN)  # fmt: skip

    bounded(main)


@pytest.mark.live
def test_the_arguments_of_codex(tmp_path: Path) -> None:
    """§2.3, §4.1, §4.5, §4.6."""
    if (program := find_cli("codex")) is None:
        pytest.skip("codex is not installed: run `make clis`")
    wrapper, record = recorder(tmp_path, program)

    async def main() -> None:
        async with ScriptedModel([say('{"a": 1}')]) as model:
            place = model.environment("codex", home=tmp_path / "home", cwd=tmp_path)
            client = CodexClient(tmp_path, wrapper, place.env)
            config = CodexSessionConfig(
                model=place.model, full_auto=True,
                output_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
            )  # fmt: skip
            async with await client.create_session("First.", config) as session:
                await session.wait()
            words = flags(record)
            resumed = await words_of(client, record, config, resumed=session.session_id)
        assert {"exec", "--json", "--output-schema", f"-C {tmp_path}", "-"} <= words
        assert any("workspace-write" in word for word in words)
        assert "First." not in words  # the prompt is standard input
        assert f"resume {session.session_id}" in resumed
        for mode in SandboxMode:
            words = await words_of(client, record, CodexSessionConfig(sandbox_mode=mode))
            assert any(mode.value in word for word in words), mode

    bounded(main)


def test_the_arguments_of_gemini(tmp_path: Path) -> None:
    """§2.4, §5.1, §5.4, §5.5."""
    wrapper, record = recorder(tmp_path)
    client = GeminiClient(tmp_path, str(wrapper), {"HOME": str(tmp_path)})

    async def main() -> None:
        for mode in (ApprovalMode.DEFAULT, ApprovalMode.AUTO_EDIT, ApprovalMode.YOLO):
            config = GeminiSessionConfig(
                approval_mode=mode, sandbox=True, model="gemini-2.5-flash", allowed_tools=("read_file",)
            )
            received = await words_of(client, record, config)
            assert {
                "--output-format stream-json", f"--approval-mode {mode.value}", "--model gemini-2.5-flash", "--sandbox",
                "--policy",
            } <= received  # fmt: skip
            assert "Go." not in received  # the prompt is standard input
        assert f"--resume {UNKNOWN}" in await words_of(client, record, GeminiSessionConfig(), resumed=UNKNOWN)

    bounded(main)
