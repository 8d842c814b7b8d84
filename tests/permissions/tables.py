"""The tables of calls and rules, as data: modes by calls, allow rules, deny rules."""

from collections.abc import Mapping, Sequence

from app.domain.options import AgentOptions
from app.domain.permissions import HookVerdict, Scene
from app.domain.tools import ToolCall, ToolSpec
from app.permissions.decide import decide
from app.permissions.decision import Ask, Decision, Verdict, unanswered
from app.permissions.permissions import Permissions
from app.permissions.place import Place

SPECS: Mapping[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        ToolSpec("Read", "", {}, read_only=True),
        ToolSpec("Glob", "", {}, read_only=True),
        ToolSpec("Grep", "", {}, read_only=True),
        ToolSpec("Edit", "", {}, edits_files=True),
        ToolSpec("Write", "", {}, edits_files=True),
        ToolSpec("Bash", "", {}, starts_process=True),
        ToolSpec("WebFetch", "", {}, read_only=True, reaches_out=True),
        ToolSpec("WebSearch", "", {}, read_only=True, reaches_out=True),
        ToolSpec("Agent", "", {}, is_internal=True),
        ToolSpec("TaskCreate", "", {}, is_internal=True),
        ToolSpec("Skill", "", {}, is_internal=True),
        ToolSpec("mcp__m__ro", "", {}, read_only=True),
        ToolSpec("mcp__m__rw", "", {}),
        ToolSpec("mcp__n__ro", "", {}, read_only=True),
        ToolSpec("mcp__a_b__x", "", {}),
    )
}
PLACE = Place(root="/workspace", home="/home/agent")
Call = tuple[str, Mapping[str, object]]


def bash(command: str) -> Call:
    return "Bash", {"command": command}


def file(tool: str, path: str) -> Call:
    key = "path" if tool in ("Glob", "Grep") else "file_path"
    return tool, {key: path, **({"pattern": "x"} if key == "path" else {})}


def decided(
    call: Call,
    *,
    place: Place = PLACE,
    hook: HookVerdict | None = None,
    cwd: str | None = None,
    **options: object,
) -> Decision:
    name, given = call
    permissions = Permissions.of(AgentOptions.model_validate(options), Permissions(place=place))
    return decide(ToolCall("a", name, given), SPECS[name], permissions, Scene(cwd, hook))


def letter(decision: Decision | Verdict) -> str:
    """A: allowed, D: denied, ?: asked."""
    return {"Allow": "A", "Deny": "D", "Ask": "?"}[type(decision).__name__]


def answer(call: Call, **options: object) -> Verdict:
    """What becomes of a call where nobody is asked."""
    found = decided(call, **options)  # type: ignore[arg-type]  # options
    return unanswered(found) if isinstance(found, Ask) else found


def each(*commands: str) -> Sequence[Call]:
    return [bash(command) for command in commands]


def bars(text: str) -> list[str]:
    """Part texts at bars; a broken bar stands for one within."""
    return [part.replace("¦", "|") for part in text.split("|")]


MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto")
MATRIX: Sequence[tuple[str, Sequence[Call]]] = [
    ("AAAAAA", [file(t, p) for t in ("Read", "Glob", "Grep") for p in ("a.txt", "/workspace/b")]),
    ("??ADA?", [file(t, "/etc/passwd") for t in ("Read", "Glob", "Grep")]),
    ("?A?DAA", [file(t, "a.txt") for t in ("Edit", "Write")]),
    ("???DA?", [file(t, "/etc/x") for t in ("Edit", "Write")]),
    (
        "???DA?",
        [
            file(t, p)
            for t in ("Edit", "Write")
            for p in (".claude/settings.json", ".git/hooks/x", ".bashrc", "sub/.git/config")
        ],
    ),
    (
        "AAAAAA",
        each(
            *bars("ls|cat f|echo x|pwd|date|whoami|which ls|ps|head f|tail -n 5 f|wc -l f|sort f"),
            *bars("find . -name x|grep -r x .|jq .a f|sed -n 1,5p f|test -f x|true|sleep 1"),
            *bars("git status|git log --oneline|timeout 1 ls|[ -f x ] && ls|! ls|uniq f"),
            *bars("ls >> /dev/null|ls 2>/dev/null|ls 2>&1|cat < f"),
            "ls && echo x",
            "ls | wc -l",
            "ls\npwd",
            "if true; then ls; fi",
            "cd sub && ls",
            "ls -la \\\n  sub",
            "cat <<'EOF'\n$(rm x)\nEOF",
        ),
    ),
    (
        "??ADA?",
        each(
            "cat /etc/x",
            "ls /etc/y",
            "cd / && ls",
            "ls ../..",
            "cat < /etc/x",
            "cd /etc; cat x",
            *bars("grep -e. /etc/x|grep --regexp=. /etc/x|grep -re. /etc|grep -f /etc/x a"),
            *bars("jq -f /etc/x|jq -nf /etc/x|sed -n 1p /etc/x|find -O3 /etc|find -D tree /etc"),
            *bars("find . -cnewer /etc/x|jq -L /etc . f"),
            "cd - && cat f",
        ),
    ),
    (
        "?A?DAA",
        each(
            *bars("mkdir d|touch f|mv a b|cp a b|rm z|rm -rf d|rmdir d|sed -i s/a/b/ f"),
            *bars(
                "echo x > f|echo x >> sub/f|ls; rm c|mkdir d && ls|cp *.py sub|rm -rf *|rm sub/*|cp -t sub a|cp -tsub a|cp a */config|"
                "cp -r sub/. .|mv sub/a .|mv a ./|touch ."
            ),
            "ls\nrm c",
            "cat > f <<'EOF'\nx\nEOF",
        ),
    ),
    (
        "???DA?",
        each(
            *bars(
                "mkdir /etc/d|touch /x|mv a /etc/b|cp -t /etc a|rm -rf /etc|sed -i s/a/b/ /etc/f"
            ),
            *bars("echo x > /etc/f|cd / && rm x|rm ../../x|cp --target-directory=/etc a"),
            *bars(
                "rm -rf .git|echo x > .git/hooks/pre-commit|cp a .claude/settings.json|touch ~/.bashrc"
            ),
            *bars(
                "chmod +x f|ln -s a b|python3 -c 1|npm test|curl x|env|awk 1|git commit|git push"
            ),
            *bars("bash -c ls|xargs ls|nohup ls|time ls|mkdir d && python3 x|(ls)|ls &|`ls`"),
            *bars("echo $(ls)|for f in a; do ls; done|find . -delete|FOO=1 ls|PATH=. ls|X=1; ls"),
            *bars(
                "find . -exec rm {} ;|sort -o x f|sed -n 's/a/b/w x' f|sed -i 's/a/b/e' f|uniq a b|uniq - b"
            ),
            *bars(
                "rm -r ../workspace|rm -rf /workspace/|rm -rf .|rm -rf sub/..|rmdir /tmp|cd sub; rm -r ..|rm -r a ."
            ),
            *bars(
                "mv ../workspace x|mv /tmp x|mv -t x . a|mv --target-directory=x a .|cd ..; rm -rf workspace"
            ),
            *bars("git -c core.pager=x log|git log --output=x|date -s 1|printf -v X a|ls <(rm x)"),
            *bars("cat <<< x|cat $X|echo $X|{ ls; }|f() { ls; }|export X=1|test -v 'a[$(rm)]'"),
            *bars("[ -v 'a[$(rm)]' ]|ls > $X|echo $'\\x72m'|sort --compress-program=x f|pushd sub"),
            "cat <<EOF\nx\nEOF",
            "cat <<'EOF' | sh\nrm\nEOF",
            "cd $X && ls",
        ),
    ),
    ("???DA?", [("WebFetch", {"url": "https://example.com"}), ("WebSearch", {"query": "x"})]),
    ("???DA?", [("mcp__m__ro", {}), ("mcp__m__rw", {})]),
    ("AAAAAA", [("Agent", {}), ("TaskCreate", {}), ("Skill", {"skill": "x"})]),
    ("???DA?", each("ls $(", "ls\rrm", "ls 'x", "if ls", "x" * 100_001, "ls\x07")),
]
"""Letters by `MODES`, and the calls that get them. Nobody has set a rule."""

NPM_ALLOWED = bars(
    "npm|npm test|npm  test|npm run x && npm test|npm test ¦ cat|npm test; ls|npm test\nnpm ls|"
    "cd bin && npm test|NODE_ENV=test npm test|timeout 5 npm test|nice npm test|nice -n 5 npm test|"
    "time npm test|nohup npm test|stdbuf -o0 npm test|xargs npm test|npm test 2>&1|"
    "npm test > /dev/null|npm test # comment"
)
NPM_NOT = bars(
    "npmx foo|NPM test|FOO=1 npm test|npm test && rm z|npm test ¦¦ python3 x|npm test\nrm z|"
    "npm test > out.txt|npm test $(ls)|npm test $(npm ls)|npm test `ls`|npm test &|(npm test)|"
    "bash -c 'npm test'|sudo npm test|env npm test|./bin/npm test|PATH=. npm test|"
    "npm test; X=1|npm test $X|for i in a; do npm test; done"
)

