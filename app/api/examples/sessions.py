"""Answers about sessions and the rest, for the OpenAPI document. A test holds them to their schemas."""

from app.api.examples.runs import Json

SESSION: Json = {
    "object": "session",
    "id": "0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f",
    "status": "idle",
    "title": "Say hello",
    "tags": ["ci"],
    "user": "ext-user-77",
    "active_run_id": None,
    "queued_runs": 0,
    "pending_actions": 0,
    "last_seq": 11,
    "last_message_uuid": "91b7372b-2e86-45be-91e6-6531a97cd7a6",
    "num_runs": 1,
    "cost": {"session_usd": "0.007538", "inherited_usd": "0.000000"},
    "usage": {
        "input_tokens": 7393,
        "output_tokens": 29,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    },
    "options": {"model": "demo", "allowed_tools": ["Read"], "permission_mode": "acceptEdits"},
    "workspace": {"source": "empty"},
    "parent_id": None,
    "forked_at": None,
    "metadata": {},
    "archived_at": None,
    "created_at": "2026-12-01T08:30:14.383Z",
    "updated_at": "2026-12-01T08:30:14.448Z",
    "etag": '"1"',
}

RUNNING_SESSION: Json = {
    **SESSION,
    "status": "running",
    "active_run_id": "run_01JDZX5E5V8M2Q4T6Y8A0C2E4G",
    "last_seq": 2,
    "last_message_uuid": None,
    "cost": {"session_usd": "0.000000", "inherited_usd": "0.000000"},
    "usage": {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    },
    "updated_at": "2026-12-01T08:30:14.383Z",
}

IMPORTED_SESSION: Json = {
    **SESSION,
    "tags": [],
    "user": None,
    "last_seq": 5,
    "last_message_uuid": "a51c6fd6-9c58-4c69-a5fa-db0eea6fdac0",
    "num_runs": 0,
    "cost": {"session_usd": "0.000000", "inherited_usd": "0.007538"},
    "usage": {
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    },
    "options": {},
    "created_at": "2026-12-01T08:30:16.890Z",
    "updated_at": "2026-12-01T08:30:16.890Z",
    "imported": {"messages": 4, "skipped_lines": 2},
}

MESSAGE: Json = {
    "session_id": "0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f",
    "uuid": "91c73cd1-fa76-4589-a68b-bb027b57b72e",
    "type": "assistant",
    "message": {
        "id": "msg_demo_1f2e3d4c_1",
        "type": "message",
        "role": "assistant",
        "model": "demo",
        "content": [
            {
                "type": "tool_use",
                "id": "toolu_demo_1f2e3d4c_1_0",
                "name": "Write",
                "input": {"file_path": "hello.txt", "content": "hello\n"},
            }
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3648,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 19,
            "output_tokens_details": {"thinking_tokens": 0},
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        },
    },
    "parent_tool_use_id": None,
    "timestamp": "2026-12-01T08:30:14.400Z",
}

LOG_MESSAGE: Json = {
    "seq": 7,
    "at": "2026-12-01T08:30:14.436Z",
    "run_id": "run_01JDZX5E5V8M2Q4T6Y8A0C2E4G",
    "kind": "message",
    "stored_output": None,
    "data": {
        "session_id": "0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f",
        "uuid": "3d040599-7700-4894-a8c8-fb6c221971af",
        "type": "user",
        "message": {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_demo_1f2e3d4c_1_0",
                    "content": "Created hello.txt. Its content is now exactly what you gave; there is no need to read it back.",
                }
            ],
        },
        "parent_tool_use_id": None,
        "timestamp": "2026-12-01T08:30:14.433Z",
        "tool_use_result": {
            "type": "create",
            "filePath": "hello.txt",
            "content": "hello\n",
            "structuredPatch": [],
            "originalFile": None,
            "userModified": False,
        },
        "tool_result_meta": [
            {
                "id": "toolu_demo_1f2e3d4c_1_0",
                "permission_decision": {
                    "decision": "accept",
                    "source": "config",
                    "reason_type": "mode",
                },
            }
        ],
    },
}

LOG_EVENT: Json = {
    "seq": 3,
    "at": "2026-12-01T08:30:14.383Z",
    "run_id": "run_01JDZX5E5V8M2Q4T6Y8A0C2E4G",
    "kind": "service",
    "data": {
        "seq": 3,
        "type": "run.started",
        "session_id": "0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f",
        "run_id": "run_01JDZX5E5V8M2Q4T6Y8A0C2E4G",
        "at": "2026-12-01T08:30:14.379Z",
        "attempt": 1,
    },
}

SUBAGENT: Json = {
    "tool_use_id": "toolu_demo_1f2e3d4c_6_0",
    "agent_id": "a640b87fc4658433a",
    "subagent_type": "Explore",
    "description": "Look around",
    "depth": 1,
    "parent_agent_id": None,
    "run_id": "run_01JDZX5E5V8M2Q4T6Y8A0C2E4G",
    "own_run_id": None,
    "status": "completed",
    "started_at": "2026-12-01T08:30:16.729Z",
    "ended_at": "2026-12-01T08:30:16.770Z",
    "total_tokens": 1261,
    "tool_uses": 1,
}

