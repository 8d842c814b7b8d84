"""The fields that a trace fixes, by kind of message. What stands on no list is left out."""

from collections.abc import Mapping, Sequence

USAGE_FIELDS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)
MODEL_USAGE_FIELDS = (
    "inputTokens",
    "outputTokens",
    "cacheReadInputTokens",
    "cacheCreationInputTokens",
    "costUSD",
    "contextWindow",
    "maxOutputTokens",
    "canonicalModel",
    "costBasis",
)
RESULT_FIELDS = (
    "subtype",
    "is_error",
    "num_turns",
    "stop_reason",
    "permission_denials",
)
OPTIONAL_RESULT_FIELDS = (
    "terminal_reason",
    "result",
    "errors",
    "api_error_status",
    "structured_output",
    "api_error_type",
    "safety_stops",
    "deferred_tool_use",
)
FAILURE_FIELDS = ("error", "is_api_error_message", "api_error_status", "api_error_type")
LOCAL_COMMAND = "compact"
"""What `local_command` says. Traces only show its key."""
ONLY_NAMED: Mapping[str, object] = {
    "aborted": True,
    "user_message_uuid": "<uuid>",
    "user_message_uuids": ["<uuid>"],
}
"""What traces mostly show by its key alone, with the value that it has then."""
API_ERROR = "connection_failed"
"""What `api_error` says of a lost connection. Traces only show its key."""
NO_SUBAGENTS: Mapping[str, object] = {
    "spawned": 0,
    "requested": {"background": 0, "foreground": 0, "unset": 0},
    "started_in_background": 0,
    "max_depth": 0,
    "spawned_by_subagents": 0,
    "completed": 0,
    "failed": 0,
    "killed": {"parent": 0, "user": 0, "system": 0},
    "refused": {"depth_limit": 0, "concurrency_limit": 0, "budget": 0},
    "by_type": {},
}
"""What results say where there were no subagents. Traces then only show the key."""
SAID = "said"
"""What the `message` of a notice is called here: elsewhere a `message` has content."""
SYSTEM_FIELDS: Mapping[str, Sequence[str]] = {
    "init": ("model", "permissionMode"),
    "thinking_tokens": ("estimated_tokens", "estimated_tokens_delta"),
    "status": ("status",),
    "api_retry": ("attempt", "max_retries", "error_status", "error"),
    "model_fallback": ("trigger", "original_model", "fallback_model", "content"),
    "informational": ("content", "level"),
    "notification": ("key", "priority", "text"),
    "hook_started": ("hook_id", "hook_name", "hook_event"),
    "hook_response": (
        *("hook_id", "hook_name", "hook_event", "output", "stdout", "stderr", "exit_code"),
        "outcome",
    ),
    "model_refusal_no_fallback": (
        "original_model",
        "api_refusal_category",
        "api_refusal_explanation",
        "refused_user_message_uuid",
        "content",
    ),
    "compact_boundary": (),
    "permission_denied": ("tool_name", "tool_use_id", SAID),
    "background_tasks_changed": ("tasks",),
    "task_started": ("task_id", "tool_use_id", "description", "is_backgrounded", "task_type"),
    "task_progress": ("task_id", "tool_use_id", "description", "last_tool_name"),
    "task_updated": ("task_id", "patch"),
    "task_notification": ("task_id", "tool_use_id", "status", "summary"),
}
OPTIONAL_SYSTEM_FIELDS = (
    "agent_id",
    "permissionMode",
    "tag",
    "prevent_continuation",
    "prompt_submit_outcome",
    "compact_result",
    "compact_output_chars",
    "subagent_type",
    "spawn_depth",
    "parent_task_id",
    "prompt",
    "summary_is_report",
    "decision_reason_type",
)
ORIGIN_FIELDS = ("kind", "producer")
TASK_FIELDS = ("task_type", "description")
"""Of each task that is running. The recording does not name them here."""
OF_SUBAGENTS = frozenset({"agent_id", "subagent_type", "task_description"})
"""Of what subagents say and do."""
REQUEST_FIELDS = ("model", "stream", "max_tokens")
OPTIONAL_REQUEST_FIELDS = ("thinking", "output_config")
BLOCK_FIELDS: Mapping[str, Sequence[str]] = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "content"),
}
KEYS: Mapping[str, frozenset[str]] = {
    "conversation_reset": frozenset(
        (
            "new_conversation_id",
            "session_id",
            "timestamp",
            "trigger",
            "type",
            "user_message_uuid",
            "uuid",
        )
    ),
    "system": frozenset(
        (
            "agent_id",
            "agents",
            "apiKeySource",
            "api_refusal_category",
            "api_refusal_explanation",
            "attempt",
            "claude_code_version",
            "compact_metadata",
            "compact_output_chars",
            "compact_result",
            "content",
            "cwd",
            "decision_reason_type",
            "error",
            "error_status",
            "exit_code",
            "fallback_model",
            "hook_event",
            "hook_id",
            "hook_name",
            "key",
            "outcome",
            "output",
            "prevent_continuation",
            "priority",
            "prompt_submit_outcome",
            "stderr",
            "stdout",
            "tag",
            "text",
            "tool_name",
            "tool_use_id",
            "level",
            "logical_parent_uuid",
            "max_retries",
            "mcp_servers",
            "message",
            "model",
            "original_model",
            "output_file",
            "output_style",
            "permissionMode",
            "plugins",
            "refused_user_message_uuid",
            "request_id",
            "retry_delay_ms",
            "run_id",
            "session_id",
            "skills",
            "slash_commands",
            "subagent_type",
            "subtype",
            "tools",
            "trigger",
            "type",
            "usage",
            "user_message_uuids",
            "uuid",
        )
    ),
    "assistant": frozenset(
        (
            *("agent_id", "subagent_type", "task_description"),
            "aborted",
            "api_error",
            "api_error_status",
            "api_error_type",
            "error",
            "is_api_error_message",
            "message",
            "parent_tool_use_id",
            "request_id",
            "session_id",
            "timestamp",
            "tool_use_meta",
            "type",
            "user_message_uuid",
            "user_message_uuids",
            "uuid",
        )
    ),
    "user": frozenset(
        (
            *("agent_id", "subagent_type", "task_description"),
            "isSynthetic",
            "message",
            "parent_tool_use_id",
            "session_id",
            "timestamp",
            "tool_result_meta",
            "tool_use_result",
            "type",
            "uuid",
        )
    ),
    "result": frozenset(
        (
            "api_error",
            "api_error_status",
            "api_error_type",
            "deferred_tool_use",
            "duration_api_ms",
            "duration_ms",
            "errors",
            "is_error",
            "local_command",
            "modelUsage",
            "model_usage_since_last_result",
            "num_turns",
            "origin",
            "permission_denials",
            "result",
            "safety_stops",
            "session_id",
            "stop_reason",
            "structured_output",
            "subagent_stats",
            "subtype",
            "terminal_reason",
            "total_cost_usd",
            "ttft_ms",
            "type",
            "usage",
            "user_message_uuid",
            "user_message_uuids",
            "uuid",
        )
    ),
    "stream_event": frozenset(
        (
            "api_message_id",
            "event",
            "parent_tool_use_id",
            "session_id",
            "ttft_ms",
            "type",
            "uuid",
        )
    ),
    "service_preview_aborted": frozenset(("message_id", "reason", "session_id", "type")),
}
"""Keys whose presence is compared, also where the value is not."""
MESSAGE_KEYS = frozenset(
    ("content", "id", "model", "role", "stop_reason", "stop_sequence", "type", "usage")
)