ALLOW: Sequence[tuple[str, Sequence[Call], Sequence[Call]]] = [
    ("Bash(npm *)", each(*NPM_ALLOWED), each(*NPM_NOT)),
    ("Bash(npm:*)", each(*NPM_ALLOWED), each(*NPM_NOT)),
    (
        "Bash(npm test)",
        each(
            "npm test", "timeout 5 npm test", "npm test && ls", "npm test | cat", "nohup npm test"
        ),
        each("npm", "npm  test", "npm test --x", 'npm "te st"', 'npm "test"', "xargs npm test"),
    ),
    (
        "Bash(npm test*)",
        each("npm test", "npm testing", "npm test --x", "npm  test"),
        each("npm run test"),
    ),
    (
        "Bash(npm * test)",
        each("npm run test", "npm x test"),
        each("npm test", "npm x test && rm z"),
    ),
    ("Bash(git * main)", each("git push main", "git log -5 main"), each("git main", "git push x")),
    (
        "Bash(git push:*)",
        each("git push", "git push -f", "git push | head"),
        each("git pushx", "git -C . push", "git push && git commit", "git commit"),
    ),
    (
        "Bash(touch:*)",
        each("touch q", "touch a && ls"),
        each("touch /etc/q", "touch $(ls)", "mkdir q", "touch .git/x"),
    ),
    *(
        (
            rule,
            [file("Edit", "src/a"), file("Write", "src/b/c"), bash("echo x > src/f")],
            [file("Edit", "a"), file("Write", "b"), *each("touch src/t", "sed -i s/a/b/ src/x")],
        )
        for rule in ("Edit(/src/**)", "Edit(./src/**)")
    ),
    (
        "Edit",
        [file("Edit", "a"), file("Edit", "sub/b")],
        [file("Write", "a"), bash("echo x > f"), file("Edit", "/etc/x")],
    ),
    ("Write(/src/**)", [], [file("Write", "src/a"), file("Edit", "src/a"), bash("echo x > src/f")]),
    (
        "Edit(//abs/dir/**)",
        [file("Edit", "/abs/dir/x"), file("Write", "/abs/dir/y/z"), bash("echo x > /abs/dir/x")],
        [file("Edit", "/abs/x"), file("Edit", "abs/dir/x")],
    ),
    (
        "Read(//abs/**)",
        [file("Read", "/abs/x"), file("Grep", "/abs/y")],
        [file("Read", "/abc/x"), file("Edit", "/abs/x"), file("Read", "/abs/../etc/x")],
    ),
    (
        "WebFetch(domain:example.com)",
        [
            ("WebFetch", {"url": url})
            for url in (
                "http://example.com",
                "https://example.com:8080/x",
                "https://EXAMPLE.com/",
                "https://user@example.com/x",
                "https://evil.org:443@example.com./x",
            )
        ],
        [
            ("WebFetch", {"url": url})
            for url in (
                "https://sub.example.com",
                "https://example.com.evil.org",
                "https://evil.org/?example.com",
                "https://example.com@evil.org",
                "https://evil.org\\@example.com",
                "ftp://example.com",
                "https://ｅxample.com",
                "https://example。com",
                "https://example%2ecom",
                "https://[::ffff:1.2.3.4]",
                "https:example.com",
                "",
            )
        ],
    ),
    (
        "WebFetch(domain:*.example.com)",
        [("WebFetch", {"url": "https://sub.example.com"})],
        [("WebFetch", {"url": url}) for url in ("https://example.com", "https://xexample.com")],
    ),
    ("mcp__m", [("mcp__m__ro", {}), ("mcp__m__rw", {})], [("mcp__n__ro", {})]),
    ("mcp__m__*", [("mcp__m__ro", {}), ("mcp__m__rw", {})], [("mcp__n__ro", {})]),
    ("mcp__m__r*", [("mcp__m__ro", {}), ("mcp__m__rw", {})], [("mcp__n__ro", {})]),
    ("mcp__m__ro", [("mcp__m__ro", {})], [("mcp__m__rw", {})]),
    *((rule, each("rm z", "x $(y)", "(ls)"), []) for rule in ("Bash", "Bash()", "Bash(*)")),
]
"""An allow rule, calls that it allows in the mode default, and calls that it does not."""