TASK: Json = {
    "id": "1",
    "subject": "Fix the tests",
    "description": "All of them",
    "active_form": None,
    "status": "pending",
    "owner": None,
    "blocks": [],
    "blocked_by": [],
    "metadata": {},
}

SERVER: Json = {
    "name": "time",
    "status": "connected",
    "type": "stdio",
    "error": None,
    "tools": ["mcp__time__now"],
    "tools_hash": "5f9d99235a7e16a2",
    "withheld": [],
    "server": {"name": "time", "version": "1.2.0"},
    "prompts": [],
    "resources": 0,
    "tool_tokens": {"mcp__time__now": 58},
}

CONTEXT: Json = {
    "model": "demo",
    "totalTokens": 3755,
    "maxTokens": 167000,
    "rawMaxTokens": 200000,
    "percentage": 1.9,
    "isAutoCompactEnabled": True,
    "autoCompactThreshold": 167000,
    "categories": [
        {"name": "System prompt", "tokens": 237, "color": "purple"},
        {"name": "Messages", "tokens": 212, "color": "blue"},
        {"name": "Free space", "tokens": 163245, "color": "white"},
        {"name": "Autocompact buffer", "tokens": 33000, "color": "orange"},
    ],
    "messageBreakdown": {
        "userMessageTokens": 13,
        "assistantMessageTokens": 12,
        "toolCallTokens": 29,
        "toolResultTokens": 42,
        "attachmentTokens": 0,
        "summaryTokens": 0,
    },
    "systemPromptSections": [{"name": "part 1", "tokens": 237}],
    "systemTools": [{"name": "Read", "tokens": 217}],
    "memoryFiles": [],
    "mcpTools": [],
    "agents": [],
    "gridRows": [],
    "apiUsage": {
        "input_tokens": 7393,
        "output_tokens": 29,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    },
}

SEARCH_HIT: Json = {
    "session_id": SESSION["id"],
    "session_title": SESSION["title"],
    "seq": 9,
    "run_id": LOG_MESSAGE["run_id"],
    "uuid": SESSION["last_message_uuid"],
    "type": "assistant",
    "at": SESSION["updated_at"],
    "excerpt": "I wrote it to hello.txt.",
}

AUDIT_ENTRY: Json = {
    "object": "audit_entry",
    "type": "tool_decision",
    "at": "2026-12-01T08:30:14.436Z",
    "session_id": "0e6f2f5e-8d3c-4b9a-9f6e-2b1a7c3d4e5f",
    "run_id": "run_01JDZX5E5V8M2Q4T6Y8A0C2E4G",
    "seq": 7,
    "tool_use_id": "toolu_demo_1f2e3d4c_1_0",
    "tool_name": "Write",
    "decision": "allow",
    "decided_by": {"kind": "mode", "name": "acceptEdits"},
    "reason": "mode",
    "input_sha256": "5f9d99235a7e16a20679fc9a0e87f21f7cf5418b947e8a110c596fa7b27726aa",
}

SKILL: Json = {
    "object": "skill",
    "name": "review",
    "description": "Review a change",
    "version": "b503c93323030a117cd3277d4f2bb6e65c1f7944a57518178acf9baa475ddc25",
    "allowed_tools": [],
    "for_model": True,
    "for_user": True,
    "created_at": "2026-12-01T08:30:14.789Z",
    "updated_at": "2026-12-01T08:30:14.789Z",
    "files": [{"path": "SKILL.md", "size_bytes": 42, "is_executable": False}],
}

META: Json = {
    "version": "0.1.0",
    "api": "v1",
    "wire": {"claude_code_version": "0.1.0 (Treadle)", "claude_agent_sdk": "0.2.189"},
    "features": [
        "runs",
        "sessions",
        "fork",
        "rewind",
        "continue",
        "export",
        "import",
        "search",
        "sse",
        "previews",
        "cancel",
        "compact",
        "actions",
        "mcp",
        "hooks",
        "skills",
    ],
    "sandbox": "bubblewrap",
    "models": {
        "default": "claude-sonnet-5",
        "aliases": {
            "sonnet": "claude-sonnet-5-5",
            "opus": "claude-opus-5-5",
            "haiku": "claude-haiku-5-5",
        },
        "demo": "demo",
        "provider": "configured",
    },
    "limits": {
        "default_max_turns": 100,
        "ceiling_max_turns": 1000,
        "default_max_budget_usd": "5.00",
        "ceiling_max_budget_usd": "100.00",
        "max_body_bytes": 10000000,
        "queue_per_session": 20,
    },
    "retention": {"log": "kept", "resume": "any cursor of the log works"},
}
