// The events of `stagedoor.unified.events`, written by `python -m tools.event_types`. Not served: for the type checker.

declare namespace Unified {
  interface Header {
    agent: string;
    sessionId: string;
    seq: number;
    timestamp: number;
    turn?: number;
    parentToolUseId?: string | null;
    native?: any;
  }

  interface Init extends Header {
    type: "init";
    model?: string;
    cwd?: string;
    tools?: string[];
    capabilities?: Record<string, any>;
    agentVersion?: string;
    nativeSessionId?: string;
    resumed: boolean;
    tier?: string;
    approval?: string;
    sandbox?: string;
    allowedTools?: string[] | null;
    disallowedTools?: string[];
    maxTurns?: number | null;
    projectId?: string;
  }

  interface TurnStarted extends Header {
    type: "turn_started";
    prompt: string;
  }

  interface TextDelta extends Header {
    type: "text_delta";
    text: string;
    messageId?: string;
  }

  interface Text extends Header {
    type: "text";
    text: string;
    messageId?: string;
  }

  interface ThinkingDelta extends Header {
    type: "thinking_delta";
    text: string;
  }

  interface Thinking extends Header {
    type: "thinking";
    text: string;
  }

  interface ToolUse extends Header {
    type: "tool_use";
    toolUseId: string;
    name:
      | "edit_file"
      | "find_files"
      | "mcp"
      | "other"
      | "plan"
      | "question"
      | "read_file"
      | "search_content"
      | "shell"
      | "task"
      | "web_fetch"
      | "web_search"
      | "write_file";
    nativeName?: string;
    input?: Record<string, any>;
    operation: "execute" | "network" | "other" | "read" | "write";
    target?: string;
    risk: "high" | "low" | "medium";
    description?: string;
  }

  interface ToolProgress extends Header {
    type: "tool_progress";
    toolUseId: string;
    output: string;
  }

  interface ShownImage {
    mediaType: string;
    content: string;
  }

  interface ToolResult extends Header {
    type: "tool_result";
    toolUseId: string;
    name:
      | "edit_file"
      | "find_files"
      | "mcp"
      | "other"
      | "plan"
      | "question"
      | "read_file"
      | "search_content"
      | "shell"
      | "task"
      | "web_fetch"
      | "web_search"
      | "write_file";
    status: "denied" | "error" | "success";
    output: string;
    exitCode?: number | null;
    durationMs?: number | null;
    images?: ShownImage[];
  }

  interface FileChange extends Header {
    type: "file_change";
    path: string;
    change: "created" | "deleted" | "modified" | "moved";
    diff?: string;
    before?: string | null;
    after?: string | null;
    toolUseId?: string;
  }

  interface PlanItem {
    text: string;
    status: "completed" | "in_progress" | "pending";
  }

  interface Plan extends Header {
    type: "plan";
    items: PlanItem[];
  }

  interface PermissionRequest extends Header {
    type: "permission_request";
    requestId: string;
    toolName:
      | "edit_file"
      | "find_files"
      | "mcp"
      | "other"
      | "plan"
      | "question"
      | "read_file"
      | "search_content"
      | "shell"
      | "task"
      | "web_fetch"
      | "web_search"
      | "write_file";
    toolUseId?: string;
    nativeName?: string;
    operation: "execute" | "network" | "other" | "read" | "write";
    target?: string;
    risk: "high" | "low" | "medium";
    riskReasons?: string[];
    input?: Record<string, any>;
    description?: string;
    choices?: string[];
    expiresAt?: number | null;
    automatic?: boolean;
    rememberedAs?: Record<string, any>[];
  }

  interface PermissionResolved extends Header {
    type: "permission_resolved";
    requestId: string;
    decision: "allow" | "deny";
    remember: "always" | "once" | "session";
    by: "callback" | "client" | "interrupt" | "policy" | "timeout";
    message?: string;
  }

  interface Usage {
    inputTokens: number;
    outputTokens: number;
    cachedTokens: number;
    reasoningTokens: number;
    totalTokens: number;
    costUsd: number | null;
  }

  interface UsageReport extends Header {
    type: "usage";
    inputTokens: number;
    outputTokens: number;
    cachedTokens: number;
    reasoningTokens: number;
    totalTokens: number;
    costUsd?: number | null;
    session: Usage;
  }

  interface Retry extends Header {
    type: "retry";
    attempt: number;
    maxAttempts?: number | null;
    delayMs?: number | null;
    reason?: string;
  }

  interface ProjectFile {
    path: string;
    kind: string;
    isText?: boolean;
  }

  interface Notice extends Header {
    type: "notice";
    level: "error" | "info" | "warning";
    code: string;
    message: string;
    nativeSessionId?: string | null;
    trusted?: boolean | null;
    projectFiles?: ProjectFile[];
    images?: ShownImage[];
    attachments?: string[];
  }

  interface Error extends Header {
    type: "error";
    kind:
      | "authentication_failed"
      | "connection_failed"
      | "context_overflow"
      | "model_not_found"
      | "permission_denied"
      | "protocol_error"
      | "quota_exceeded"
      | "rate_limited"
      | "session_not_found"
      | "timeout"
      | "tool_execution_failed"
      | "unknown";
    message: string;
    fatal: boolean;
  }

  interface TurnCompleted extends Header {
    type: "turn_completed";
    status: "error" | "interrupted" | "max_budget" | "max_turns" | "success";
    usage: Usage;
    costUsd?: number | null;
    durationMs?: number | null;
    result?: string;
    structured?: any;
  }

  interface Done extends Header {
    type: "done";
    status: "error" | "interrupted" | "max_budget" | "max_turns" | "success";
    result?: string;
    usage: Usage;
    costUsd?: number | null;
    durationMs?: number | null;
    toolUses: number;
  }

  interface Unrecognized extends Header {
    type: "unrecognized";
    raw: string;
    why: string;
  }

  interface FilesRestored extends Header {
    type: "files_restored";
    beforeTurn: number;
    checkpoint: string;
    redo: string;
    files: number;
    paths?: string[];
    notRestored?: string[];
    who?: string;
  }

  type Event =
    | Init
    | TurnStarted
    | TextDelta
    | Text
    | ThinkingDelta
    | Thinking
    | ToolUse
    | ToolProgress
    | ToolResult
    | FileChange
    | Plan
    | PermissionRequest
    | PermissionResolved
    | UsageReport
    | Retry
    | Notice
    | Error
    | TurnCompleted
    | Done
    | Unrecognized
    | FilesRestored;
}