RM_DENIED = bars(
    "rm z|ls && rm z|ls; rm z|ls ¦ rm z|echo $(rm z)|echo `rm z`|FOO=1 rm z|timeout 2 rm z|"
    "nohup rm z|sudo rm z|sudo -u root rm z|env rm z|env -i A=1 rm z|command rm z|\\rm z|/bin/rm z|"
    "bash -c 'rm z'|sh -lc \"ls; rm z\"|xargs rm z|xargs -0 -n1 rm|(rm z)|true & rm z|"
    "if true; then rm z; fi|for i in a; do rm $i; done|f() { rm z; }; f|eval 'rm z'|'rm' z|r\"m\" z|"
    'rm|time rm z|nice -n 5 rm z|exec rm z|! rm z|{ rm z; }|cat <(rm z)|echo "$(rm z)"|'
    "bash -c 'bash -c \"rm z\"'|ls\nrm z|r\\\nm z|x=$(rm z)|[ -f a ] && rm z"
)
SECRET_READ = bars(
    "cat secret/s|head secret/s|ls secret|cp secret/s x|cd secret && cat s|cat sub/secret/z|"
    "timeout 1 cat secret/s|bash -c 'cat secret/s'|cat ./x/../secret/s|cat < secret/s|"
    "python3 secret/s.py|cat /workspace/secret/s"
)

DENY: Sequence[tuple[str, Sequence[str], Sequence[Call], Sequence[Call]]] = [
    *(
        (
            rule,
            ["Bash"],
            each(*RM_DENIED),
            each("echo rm z", "rmdir z", "find . -exec rm {} \\;", "npm rm", "ls # rm z"),
        )
        for rule in ("Bash(rm:*)", "Bash(rm *)")
    ),
    (
        "Read(./secret/**)",
        ["Read", "Bash", "Edit", "Write", "Grep", "Glob"],
        [
            *each(*SECRET_READ),
            *(file(t, "secret/s") for t in ("Read", "Glob", "Grep", "Edit", "Write")),
            *(file(t, "secret") for t in ("Glob", "Grep")),
            ("Glob", {"pattern": "secret/*"}),
            ("Glob", {"pattern": "/workspace/secret/*"}),
        ],
        [
            file("Grep", "."),
            ("Glob", {"pattern": "*"}),
            *each("python3 -c 'open(1)'", "grep -r x .", "echo > secret/q", "grep secret a.txt"),
            *each("cat a.txt", "ls *.py", "git commit -m secret"),
        ],
    ),
    (
        "Edit(/src/**)",
        ["Bash", "Edit", "Write"],
        [
            *(file(t, "src/a") for t in ("Edit", "Write")),
            *each("echo x > src/f", "rm src/f", "cp a src/b", "sed -i s/a/b/ src/f"),
        ],
        [file("Edit", "a"), bash("echo x > f")],
    ),
    (
        "WebFetch(domain:example.com)",
        ["WebFetch"],
        [
            ("WebFetch", {"url": url})
            for url in (
                *("https://example.com/x", "https://a\\@example.com", "https://example.com."),
                *("https://ＥXAMPLE.com", "https://example。com", "https://ex%61mple.com"),
            )
        ],
        [("WebFetch", {"url": "https://sub.example.com"})],
    ),
    ("mcp__m__rw", ["mcp__m"], [("mcp__m__rw", {})], [("mcp__m__ro", {})]),
    *(
        (rule, ["mcp__*"], [("mcp__a_b__x", {})], [("mcp__m__ro", {})])
        for rule in ("mcp__a.b", "mcp__a.b__*", "mcp__a.b__x", "mcp__a_b", "mcp__a_b__x*")
    ),
    ("mcp__*", ["mcp__m"], [("mcp__m__rw", {}), ("mcp__m__ro", {})], []),
]
"""A deny rule, allow rules beside it, calls that it denies, and calls that it does not."""

UNSURE: Sequence[tuple[str, Call]] = [
    *(
        ("Bash(rm *)", bash(command))
        for command in bars(
            "X=rm; $X z|$(echo rm) z|/bin/r? z|bash -c \"$X\"|eval $X|echo 'rm z' ¦ sh|$'rm' z|"
            "bash <<< 'rm z'|\"$X\" z|ls $(|sudo $X"
        )
    ),
    ("Bash(git push *)", bash("git $X")),
    ("Bash(git push *)", bash("git push* x")),
    ("Read(./secret/**)", bash("cat $X")),
    ("Read(./secret/**)", bash("cat sec*/s")),
    ("Read(./secret/**)", bash("cat {secret,x}/s")),
    ("Edit(/src/**)", bash("echo x > $X")),
]
"""A deny rule, and a call of which nobody can say whether it is reached: asked, in every mode."""
