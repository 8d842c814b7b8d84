"""What this program promises, as data. Tests name a promise by `@pytest.mark.requirement(id)`.

Sources: "loop n.m" is a section of the observed wire behaviour, "Bn" an entry of the table of
decisions, "api" the HTTP contract, "case" a security case, "field" a field report, "ours" our own.
`test_requirements.py` checks that every promise has a test, and that every marker has a promise.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requirement:
    text: str
    source: str


REQUIREMENTS: dict[str, Requirement] = {
    # -- the wire -----------------------------------------------------------------------------
    "wire:block-messages": Requirement(
        "Each block of a response is a message; they share the id and the final usage.", "B1"
    ),
    "wire:result": Requirement("A result has every field that a client reads.", "loop 1.5"),
    "wire:session-totals": Requirement(
        "Cost and modelUsage are the session's; usage and num_turns are the run's.", "B23"
    ),
    "wire:tool-result": Requirement(
        "is_error is true on a failure, false where a tool says so, else absent.", "loop 1.4"
    ),
    "api:idempotency-in-progress": Requirement(
        "A repetition of a request that is being served is told to come back.", "api D9"
    ),
    "engine:budget-warning": Requirement(
        "The log says when a run has spent 80 and 95 % of its budget.", "api 7"
    ),
    "engine:service-events": Requirement(
        "The log tells of retries, of changed files, and what a run has used.", "api 7"
    ),
    "output:retracted": Requirement(
        "An output that a fallback took back and did not give again is missing.", "issue 4"
    ),
    "loop:cached-prefix": Requirement(
        "What a request tells is the beginning of the next, byte by byte, on any host.", "B22"
    ),
    "loop:suggestion": Requirement(
        "The next prompt is suggested after the result, before the stream's end.", "issue 4"
    ),
    "loop:suggestion-takeover": Requirement(
        "A run whose host is lost after its result ends as that says.", "ours"
    ),
    "runs:retry": Requirement("A session's newest run is tried again when it failed.", "api 5"),
    "runs:retry-resume": Requirement(
        "A run that met a limit goes on under new limits, without a new prompt.", "api 5"
    ),
    "wire:thinking-tokens": Requirement("An estimate comes just before each thought.", "loop 1.7"),
    "wire:status": Requirement(
        "Each model request is announced to readers of partial messages.", "loop 1.7"
    ),
    "wire:tool-progress": Requirement(
        "Readers of partial messages hear of calls that still run.", "loop 1.7"
    ),
    "wire:informational": Requirement(
        "What a person should know and stops nothing is a message.", "loop 1.7, B24"
    ),
    "wire:rate-limit": Requirement(
        "The provider's rate limit is told when it is near, hit, and far again.", "loop 14.7"
    ),
    "wire:round-trip": Requirement("A message read back is the one that was stored.", "ours"),
    # -- MCP servers --------------------------------------------------------------------------
    "mcp:options": Requirement(
        "A server that cannot work, or may not be reached, is refused with its field.", "case N15"
    ),
    "mcp:run": Requirement(
        "A run has its servers' tools, and leaves no server behind.", "loop 14.5"
    ),
    "mcp:stdio": Requirement(
        "A program runs in the sandbox with its declared environment.", "issue 7"
    ),
    "mcp:web": Requirement("Servers over HTTP are reached through the guard alone.", "case N15"),
    "mcp:secrets": Requirement("A variable is sent to the hosts that may have it alone.", "ours"),
    "mcp:status": Requirement(
        "How each server stands is told; one that is not there holds nobody up.", "field P28"
    ),
    "mcp:required": Requirement(
        "A required server that fails ends the run before its first request.", "field P28"
    ),
    "mcp:names": Requirement("Names of tools shadow no others.", "case M09"),
    "mcp:hostile-lists": Requirement(
        "A tool that the model API would refuse is left out alone.", "case M09"
    ),
    "mcp:pinned": Requirement("A tool that changed is withheld until it is accepted.", "case M09"),
    "mcp:results": Requirement("Content of each kind reaches the model.", "tools 11.2"),
    "mcp:resources": Requirement("Resources are listed and read.", "tools 11.1"),
    "mcp:failures": Requirement(
        "Whatever a server does is a result; the next call connects again.", "case M08"
    ),
    "mcp:bounded": Requirement("Connections are bounded, and end with their run.", "issue 7"),
    "mcp:control": Requirement(
        "Servers are looked at, reconnected and switched from any host.", "issue 7"
    ),
    "mcp:prompts": Requirement(
        "A server's prompts are commands, and its instructions reach the model once.", "tools 11.1"
    ),
    "mcp:elicitation": Requirement(
        "What a server asks in a call is an action; the answer goes back to it.", "issue 7"
    ),
    "mcp:lazy": Requirement("A host whose runs have no servers pays nothing for them.", "ours"),
    "mcp:host-death": Requirement("A host's death leaves no server behind.", "issue 7"),
    "mcp:masked": Requirement(
        "Literal values of a server's headers and variables are used, and never shown.", "ours"
    ),
    "mcp:hostile": Requirement(
        "Whatever a server sends is a result, a bounded list or its own failure.", "case M08"
    ),
    "mcp:own": Requirement(
        "Tenants share no server, and a session at rest keeps none alive.", "issue 7"
    ),
    "mcp:window": Requirement(
        "Tools of servers are among what fills the window, on any host.", "api 7"
    ),
    "mcp:real": Requirement("Servers of other people work.", "issue 7"),
    # -- structured output --------------------------------------------------------------------
    "output:success": Requirement(
        "A success has a valid object; the call that gives it ends the run.", "B11"
    ),
    "output:attempts": Requirement(
        "Invalid calls and answers in words count a run; the last ones are in the error.", "B11"
    ),
    "output:schema": Requirement(
        "A schema that cannot work is refused, with a pointer to what is wrong.", "field P31"
    ),
    "output:bounded": Requirement("A hostile schema takes little time and no memory.", "ours"),
    "output:resume": Requirement(
        "A run cut anywhere and resumed gives the output of the uninterrupted one.", "ours"
    ),
    # -- the loop -----------------------------------------------------------------------------
    "loop:prompts-replayed": Requirement(
        "Prompts are journalled as replays after init, in the batch that takes them.", "B25"
    ),
    "loop:prompts-merge": Requirement("User messages in a row are one to the model.", "loop 5"),
    "loop:results-order": Requirement(
        "Results are journalled as they finish, and sent in the order of the calls.", "B2"
    ),
    "loop:one-result-a-call": Requirement("Every call has exactly one result.", "ours"),
    "loop:max-turns": Requirement(
        "After N rounds of tools their results are journalled, and no request follows.", "B3"
    ),
    "loop:num-turns": Requirement("num_turns counts completed responses of the run.", "B4"),
    "loop:api-failure": Requirement(
        "A failure for good is error_during_execution, after a synthetic notice.", "B5"
    ),
    "loop:refusal": Requirement("A refusal is a success that says so.", "B6"),
    "loop:max-tokens": Requirement("The output limit is a success that says so.", "B7"),
    "loop:pause-turn": Requirement("A paused response goes on as it is.", "B7"),
    "loop:budget": Requirement(
        "At the budget no call runs and no request is made; an answer stays a success.", "B8"
    ),
    "loop:effort": Requirement("Effort is sent when it is set, and only then.", "B9"),
    "loop:thinking": Requirement(
        "Thinking, task budget and betas are sent in the model's terms, and only when set.",
        "B9, loop 14.1",
    ),
    "loop:thinking-refused": Requirement(
        "What the model would refuse of them is a 422 that names the field.", "ours"
    ),
    "loop:abilities": Requirement(
        "What a model takes stands in a table, which a setting extends.", "ours"
    ),
    "loop:thinking-bytes": Requirement(
        "Thoughts go back to the model byte for byte, also after a resume elsewhere.",
        "evidence: security",
    ),
    "loop:thoughts-alone": Requirement(
        "Thoughts that led to nothing are not sent back: the API refuses them at the end.", "B26"
    ),
    "loop:read-only-together": Requirement("Neighbouring read-only calls run together.", "B10"),
    "loop:others-alone": Requirement("State-changing calls run alone and in order.", "B10"),
    "loop:bounded-parallelism": Requirement(
        "Calls of one response run a few at a time.", "case M05"
    ),
    "loop:duplicate-ids": Requirement(
        "Calls that share an id are each answered once, and the next request is valid.", "case M03"
    ),
    "loop:large-response": Requirement("A response of 20 MB is kept whole.", "ours"),
    "loop:odd-names": Requirement(
        "A call by an impossible name is an error result, and the next request is valid.",
        "case M01",
    ),
    "loop:invalid-calls": Requirement(
        "An unknown tool or a wrong input is an error result; permission is not asked.", "loop 4.5"
    ),
    "loop:denied": Requirement(
        "A denied call is a notice, an error result, and an entry of permission_denials.", "loop 11"
    ),
    "loop:retries": Requirement(
        "Failed requests are retried: 0.5 s doubling, jitter, retry-after first.", "B26, loop 4.7"
    ),
    "loop:fallback": Requirement(
        "A model that fails is replaced by the run's fallback; the next run tries it again.",
        "loop 4.3",
    ),
    "loop:empty-response": Requirement("An empty response is nudged once a run.", "B26"),
    "loop:ledger": Requirement("Money is the sum of the ledger, lost responses included.", "B23"),
    "loop:resume": Requirement(
        "A run resumed from any stored prefix ends as the uninterrupted one.", "ours"
    ),
    "loop:subagent": Requirement(
        "A subagent sees its prompt and the project; only its last words return.", "B14"
    ),
    "loop:subagent-messages": Requirement(
        "Its calls are shown with `parent_tool_use_id`; all of it is in its transcript.",
        "loop 13.2",
    ),
    "loop:forward-subagent-text": Requirement(
        "Its text is shown where that is asked for.", "loop 13.2"
    ),
    "loop:subagent-parallel": Requirement(
        "Subagents of one response work side by side, and may begin others.", "loop 13.2"
    ),
    "loop:subagent-cost": Requirement(
        "`usage` is the main thread's; cost and `modelUsage` are the tree's.", "loop 13.5"
    ),
    "loop:subagent-resume": Requirement(
        "A host's death in the middle of a subagent: it goes on as its parent does.", "ADR 16"
    ),
    "loop:subagent-budget": Requirement(
        "The budget covers all threads; subagents that wait are refused at the cap.", "B8"
    ),
    "loop:subagent-unknown": Requirement(
        "A call that begins no subagent says why, and which kinds there are.", "loop 13.1"
    ),
    "loop:subagent-depth": Requirement("Nesting and number of subagents are bounded.", "ours"),
    "loop:subagent-ends": Requirement(
        "However a subagent ends, its call has a result that says so.", "loop 13.2"
    ),
    "loop:subagent-permissions": Requirement(
        "A subagent never has more than its parent; what it is denied the parent lists.", "ours"
    ),
    "loop:subagent-retries": Requirement(
        "A subagent's retry is told as `tool_progress` with `subagent_retry`.", "loop 4.1"
    ),
    "loop:subagent-kinds": Requirement(
        "Model, effort, rounds, skills and MCP servers of a subagent are as its definition says.",
        "loop 13.1",
    ),
    "loop:subagent-stats": Requirement(
        "Results count what became of the session's subagents, whoever ran them.", "loop 1.5"
    ),
    "loop:background-subagents": Requirement(
        "One in the background is a run beside its parent's; its end begins a turn.", "loop 13.3"
    ),
    "loop:background-subagents-stops": Requirement(
        "Cancels reach subagents in the background, unless they are of the turn.", "loop 13.2"
    ),
    "loop:background-subagents-resume": Requirement(
        "A host's death leaves them to another one; each end is told once.", "ADR 16"
    ),
    "loop:background-subagents-budget": Requirement(
        "At the cap they are stopped, and no more are begun.", "B8"
    ),
    "loop:subagent-cancel": Requirement("A cancel reaches every thread.", "field P13"),
    "hooks:subagents": Requirement(
        "SubagentStart adds to what a subagent is told; SubagentStop may send it back.", "loop 12.2"
    ),
    "loop:compaction": Requirement(
        "Near the window's end a summary takes the place of older messages; the newest stay.",
        "B15",
    ),
    "loop:compaction-keeps-pairs": Requirement(
        "A compaction parts no call from its result; the cached prefix stays as it is.", "B15"
    ),
    "loop:compaction-takeover": Requirement(
        "A host that dies while it summarises is followed by one summary.", "ours"
    ),
    "loop:compact-command": Requirement(
        "/compact is a run that makes no answer but a summary.", "loop 8"
    ),
    "loop:too-long": Requirement(
        "A prompt that is too long is compacted and sent again, twice at the most.", "loop 8"
    ),
    "loop:fold-from-compaction": Requirement(
        "A fold from the last compaction on gives what the whole journal gives.", "ours"
    ),
    "loop:resume-open-calls": Requirement(
        "After a crash read-only calls run again; others are told as unknown.", "ours"
    ),
    "loop:interrupt": Requirement(
        "A cancel closes open calls, marks the conversation and ends the run.", "loop 5"
    ),
    "loop:abandoned": Requirement(
        "A run that is given up ends with its real cost and no stop reason.", "B17"
    ),
    "loop:cancel-kills-tools": Requirement("Cancelling kills running tools and waits.", "ours"),
    "loop:cancel-closes-model": Requirement("Cancelling closes the model's stream.", "ours"),
    # -- project context ----------------------------------------------------------------------
    "skill:found": Requirement(
        "Skills and commands of a workspace are found by the names of their places.", "tools 15"
    ),
    "skill:chosen": Requirement(
        "Options choose which skills may be used; a setting source brings them all.", "tools 15"
    ),
    "skill:hostile": Requirement(
        "A workspace's skills lead nowhere else, and are bounded in number and size.", "ours"
    ),
    "skill:load": Requirement(
        "A skill is loaded when it is called: its text once, and again when it differs.", "tools 15"
    ),
    "skill:arguments": Requirement(
        "Arguments stand where the text of a skill wants them.", "tools 15"
    ),
    "skill:announced": Requirement(
        "The model is told of skills by a line each, where the cached prefix stays as it is.",
        "tools 15",
    ),
    "skill:uploaded": Requirement(
        "Skills that a tenant uploads are there for its runs alone, beside those of workspaces.",
        "issue 7.3",
    ),
    "skill:upload-hostile": Requirement(
        "An upload is bounded in size, number and depth, and holds plain files alone.", "ours"
    ),
    "skill:upload-folders": Requirement(
        "An uploaded skill's files are on a host once a run needs them; nobody can write them.",
        "issue 7.3",
    ),
    "skill:fork": Requirement(
        "A skill with `context: fork` is carried out by a subagent; its last words are the result.",
        "tools 15",
    ),
    "skill:grants": Requirement(
        "What a tenant's skill allows counts as approved once it is loaded, on every host; "
        "deny rules beat it.",
        "tools 15",
    ),
    "command:expanded": Requirement(
        "A prompt that begins with a command of the workspace is given to the model as its text.",
        "tools 16",
    ),
    "command:mentions": Requirement(
        "@path in a prompt brings the file, as Read gives it; verbatim_prompts switches it off.",
        "tools 16",
    ),
    "command:outputs": Requirement(
        "A command's text holds the output of commands that only read; others stay words.",
        "tools 16",
    ),
    "command:inert": Requirement(
        "Arguments of a command are words: nothing in them is run or read.", "ours"
    ),
    "command:unknown": Requirement(
        "A command that is not there goes to the model as text, with a word that nothing was run.",
        "tools 16",
    ),
    "command:local": Requirement(
        "/cost and /context are answered by the service, at no cost and unseen by the model.",
        "loop 14.6",
    ),
    "command:clear": Requirement(
        "/clear empties the context; the session, its costs and its list of work go on.", "B29"
    ),
    "context:system-prompt": Requirement(
        "The system prompt is the client's, or ours with what it appends; nothing else.",
        "loop 14.2",
    ),
    "context:injected": Requirement(
        "Each request begins with the project's instructions and the environment.", "loop 14.3"
    ),
    "context:files": Requirement(
        "Instruction files of the root come in order, each with its imports.", "tools 16"
    ),
    "context:imports": Requirement("Imports are found in prose, not in code.", "tools 16"),
    "context:folders": Requirement(
        "A folder's instructions follow the first result that touches it.", "loop 14.3"
    ),
    "context:sources": Requirement("setting_sources chooses the files.", "loop 14.3"),
    "context:walls": Requirement(
        "Instruction files come from the workspace alone, and are bounded.", "case M13"
    ),
    "context:git": Requirement("git state is read without running anything.", "ours"),
    "context:stable-prefix": Requirement(
        "What was sent is repeated byte for byte, by later turns, runs and hosts.", "ours"
    ),
    "context:cache-marks": Requirement(
        "Marks stand on the last system block and tool, and on the last two user messages.", "B22"
    ),
    # -- hooks --------------------------------------------------------------------------------
    "hooks:events": Requirement("Hooks are asked at their points, in order.", "loop 12.2"),
    "hooks:inputs": Requirement("A hook is told of the event, in the SDK's form.", "loop 12.2"),
    "hooks:no-cost": Requirement(
        "Hooks that say nothing change no message and no request.", "ours"
    ),
    "hooks:matching": Requirement(
        "A matcher is names or an expression, and never takes long.", "loop 12.1"
    ),
    "hooks:outputs": Requirement("An output is read strictly; a bad one is told.", "loop 12.3"),
    "hooks:merging": Requirement("deny beats defer beats ask beats allow.", "loop 11.1"),
    "hooks:pre-tool-use": Requirement("PreToolUse decides, and may change the input.", "loop 12.3"),
    "hooks:post-tool-use": Requirement("PostToolUse may replace an output.", "loop 12.3"),
    "hooks:context": Requirement(
        "What hooks add is told behind what was sent, and survives a resume.", "loop 12.3"
    ),
    "hooks:continue-false": Requirement("continue:false ends the run, calls done.", "loop 12.3"),
    "hooks:permission-request": Requirement(
        "A hook may answer an approval; hook or person, the first answer counts.", "loop 12.3"
    ),
    "hooks:defer": Requirement("A deferred call goes on with the next run.", "loop 12.3"),
    "hooks:prompts": Requirement("UserPromptSubmit may keep a prompt out.", "loop 12.3"),
    "hooks:stop": Requirement(
        "Stop may send the model back, nine times in a row.", "loop 12.3, B3"
    ),
    "hooks:timeouts": Requirement("A call whose hook is too slow is not made.", "loop 12.3"),
    "hooks:failures": Requirement(
        "A hook that fails is told of, and blocks only where that was asked for.",
        "loop 12.3, api 9",
    ),
    "hooks:told": Requirement("hook_started and hook_response as asked for.", "loop 12.1"),
    "hooks:recovery": Requirement(
        "A hook whose answer is journalled is not asked again; else it is, under one id.", "ours"
    ),
    "hooks:http": Requirement(
        "HTTP hooks are signed, and reach no private place.", "api 9, case N15"
    ),
    "hooks:commands": Requirement("Commands of the operator run in the sandbox.", "loop 12.3"),
    "hooks:python": Requirement("Installed packages bring hooks.", "ours"),
    "hooks:workspace": Requirement("Files of a workspace bring no hooks.", "case M14"),
    # -- permissions --------------------------------------------------------------------------
    "permissions:modes": Requirement("Each mode allows what it says.", "loop 11, B27"),
    "permissions:ceiling": Requirement(
        "What the operator or the tenant forbids, no option can allow.", "issue 6, api 15.2"
    ),
    "permissions:project": Requirement(
        "Deny and ask rules of a project's settings apply, its allow rules do not.", "loop 11.4"
    ),
    "permissions:hidden": Requirement(
        "Files that may not be read stand in no search.", "loop 11.4"
    ),
    "permissions:auto": Requirement(
        "In auto a small model may let a call through; whatever else it does, a person is asked.",
        "issue 6, loop 11.3",
    ),
    "permissions:audit": Requirement(
        "Every decision about a call is kept with who made it, why, and over which input.",
        "loop 11.5, security 5",
    ),
    "permissions:rules": Requirement(
        "Deny rules beat modes and allow rules; one more never allows more.", "loop 11"
    ),
    # -- options ------------------------------------------------------------------------------
    "options:names": Requirement("Options have the SDK's names, camelCase too.", "api 3"),
    "options:unknown": Requirement("An unknown field is refused by name.", "ours"),
    "options:unsupported": Requirement(
        "Options that mean nothing here are taken at their default, else refused.", "decisions 2"
    ),
    "options:unset": Requirement("Null means not set.", "ours"),
    "options:values": Requirement("Values that make no sense are refused in place.", "ours"),
    "options:layers": Requirement("What a run sets wins over its session.", "api"),
    # -- text ---------------------------------------------------------------------------------
    "text:repaired": Requirement("Text that cannot be stored is repaired visibly.", "ours"),
    # -- the engine, as existing clients know it ----------------------------------------------
    "engine:traces": Requirement(
        "Interrupts, late prompts and continued sessions are as recorded.", "loop 5, 6, 7"
    ),
    "engine:crash-traces": Requirement(
        "The run of a killed host goes on elsewhere, its open calls told as lost.", "B17, loop 7.3"
    ),
    "stream:previews": Requirement(
        "Events of a response come in the provider's order, and its blocks behind them.",
        "B1, loop 1.6",
    ),
    # -- field reports ------------------------------------------------------------------------
    "field:P02": Requirement("Losing the reader does not break the run.", "field P02"),
    "field:P04": Requirement("A polite stop hands a run over as a kill does.", "field P04"),
    "field:P05": Requirement("An accepted run survives a crash before it began.", "field P05"),
    "actions:suggestions": Requirement(
        "A question offers rules that would spare the next one of its like, none that allow all.",
        "loop 11.2",
    ),
    "actions:who-asks": Requirement(
        "An action names the subagent that asks; its version changes once.", "api 8"
    ),
    "actions:races": Requirement(
        "Of answers given at once, on any replicas, one counts; the others are told which.", "api 8"
    ),
    "actions:always": Requirement(
        "What a person always allows goes with the session and its forks, and no further.", "api 8"
    ),
    "actions:exactly-once": Requirement(
        "An approved call is made once, wherever a host is lost; one that did not begin is not lost.",
        "issue 6",
    ),
    "field:P07": Requirement(
        "An approval outlives timers and hosts; the call runs once.", "field P07"
    ),
    "field:P09": Requirement("What is asked is seen by any client.", "field P09"),
    "field:P10": Requirement("Costs of runs add up to their session's.", "field P10"),
    "field:P11": Requirement(
        "A budget that is crossed inside a subagent ends in a result.", "field P11"
    ),
    "field:P12": Requirement("A silent model ends in a result.", "field P12"),
    "field:P13": Requirement("Stop reaches tools, their children and the model.", "field P13"),
    "field:P14": Requirement("A killed host leaves no orphans.", "field P14"),
    "field:P23": Requirement("Quiet streams are not cut by proxies.", "field P23"),
    "field:P30": Requirement("A question reaches a person, or is not offered.", "field P30"),
    "field:P43": Requirement("A client's call is listed, answered once, bounded.", "field P43"),
    "field:P58": Requirement("What nobody answers ends by policy; the model is told.", "field P58"),
    "field:P26": Requirement("Any cursor of the log works; its tail is whole.", "field P26"),
    "field:P27": Requirement("Who joins inside a message gets its beginning.", "field P27, D16"),
    "field:P41": Requirement("After the result the session is not busy.", "field P41"),
    "field:P44": Requirement("A rolling restart loses nothing.", "field P44"),
    "field:P45": Requirement(
        "Retries are told with their wait; a run that gave up can be gone on with.", "field P45"
    ),
    "field:P50": Requirement("Only the explicit call cancels.", "field P50"),
    "field:P53": Requirement("One call replays and follows.", "field P53"),
    "field:P57": Requirement("A reader goes on at another replica.", "field P57"),
    # -- sessions -----------------------------------------------------------------------------
    "sessions:edit": Requirement(
        "A session's title, tags, metadata and options change as asked, once a version.", "api 4"
    ),
    "sessions:lists": Requirement("Lists of sessions are filtered and paged.", "api 3"),
    "sessions:archive": Requirement("An archived session can only be read.", "api 4"),
    "sessions:busy": Requirement(
        "What needs a session at rest is refused while a run is unfinished.", "ours"
    ),
    "sessions:rewind": Requirement(
        "A rewind takes messages out of the conversation and nothing out of the log.", "api 4"
    ),
    "sessions:resume-at": Requirement("A prompt can resume at a message.", "loop 7.1"),
    "sessions:fork-cost": Requirement(
        "A fork's cost is inherited on the wire and named apart in our objects.", "api 21"
    ),
    "sessions:resumed-from": Requirement(
        "A run names the last message before it, also when it had to wait.", "field P33"
    ),
    "sessions:continue": Requirement(
        "Continuing finds the session of a user or a place that was used last.", "loop 7.1"
    ),
    "sessions:races": Requirement(
        "Of two writes to a session on two hosts one wins, and the other is told why.", "field P15"
    ),
    "sessions:search": Requirement(
        "What was said is found by its words, in one's own tenant alone.", "api 7"
    ),
    "sessions:export": Requirement(
        "A session is exported page by page, whole or as its conversation stands.", "api 4"
    ),
    "sessions:import": Requirement(
        "A transcript becomes a session that goes on as the original, or a line is named.",
        "loop 7.5",
    ),
    # -- commands in the background ---------------------------------------------------------
    "tools:background": Requirement(
        "A command in the background outlives its run; its end begins a turn.", "loop 13.3"
    ),
    "tools:long-results": Requirement(
        "A long result is stored, shown in part, and read whole by its message's uuid.",
        "tools 0.5, api 7",
    ),
    "tools:search": Requirement(
        "Deferred tools are told by name, loaded by search, and stay loaded; the cache holds.",
        "tools 10, B28",
    ),
    "tools:tasks": Requirement(
        "The list of tasks is the session's: resumed, moved, forked, read over HTTP.", "api 7"
    ),
    "tools:background-hosts": Requirement(
        "It ends with the host that owns the session, and the next turn is told.", "ours"
    ),
    # -- the web ------------------------------------------------------------------------------
    "web:no-private-address": Requirement(
        "No tool and no client makes the service ask a private address.", "case N08"
    ),
    "web:fetch": Requirement(
        "A page's question is answered by a small model, whose cost is the run's.", "tools 12"
    ),
    "web:search": Requirement(
        "The provider searches; each search has its price in the ledger.", "tools 13"
    ),
    "web:permission": Requirement("Reaching out needs an approval.", "loop 11.3"),
}
